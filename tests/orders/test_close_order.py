"""close_order and close_by_admin: the channel is asked first; coupon and stock go back with the closing."""

import pytest

from kernel.errors import IllegalTransition, NotFound
from orders.commands.close_by_admin import ReasonMissing, close_by_admin
from orders.commands.close_order import GatewayUndecided, close_order
from orders.commands.create_order import OrderAlreadyPaid
from orders.models import Anomaly, OrderStatusLog
from tests.orders.factories import (
    Shop,
    channel_state,
    commands_of,
    coupon_state,
    events,
    order_of,
    payment_of,
    race,
    snapshot,
    stock_of,
)


def close(shop: Shop, ordered, reason: str = "timeout", **values):
    return close_order(order_id=ordered.order_id, reason=reason, **{"now": shop.now, **values})


def test_success_gives_everything_back(shop: Shop) -> None:
    coupon_id = shop.coupon()
    ordered, placed = shop.placed(coupon_id=coupon_id)
    ended = close(shop, ordered)
    assert (ended.ending, ended.status, ended.closed_reason) == ("ended", 40, "timeout")
    assert channel_state(shop, placed.out_trade_no) == "CLOSED"
    assert payment_of(ordered).status == "CLOSED"
    assert coupon_state(coupon_id) == "AVAILABLE"
    assert order_of(ordered).coupon_state == "released"
    assert stock_of(shop, "NUT") == (10, 0)
    assert commands_of(ordered) == ["create", "close"]
    assert [event["reason"] for event in events("order.closed")] == ["timeout"]


def test_an_order_that_was_never_placed_asks_nobody(shop: Shop) -> None:
    ordered = shop.order()
    assert close(shop, ordered).ending == "ended"
    assert shop.simulator.get("log")["calls"] == []


def test_paid_at_the_channel_is_settled_instead(shop: Shop) -> None:
    """C14: pay; callback lost; timeout job asks the gateway first."""
    coupon_id = shop.coupon()
    ordered, placed = shop.placed(coupon_id=coupon_id)
    shop.simulator.pay(placed.out_trade_no, notify=False)
    ended = close(shop, ordered)
    assert (ended.ending, ended.status) == ("paid", 10)
    assert coupon_state(coupon_id) == "USED"
    assert commands_of(ordered) == ["create", "confirm_paid"]


def test_paid_while_it_was_being_closed_is_found_by_the_second_query(shop: Shop) -> None:
    ordered, placed = shop.placed()
    shop.simulator.fault("wechat.close", "refuse", status=400, code="ORDERPAID", message="")
    shop.simulator.fault("wechat.query", "server_error", times=0)
    shop.simulator.pay(placed.out_trade_no, notify=False)
    assert close(shop, ordered).ending == "paid"


def test_no_answer_leaves_it_pending_with_back_off_and_an_alarm(shop: Shop) -> None:
    ordered, _placed = shop.placed(coupon_id=shop.coupon())
    shop.simulator.fault("wechat.query", "server_error", times=-1)
    waits = []
    for _ in range(3):
        ended = close(shop, ordered)
        order = order_of(ordered)
        assert (ended.ending, order.status, order.coupon_state) == ("undecided", 0, "leased")
        waits.append((order.next_check_at - shop.now).total_seconds())
    assert waits == [10, 30, 60]
    anomaly = Anomaly.objects.get()
    assert (anomaly.kind, anomaly.outcome) == ("gateway_query_failed", "stays_pending")
    shop.simulator.clear_faults()
    assert close(shop, ordered).ending == "ended"


def test_not_found_right_after_launch_is_not_read_as_closed(shop: Shop) -> None:
    """C34."""
    ordered = shop.order()
    shop.simulator.fault("wechat.prepay", "reset", times=1)
    with pytest.raises(Exception, match="CHANNEL_AWAY"):
        shop.pay(ordered)
    assert close(shop, ordered).ending == "undecided"
    later = shop.later(seconds=61)
    assert close(later, ordered).ending == "ended"


def test_replay_tells_what_it_is(shop: Shop) -> None:
    ordered, _placed = shop.placed()
    close(shop, ordered)
    before = snapshot()
    again = close(shop, ordered, "manual")
    assert (again.ending, again.closed_reason) == ("already", "timeout")
    assert snapshot() == before
    with pytest.raises(NotFound):
        close_order(order_id=shop.id, reason="timeout", now=shop.now)


def test_race_of_two_closers_has_one_effect(shop: Shop) -> None:
    """C12: released twice counts once."""
    coupon_id = shop.coupon()
    ordered, _placed = shop.placed(coupon_id=coupon_id)
    results = race(*[lambda: close(shop, ordered) for _ in range(4)])
    assert sorted(result.ending for result in results) == ["already", "already", "already", "ended"]
    assert commands_of(ordered) == ["create", "close"]
    assert stock_of(shop, "NUT") == (10, 0)


def test_race_with_the_payment_ends_either_way_with_the_books_square(shop: Shop) -> None:
    for number in range(5):
        ordered, placed = shop.placed(address={"street": str(number)})
        race(
            lambda ordered=ordered: close(shop, ordered),
            lambda placed=placed: shop.simulator.pay(placed.out_trade_no, notify=False),
        )
        order, state = order_of(ordered), channel_state(shop, placed.out_trade_no)
        assert (order.status, state) in [(10, "SUCCESS"), (40, "CLOSED")], (order.status, state)


def test_by_admin_needs_a_reason_and_ignores_the_window(shop: Shop) -> None:
    ordered, _placed = shop.placed()
    before = snapshot()
    with pytest.raises(ReasonMissing):
        close_by_admin(order_id=ordered.order_id, username="cs", reason="  ", now=shop.now)
    assert snapshot() == before
    ended = close_by_admin(order_id=ordered.order_id, username="cs", reason="fraud", now=shop.now)
    assert (ended.status, ended.closed_reason) == (40, "manual")
    row = OrderStatusLog.objects.get(order_id=ordered.order_id, command="close")
    assert (row.actor_kind, row.actor, row.reason) == ("staff", "cs", "fraud")
    assert close_by_admin(order_id=ordered.order_id, username="cs", reason="again", now=shop.now).ending == "already"


def test_by_admin_refusals(shop: Shop) -> None:
    paid, cancelled = shop.paid(), shop.order(address={"street": "2"})
    shop.cancel(cancelled)
    with pytest.raises(OrderAlreadyPaid):
        close_by_admin(order_id=paid.order_id, username="cs", reason="x", now=shop.now)
    with pytest.raises(IllegalTransition):
        close_by_admin(order_id=cancelled.order_id, username="cs", reason="x", now=shop.now)
    waiting, _placed = shop.placed(address={"street": "3"})
    shop.simulator.fault("wechat.query", "server_error", times=-1)
    with pytest.raises(GatewayUndecided):
        close_by_admin(order_id=waiting.order_id, username="cs", reason="x", now=shop.now)
