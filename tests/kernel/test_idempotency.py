import threading
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import pytest
from django.db import connection

from kernel import idempotency, results
from kernel.errors import IdempotencyKeyReused, Refusal, StillInProgress
from kernel.models import IdempotencyKey
from kernel.transactions import unit_of_work

MERCHANT = UUID(int=1)


@dataclass(frozen=True)
class Counted:
    id: UUID
    at: datetime
    figures: list[int]
    replayed: bool = False


def key(name: str = "k", **parts):
    return idempotency.business_key(merchant_id=MERCHANT, key=name, **parts)


def run(which, now) -> Counted:
    with unit_of_work(now=now):
        if (first := idempotency.begin(which, Counted, now=now)) is not None:
            return first
        result = Counted(UUID(int=IdempotencyKey.objects.count()), now, [1, 2])
        idempotency.finish(which, result)
        return result


@pytest.mark.django_db(transaction=True)
def test_a_replay_repeats_the_first_result_byte_for_byte(now) -> None:
    first = run(key(a=1), now)
    second = run(key(a=1), now)
    assert not first.replayed
    assert second.replayed
    assert results.to_json(first) == results.to_json(second)


@pytest.mark.django_db(transaction=True)
def test_a_key_belongs_to_one_request_and_one_merchant(now) -> None:
    run(key(a=1), now)
    with pytest.raises(IdempotencyKeyReused):
        run(key(a=2), now)
    other = idempotency.business_key(merchant_id=UUID(int=2), key="k", a=2)
    assert not run(other, now).replayed


@pytest.mark.django_db(transaction=True)
def test_a_refusal_binds_nothing(now) -> None:
    with pytest.raises(Refusal), unit_of_work(now=now):
        idempotency.begin(key(), Counted, now=now)
        raise Refusal()
    assert not IdempotencyKey.objects.exists()
    assert not run(key(), now).replayed


@pytest.mark.django_db(transaction=True)
def test_a_concurrent_duplicate_waits_and_gives_up_after_two_seconds(now) -> None:
    held, release = threading.Event(), threading.Event()

    def first() -> None:
        with unit_of_work(now=now):
            idempotency.begin(key(), Counted, now=now)
            idempotency.finish(key(), Counted(UUID(int=0), now, []))
            held.set()
            release.wait(10)
        connection.close()

    thread = threading.Thread(target=first)
    thread.start()
    held.wait(10)
    with pytest.raises(StillInProgress):
        run(key(), now)
    release.set()
    thread.join()
    assert run(key(), now).replayed
