from datetime import UTC, date, datetime, timedelta

import pytest

from kernel import errors
from ledgers.checks import sales_that_differ
from ledgers.commands._count import SalesKeyReused
from ledgers.commands.count_sale import count_sale
from ledgers.commands.count_sale_return import count_sale_return
from ledgers.models import SalesDay, SalesEntry
from tests.ledgers.test_stock import race


def sell(merchant, now, *, key="order:Q1:1", qty=2, amount_fen=20000, at=None):
    return count_sale(
        merchant_id=merchant.pk,
        sku="TEA",
        qty=qty,
        amount_fen=amount_fen,
        business_key=key,
        reference="Q1",
        at=at or now,
        now=now,
    )


def take_back(merchant, now, *, key="AS1", qty=1, amount_fen=10000, at=None):
    return count_sale_return(
        merchant_id=merchant.pk,
        sku="TEA",
        qty=qty,
        amount_fen=amount_fen,
        business_key=key,
        reference="AS1",
        at=at or now,
        now=now,
    )


def days():
    return list(
        SalesDay.objects.order_by("on_date").values_list(
            "on_date", "sold_qty", "sold_fen", "returned_qty", "returned_fen"
        )
    )


def test_a_return_counts_on_the_day_the_refund_succeeded(merchant, now):
    sell(merchant, now)
    take_back(merchant, now, at=now + timedelta(days=3))
    take_back(merchant, now, key="AS2", qty=0, amount_fen=2000, at=now + timedelta(days=3))
    assert days() == [
        (date(2026, 11, 30), 2, 20000, 0, 0),
        (date(2026, 12, 3), 0, 0, 1, 12000),
    ]
    assert sales_that_differ() == []


def test_the_day_is_the_merchants_own(merchant, now):
    assert sell(merchant, now, at=datetime(2026, 11, 30, 15, 59, tzinfo=UTC)).on_date == date(2026, 11, 30)
    assert sell(merchant, now, key="2", at=datetime(2026, 11, 30, 16, 0, tzinfo=UTC)).on_date == date(2026, 12, 1)


def test_replays_and_refusals_write_nothing(merchant, now):
    sell(merchant, now)
    before = days(), SalesEntry.objects.count()
    assert sell(merchant, now, at=now + timedelta(days=9)).replayed
    with pytest.raises(SalesKeyReused):
        sell(merchant, now, qty=3)
    with pytest.raises(SalesKeyReused):
        take_back(merchant, now, key="order:Q1:1", qty=2, amount_fen=20000)
    for bad in ({"qty": -1}, {"amount_fen": -1}):
        with pytest.raises(errors.InvalidInput):
            sell(merchant, now, key="x", **bad)
    assert (days(), SalesEntry.objects.count()) == before


def test_one_day_counted_from_six_sides(merchant, now):
    results = race(*[lambda n=n: sell(merchant, now, key=f"order:Q{n}:1") for n in range(6)])
    assert not any(isinstance(each, Exception) for each in results), results
    assert days() == [(date(2026, 11, 30), 12, 120000, 0, 0)]
    assert sales_that_differ() == []


def test_one_sale_told_six_times_at_once(merchant, now):
    results = race(*[lambda: sell(merchant, now)] * 6)
    assert not any(isinstance(each, Exception) for each in results), results
    assert sorted(each.replayed for each in results) == [False, True, True, True, True, True]
    assert days() == [(date(2026, 11, 30), 2, 20000, 0, 0)]


def test_the_check_finds_a_day_that_was_edited(merchant, now):
    sell(merchant, now)
    SalesDay.objects.update(sold_fen=1)
    (wrong,) = sales_that_differ()
    assert (wrong["sold_fen"], wrong["entries_sold_fen"]) == (1, 20000)
