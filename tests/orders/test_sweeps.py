"""Due work is found by a scan: lost callbacks, expiry, leases, fulfilment, signatures, completion; one bad row stops
nothing, and two sweeps at once share nothing."""

from datetime import timedelta

import pytest
import time_machine
from django.db import connection, transaction

from orders import tasks
from orders.commands.check_order import check_order
from orders.commands.claim_due import claim_due
from orders.commands.close_order import close_order
from orders.models import Anomaly, Order, Quote, Shipment
from payments.models import ChannelAccount, RefundRequest
from tests.orders.factories import CARD, Shop, channel_state, coupon_state, order_of, race


def at(shop: Shop, **delta: float):
    """The edges' clock at a later time."""
    return time_machine.travel(shop.now + timedelta(**delta), tick=True)


def test_a_lost_callback_is_found_shortly_before_the_window_ends(shop: Shop) -> None:
    ordered, placed = shop.placed(coupon_id=shop.coupon())
    shop.simulator.pay(placed.out_trade_no, notify=False)
    assert claim_due(kind="check", now=shop.now + timedelta(minutes=27)) == []
    checked = check_order(order_id=ordered.order_id, now=shop.now + timedelta(minutes=28))
    assert checked.outcome == "paid"
    assert order_of(ordered).coupon_state == "redeemed"


def test_an_unpaid_order_is_looked_at_again_when_its_time_is_over(shop: Shop) -> None:
    ordered, placed = shop.placed()
    assert check_order(order_id=ordered.order_id, now=shop.now + timedelta(minutes=28)).outcome == "pending"
    assert order_of(ordered).next_check_at == ordered.pay_expires_at
    assert check_order(order_id=ordered.order_id, now=ordered.pay_expires_at).outcome == "ended"
    assert (order_of(ordered).closed_reason, channel_state(shop, placed.out_trade_no)) == ("timeout", "CLOSED")
    assert check_order(order_id=ordered.order_id, now=ordered.pay_expires_at).outcome == "quiet"


@pytest.mark.parametrize("how", ["close", "cancel"])
def test_money_that_came_as_the_order_ended_is_found_although_its_callback_is_lost(shop: Shop, how: str) -> None:
    ordered, placed = shop.placed()
    if how == "close":
        close_order(order_id=ordered.order_id, reason="manual", now=shop.now)
    else:
        shop.cancel(ordered)
    assert claim_due(kind="check", now=shop.now + timedelta(seconds=119)) == []
    charge = shop.simulator.pay(placed.out_trade_no, notify=False, force=True)["charge"]
    assert check_order(order_id=ordered.order_id, now=shop.now + timedelta(minutes=2)).outcome == "settled"
    assert [row.owner_no for row in RefundRequest.objects.all()] == [charge["trade_no"]]
    assert order_of(ordered).next_check_at is None


def test_an_ended_order_is_asked_about_three_times_then_left_to_the_bill(shop: Shop) -> None:
    ordered, _placed = shop.placed()
    close_order(order_id=ordered.order_id, reason="timeout", now=shop.now)
    waits = [order_of(ordered).next_check_at - shop.now]
    shop.simulator.fault("wechat.query", "server_error", times=3)
    assert check_order(order_id=ordered.order_id, now=shop.now + waits[0]).outcome == "unknown"
    assert order_of(ordered).next_check_at == shop.now + timedelta(minutes=3)
    while (due := order_of(ordered).next_check_at) is not None:
        assert check_order(order_id=ordered.order_id, now=due).outcome == "quiet"
        if order_of(ordered).next_check_at:
            waits.append(order_of(ordered).next_check_at - shop.now)
    assert waits == [timedelta(minutes=2), timedelta(minutes=30), timedelta(hours=6)]
    assert Anomaly.objects.count() == 0


def test_an_order_that_was_never_placed_is_not_asked_about(shop: Shop) -> None:
    ordered = shop.order()
    close_order(order_id=ordered.order_id, reason="timeout", now=shop.now)
    assert order_of(ordered).next_check_at is None


def test_the_sweep_closes_what_is_over_and_leaves_the_rest(shop: Shop) -> None:
    old = [shop.order(address={"street": str(n)}) for n in range(5)]
    fresh = shop.later(minutes=20).order()
    with at(shop, minutes=31):
        assert tasks.check_pending_orders() == 5
    assert {order_of(each).status for each in old} == {40}
    assert order_of(fresh).status == 0


