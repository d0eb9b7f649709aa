import threading

import pytest
from django.db import connection

from kernel import numbers


def test_uuid7_carries_version_variant_and_time_order() -> None:
    ids = [numbers.uuid7() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert {each.version for each in ids} == {7}
    assert [each.int >> 80 for each in ids] == sorted(each.int >> 80 for each in ids)


@pytest.mark.django_db(transaction=True)
def test_order_numbers_rise_and_never_repeat_under_load() -> None:
    taken: list[list[str]] = []

    def take() -> None:
        taken.append([numbers.next_number("order") for _ in range(200)])
        connection.close()

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in taken)
    assert len({number for mine in taken for number in mine}) == 1200
    assert numbers.next_number("order") > max(max(mine) for mine in taken)
    assert 6 <= len(numbers.next_number("after_sales")) <= 20


def test_tokens_hold_256_bits() -> None:
    assert len(numbers.new_token()) == 43
    assert len(numbers.sha256("x")) == 32
