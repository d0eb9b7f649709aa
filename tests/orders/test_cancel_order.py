"""cancel_order: the user's word, after the channel was asked; there is no way back."""

import pytest

from kernel.errors import IllegalTransition, NotFound
from orders.commands.close_order import GatewayUndecided, close_order
from orders.commands.create_order import OrderAlreadyPaid
from tests.orders.factories import (
    Shop,
    channel_state,
    commands_of,
    coupon_state,
    events,
    order_of,
    race,
    snapshot,
    stock_of,
)


def test_success(shop: Shop) -> None:
    coupon_id = shop.coupon()
    ordered, placed = shop.placed(coupon_id=coupon_id)
    cancelled = shop.cancel(ordered, reason="changed my mind")
    assert (cancelled.status, cancelled.version) == (50, 2)
    assert channel_state(shop, placed.out_trade_no) == "CLOSED"
    assert (coupon_state(coupon_id), stock_of(shop, "NUT")) == ("AVAILABLE", (10, 0))
    assert commands_of(ordered) == ["create", "cancel"]
    assert len(events("order.cancelled")) == 1


def test_already_paid_is_settled_and_told(shop: Shop) -> None:
    ordered, placed = shop.placed()
    shop.simulator.pay(placed.out_trade_no, notify=False)
    with pytest.raises(OrderAlreadyPaid):
        shop.cancel(ordered)
    assert order_of(ordered).status == 10


def test_refusals_write_nothing(shop: Shop) -> None:
    ordered, _placed = shop.placed()
    before = snapshot()
    with pytest.raises(NotFound):
        shop.cancel(ordered, user_id="somebody-else")
    assert snapshot() == before
    shop.simulator.fault("wechat.query", "server_error", times=3)
    with pytest.raises(GatewayUndecided):
        shop.cancel(ordered)
    assert order_of(ordered).status == 0
    close_order(order_id=ordered.order_id, reason="timeout", now=shop.now)
    before = snapshot()
    with pytest.raises(IllegalTransition):
        shop.cancel(ordered)
    assert snapshot() == before


def test_replay(shop: Shop) -> None:
    ordered = shop.order()
    key = shop.key("cancel", body=1)
    first = shop.cancel(ordered, key=key)
    again = shop.cancel(ordered, key=key)
    assert (again.replayed, again.cancelled_at) == (True, first.cancelled_at)
    assert shop.cancel(ordered).cancelled_at == first.cancelled_at
    assert commands_of(ordered) == ["create", "cancel"]


def test_use_cancel_use_again(shop: Shop) -> None:
    """C8, C10: a coupon is never stuck after a cancelled order."""
    coupon_id = shop.coupon()
    shop.cancel(shop.order(coupon_id=coupon_id))
    again = shop.order(coupon_id=coupon_id)
    assert order_of(again).coupon_state == "leased"


def test_race_cancels_once(shop: Shop) -> None:
    ordered, _placed = shop.placed(coupon_id=shop.coupon())
    results = race(*[lambda: shop.cancel(ordered) for _ in range(4)])
    assert not [result for result in results if isinstance(result, BaseException)]
    assert commands_of(ordered) == ["create", "cancel"]