def test_one_bad_row_stops_nothing(shop: Shop) -> None:
    """C27: an order whose coupon evidence is gone cannot be closed; its neighbours can."""
    orders = [shop.order(coupon_id=shop.coupon(), address={"street": str(n)}) for n in range(4)]
    bad = orders[1]
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE order_coupon DISABLE TRIGGER USER")
        cursor.execute("DELETE FROM order_coupon WHERE order_id = %s", [bad.order_id])
        cursor.execute("ALTER TABLE order_coupon ENABLE TRIGGER USER")
    with at(shop, minutes=31):
        assert tasks.check_pending_orders() == 3
    assert [order_of(each).status for each in orders] == [40, 0, 40, 40]
    assert order_of(bad).next_check_at > shop.now + timedelta(minutes=31)


def test_an_account_that_lost_its_keys_is_no_crash_but_no_answer(shop: Shop) -> None:
    ordered, _placed = shop.placed()
    ChannelAccount.objects.update(settings={})
    for _ in range(3):
        assert check_order(order_id=ordered.order_id, now=ordered.pay_expires_at).outcome == "undecided"
    assert Anomaly.objects.get().kind == "gateway_query_failed"


def test_two_sweeps_at_once_share_no_row(shop: Shop) -> None:
    """C26."""
    for number in range(10):
        shop.order(address={"street": str(number)})
    now = shop.now + timedelta(minutes=31)
    claimed = race(*[lambda: claim_due(kind="check", now=now, limit=5) for _ in range(4)])
    ids = [each for batch in claimed for each in batch]
    assert len(ids) == len(set(ids)) == 10


def test_a_worker_that_dies_leaves_its_rows_due_again(shop: Shop) -> None:
    """C24: due work is a scan of the tables, so a restart neither doubles nor loses it."""
    ordered = shop.order()
    now = shop.now + timedelta(minutes=31)
    assert claim_due(kind="check", now=now) == [ordered.order_id]
    assert claim_due(kind="check", now=now) == []
    assert claim_due(kind="check", now=now + timedelta(seconds=121)) == [ordered.order_id]


def test_quotes_expire_and_free_their_coupons(shop: Shop) -> None:
    coupon_id = shop.coupon()
    shop.quote(coupon_id=coupon_id)
    with at(shop, seconds=301):
        assert tasks.expire_quotes() == 1
        assert tasks.expire_quotes() == 0
    assert coupon_state(coupon_id) == "AVAILABLE"
    assert Quote.objects.get().state == "EXPIRED"


def test_a_paid_order_that_was_missed_is_fulfilled_after_the_grace(shop: Shop) -> None:
    ordered = shop.paid(CARD)
    with at(shop, seconds=30):
        assert tasks.fulfil_paid_orders() == 0
    with at(shop, seconds=61):
        assert tasks.fulfil_paid_orders() == 1
    assert order_of(ordered).status == 20


def test_time_signs_and_completes(shop: Shop) -> None:
    ordered = shop.paid()
    shop.ship(ordered)
    with at(shop, days=10, seconds=1):
        assert tasks.sign_due_shipments() == 1
    assert Shipment.objects.get().signed_at is not None
    with at(shop, days=17, seconds=10):
        assert tasks.complete_due_orders() == 1
    assert order_of(ordered).status == 30


@pytest.mark.parametrize("kind", ["check", "fulfil", "complete", "sign", "quotes"])
def test_a_scan_uses_the_index_made_for_it(shop: Shop, kind: str) -> None:
    from orders.commands.claim_due import WORK

    # The table is nearly empty and its statistics are whatever autovacuum saw last: every other way is closed, so that
    # the plan says whether the index can answer, not what a sort of no rows would cost.
    table, column, condition = WORK[kind]
    with transaction.atomic(), connection.cursor() as cursor:
        for scan in ("seqscan", "bitmapscan", "sort"):
            cursor.execute(f"SET LOCAL enable_{scan} = off")
        cursor.execute(
            f"EXPLAIN SELECT id FROM {table} WHERE {condition} AND {column} <= now() ORDER BY {column} LIMIT 100"
        )
        plan = " ".join(row[0] for row in cursor.fetchall())
    assert "_due_to_" in plan, plan
    assert "Sort" not in plan
    assert Order.objects.count() == 0
