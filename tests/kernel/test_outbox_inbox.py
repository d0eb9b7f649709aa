import multiprocessing
import threading
import time
from datetime import timedelta
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.db.utils import ProgrammingError

from kernel import inbox, outbox, stream, valkey
from kernel.models import InboxMessage, OutboxEvent

MERCHANT = UUID(int=1)
SEEN: list[tuple[str, UUID]] = []
FAIL: dict[str, BaseException] = {}


@inbox.consumer("test.happened", name="tests.see")
def see(event: inbox.Event) -> None:
    SEEN.append(("atomic", event.id))
    OutboxEvent.objects.create(
        name="test.effect", subject="x", created_at=event.now, available_at=event.now, merchant_id=MERCHANT
    )
    if "atomic" in FAIL:
        raise FAIL["atomic"]


@inbox.consumer("test.happened", name="tests.call_out", atomic=False)
def call_out(event: inbox.Event) -> None:
    assert not connection.in_atomic_block
    SEEN.append(("free", event.id))
    if "free" in FAIL:
        raise FAIL["free"]


@pytest.fixture(autouse=True)
def _forget():
    SEEN.clear()
    FAIL.clear()


def happen(now) -> OutboxEvent:
    with transaction.atomic():
        return outbox.append(name="test.happened", merchant_id=MERCHANT, subject="s", payload={"n": 1}, now=now)


def effects() -> int:
    return OutboxEvent.objects.filter(name="test.effect").count()


@pytest.mark.django_db(transaction=True)
def test_an_event_reaches_every_consumer_once_whatever_is_delivered(now) -> None:
    event = happen(now)
    stream.drain(now=now)
    for _ in range(3):
        inbox.deliver(event.id, now=now)
    assert sorted(SEEN) == [("atomic", event.id), ("free", event.id)]
    assert effects() == 1
    assert set(InboxMessage.objects.values_list("state", flat=True)) == {"DONE"}


@pytest.mark.django_db(transaction=True)
def test_an_event_of_a_rolled_back_transaction_never_leaves(now) -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        outbox.append(name="test.happened", merchant_id=MERCHANT, subject="s", payload={}, now=now)
        raise RuntimeError
    assert stream.drain(now=now) == 0
    assert SEEN == []


@pytest.mark.django_db(transaction=True)
def test_a_failing_consumer_is_rolled_back_retried_and_stops_no_other(now) -> None:
    FAIL["atomic"] = RuntimeError("no")
    event = happen(now)
    stream.drain(now=now)
    assert ("free", event.id) in SEEN
    assert effects() == 0
    failed = InboxMessage.objects.get(consumer="tests.see")
    assert (failed.state, failed.attempts) == ("FAILED", 1)
    assert inbox.retry_due(now=now) == 0  # not due yet
    FAIL.clear()
    assert inbox.retry_due(now=now + timedelta(seconds=1)) == 1
    assert effects() == 1
    assert InboxMessage.objects.get(consumer="tests.see").state == "DONE"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["atomic", "free"])
def test_after_the_last_try_a_message_is_dead_until_a_person_revives_it(now, kind) -> None:
    FAIL[kind] = RuntimeError("never")
    happen(now)
    stream.drain(now=now)
    moment = now
    for _ in range(len(inbox.BACKOFF_SECONDS)):
        moment += timedelta(hours=2)
        inbox.retry_due(now=moment)
    message = InboxMessage.objects.get(consumer="tests.see" if kind == "atomic" else "tests.call_out")
    assert message.state == "DEAD"
    assert inbox.retry_due(now=moment + timedelta(days=1)) == 0
    FAIL.clear()
    assert inbox.revive(message.id, now=moment)
    assert inbox.retry_due(now=moment) == 1
    message.refresh_from_db()
    assert message.state == "DONE"


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_died_holding_a_claim_is_succeeded(now) -> None:
    FAIL["free"] = KeyboardInterrupt()  # leaves like a killed process: nothing is recorded
    event = happen(now)
    outbox.relay(now=now)
    with pytest.raises(KeyboardInterrupt):
        stream.consume(now=now)
    assert InboxMessage.objects.get(consumer="tests.call_out").state == "RUNNING"
    FAIL.clear()
    assert inbox.retry_due(now=now + timedelta(seconds=inbox.CLAIM_SECONDS)) == 1
    assert SEEN.count(("free", event.id)) == 2


@pytest.mark.django_db(transaction=True)
def test_what_the_stream_lost_is_found_again(now) -> None:
    event = happen(now)
    outbox.relay(now=now)
    valkey.client().flushdb()
    assert stream.consume(now=now) == 0
    late = now + timedelta(minutes=2)
    assert inbox.redeliver_lost(now=late, older_than=timedelta(minutes=1)) == 1
    assert inbox.redeliver_lost(now=late, older_than=timedelta(minutes=1)) == 0
    assert sorted(SEEN) == [("atomic", event.id), ("free", event.id)]


@pytest.mark.django_db(transaction=True)
def test_without_a_stream_events_wait_with_back_off(now, settings) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    event = happen(now)
    assert outbox.relay(now=now).published == 0
    event.refresh_from_db()
    assert (event.state, event.attempts) == ("PENDING", 1)
    assert event.available_at > now
    assert "refused" in event.last_error


