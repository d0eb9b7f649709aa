import threading

import pytest
from django.db import connection

from kernel import errors
from kernel.transactions import unit_of_work
from ledgers.checks import stock_that_differs
from ledgers.commands.adjust_stock import adjust_stock
from ledgers.commands.move_stock import OutOfStock, StockKeyReused
from ledgers.commands.release_stock import release_stock
from ledgers.commands.reserve_stock import reserve_stock
from ledgers.commands.restock import restock
from ledgers.commands.ship_stock import ship_stock
from ledgers.models import StockEntry, StockItem


@pytest.fixture
def tea(merchant, now):
    adjust_stock(merchant_id=merchant.pk, sku="TEA", delta=10, business_key="count:1", reference="count", now=now)
    return merchant.pk


def balances(sku="TEA"):
    return StockItem.objects.filter(sku=sku).values_list("sellable", "reserved", "defect").get()


def entries():
    return list(StockEntry.objects.order_by("id").values_list("kind", "bucket", "delta", "balance_after"))


def move(command, merchant_id, qty, key, now, **other):
    return command(
        merchant_id=merchant_id, sku="TEA", qty=qty, business_key=key, reference="Q00000000000001", now=now, **other
    )


def test_reserve_ship_and_restock(tea, now):
    move(reserve_stock, tea, 2, "reserve:Q1:1", now)
    assert balances() == (8, 2, 0)
    move(ship_stock, tea, 2, "ship:Q1:1", now)
    assert balances() == (8, 0, 0)
    move(restock, tea, 1, "rollback:AS1", now, bucket="sellable")
    move(restock, tea, 1, "rollback:AS2", now, bucket="defect")
    assert balances() == (9, 0, 1)
    assert stock_that_differs() == []
    assert entries()[1:] == [
        ("reserve", "sellable", -2, 8),
        ("reserve", "reserved", 2, 2),
        ("ship", "reserved", -2, 0),
        ("restock", "sellable", 1, 9),
        ("restock", "defect", 1, 1),
    ]


def test_r6_refund_then_close_gives_the_pieces_back_once(tea, now):
    move(reserve_stock, tea, 2, "reserve:Q1:1", now)
    move(release_stock, tea, 2, "release:Q1:1", now)
    assert move(release_stock, tea, 2, "release:Q1:1", now).replayed
    assert balances() == (10, 0, 0)
    with pytest.raises(OutOfStock):
        move(release_stock, tea, 2, "close:Q1:1", now)
    assert balances() == (10, 0, 0)


@pytest.mark.parametrize("command", [reserve_stock, ship_stock, release_stock])
def test_a_replay_moves_nothing(tea, now, command):
    move(reserve_stock, tea, 5, "first", now)
    assert not move(command, tea, 2, "again", now).replayed
    before = balances(), entries()
    assert move(command, tea, 2, "again", now).replayed
    assert (balances(), entries()) == before


def test_refusals_write_nothing(tea, now):
    move(reserve_stock, tea, 2, "reserve:Q1:1", now)
    before = balances(), entries()
    with pytest.raises(OutOfStock) as refused:
        move(reserve_stock, tea, 9, "reserve:Q2:1", now)
    assert refused.value.data == {"sku": "TEA", "bucket": "sellable", "wanted": 9, "have": 8}
    with pytest.raises(StockKeyReused):
        move(reserve_stock, tea, 3, "reserve:Q1:1", now)
    for qty in (0, -1):
        with pytest.raises(errors.InvalidInput):
            move(reserve_stock, tea, qty, "reserve:Q3:1", now)
    with pytest.raises(errors.InvalidInput):
        move(restock, tea, 1, "rollback:AS1", now, bucket="reserved")
    assert (balances(), entries()) == before


def test_a_sku_without_an_item_is_not_tracked(tea, now):
    moved = reserve_stock(merchant_id=tea, sku="EBOOK", qty=1, business_key="reserve:Q1:2", reference="Q1", now=now)
    assert not moved.tracked
    assert not StockItem.objects.filter(sku="EBOOK").exists()
    assert len(entries()) == 1


def test_joins_the_callers_transaction(tea, now):
    with pytest.raises(ZeroDivisionError), unit_of_work(now=now):
        move(reserve_stock, tea, 2, "reserve:Q1:1", now)
        raise ZeroDivisionError
    assert balances() == (10, 0, 0)
    assert len(entries()) == 1


def race(*calls):
    gate, results = threading.Barrier(len(calls)), []

    def run(call):
        try:
            gate.wait(10)
            results.append(call())
        except Exception as error:
            results.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def test_eight_orders_race_for_ten_pieces(tea, now):
    results = race(*[lambda n=n: move(reserve_stock, tea, 3, f"reserve:Q{n}:1", now) for n in range(8)])
    assert sum(isinstance(each, OutOfStock) for each in results) == 5, results
    assert balances() == (1, 9, 0)
    assert stock_that_differs() == []


def test_one_movement_delivered_six_times_at_once(tea, now):
    move(reserve_stock, tea, 4, "reserve:Q1:1", now)
    results = race(*[lambda: move(ship_stock, tea, 2, "ship:Q1:1", now)] * 6)
    assert sorted(each.replayed for each in results) == [False, True, True, True, True, True]
    assert balances() == (6, 2, 0)


def test_first_count_of_a_sku_at_once_from_two_sides(merchant, now):
    def count(key):
        return adjust_stock(merchant_id=merchant.pk, sku="NUT", delta=5, business_key=key, reference="c", now=now)

    results = race(lambda: count("a"), lambda: count("b"))
    assert all(not isinstance(each, Exception) for each in results), results
    assert balances("NUT") == (10, 0, 0)


def test_the_check_finds_a_balance_that_was_edited(tea, now):
    StockItem.objects.filter(sku="TEA").update(sellable=11)
    (wrong,) = stock_that_differs()
    assert (wrong["sku"], wrong["sellable"], wrong["entries_sellable"]) == ("TEA", 11, 10)