@pytest.mark.django_db(transaction=True)
def test_an_event_of_a_worker_whose_clock_is_fast_is_not_kept_waiting(now, settings) -> None:
    event = happen(now + timedelta(minutes=5))
    assert outbox.relay(now=now).published == 1
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    away = happen(now + timedelta(minutes=5))
    outbox.relay(now=now)
    for each in (event, away):
        each.refresh_from_db()
    assert [each.state for each in (event, away)] == ["PUBLISHED", "PENDING"]
    assert now < away.available_at < now + timedelta(minutes=1)


@pytest.mark.django_db(transaction=True)
def test_relays_side_by_side_publish_each_event_once(now) -> None:
    """C28."""
    for _ in range(60):
        happen(now)
    published: list[int] = []

    def run() -> None:
        published.extend(outbox.relay(now=now, limit=7).published for _ in range(20))
        connection.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(published) == 60
    assert OutboxEvent.objects.filter(state="PUBLISHED").count() == 60
    assert sum(len(fields[b"ids"]) for _id, fields in valkey.client().xrange(outbox.STREAM)) == 60 * 16


@pytest.mark.django_db(transaction=True)
def test_what_a_relay_took_before_it_was_killed_is_found(now) -> None:
    """It dies between taking and publishing: no other relay takes the event, the sweep delivers it, once."""
    event = happen(now)
    assert [name for name, _ids in outbox._take(now=now, limit=10)] == ["test.happened"]
    assert outbox.relay(now=now).published == 0
    assert inbox.redeliver_lost(now=now + timedelta(minutes=2), older_than=timedelta(minutes=1)) == 1
    assert inbox.redeliver_lost(now=now + timedelta(minutes=3), older_than=timedelta(minutes=1)) == 0
    assert (effects(), SEEN.count(("atomic", event.id))) == (1, 1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("plan", ["force_generic_plan", "force_custom_plan"])
def test_taking_reads_no_more_than_it_takes(now, plan) -> None:
    """However many events were published before: the pending ones come from their index, and are found by place."""
    for _ in range(5):
        happen(now)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO outbox_event (id, name, version, subject, payload, created_at, state, attempts, available_at,"
            " last_error) SELECT gen_random_uuid(), 'x', 1, 's', '{}', now(), 'PUBLISHED', 0, now(), ''"
            " FROM generate_series(1, 3000)"
        )
        cursor.execute("ANALYZE outbox_event")
        cursor.execute(f"SET LOCAL plan_cache_mode = {plan}")
        cursor.execute("EXPLAIN " + outbox.TAKE, {"now": now, "limit": 500})
        text = "\n".join(row[0] for row in cursor.fetchall())
    assert "Seq Scan" not in text, text
    assert "outbox_pending" in text, text


PAGES: list[list[UUID]] = []


@inbox.page_consumer("test.paged", name="tests.see_page")
def see_page(page: inbox.Page) -> None:
    PAGES.append(page.ids)
    for event in page.events():
        OutboxEvent.objects.create(
            name="test.effect", subject="x", created_at=page.now, available_at=page.now, merchant_id=MERCHANT
        )
        if event.payload["n"] < 0:
            raise RuntimeError("a bad one")


def happen_paged(now, *numbers: int) -> list[OutboxEvent]:
    with transaction.atomic():
        return [
            outbox.append(name="test.paged", merchant_id=MERCHANT, subject="s", payload={"n": n}, now=now)
            for n in numbers
        ]


@pytest.mark.django_db(transaction=True)
def test_a_page_is_taken_at_once_and_only_once(now) -> None:
    PAGES.clear()
    happened = happen_paged(now, *range(60))
    outbox.relay(now=now)
    assert valkey.client().xlen(outbox.STREAM) == 3, "pages of 25"
    assert stream.consume(now=now) == 60
    assert [sorted(page) for page in PAGES] == [sorted(event.id for event in happened)]
    inbox.deliver_page("test.paged", b"".join(event.id.bytes for event in happened), now=now)
    inbox.deliver(happened[0].id, now=now)
    assert (len(PAGES), effects()) == (1, 60)


@pytest.mark.django_db(transaction=True)
def test_a_bad_event_stops_none_of_its_page(now) -> None:
    happen_paged(now, 1, -1, 2)
    stream.drain(now=now)
    assert effects() == 2
    states = InboxMessage.objects.filter(consumer="tests.see_page").values_list("state", flat=True)
    assert sorted(states) == ["DONE", "DONE", "FAILED"]


@pytest.mark.django_db(transaction=True)
def test_pages_at_once_take_each_event_once(now) -> None:
    packed = b"".join(event.id.bytes for event in happen_paged(now, *range(20)))

    def run() -> None:
        inbox.deliver_page("test.paged", packed, now=now)
        connection.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert effects() == 20


@pytest.mark.django_db
def test_the_content_of_an_event_is_fixed(now) -> None:
    event = happen(now)
    with pytest.raises(ProgrammingError, match="Cannot update"):
        OutboxEvent.objects.filter(id=event.id).update(payload={"n": 2})


def test_the_processes_of_one_parent_share_their_wake_ups() -> None:
    def in_a_child() -> int:
        before = valkey.client().llen("critical")
        child = multiprocessing.get_context("fork").Process(target=outbox.wake)
        child.start()
        child.join(30)
        assert child.exitcode == 0
        return valkey.client().llen("critical") - before

    outbox._LAST_WAKE[0] = time.monotonic() + 60  # another process woke the relay just now
    assert in_a_child() == 0
    outbox._LAST_WAKE[0] = 0.0
    assert in_a_child() == 1
    assert outbox._LAST_WAKE[0] > 0.0
