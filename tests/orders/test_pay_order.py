"""pay_order: stored before the call, no transaction open during it, and what a lost answer means."""

import pytest

from kernel.errors import NotFound
from orders.commands.create_order import OrderAlreadyPaid
from orders.commands.pay_order import ChannelAway, ChannelRefusedPayment, NothingToPay, OrderNotPayable
from payments.models import Payment
from tests.orders.factories import (
    AskedLine,
    Shop,
    channel_state,
    coupon_state,
    order_of,
    payment_of,
    race,
    snapshot,
    stock_of,
)


def test_success_places_the_payment_until_the_window_ends(shop: Shop) -> None:
    ordered, placed = shop.placed()
    assert (placed.channel, placed.amount_fen, placed.status) == ("wechat", 31000, 0)
    assert placed.client_params["package"].startswith("prepay_id=")
    payment = payment_of(ordered)
    assert (payment.status, payment.expires_at) == ("AWAITING", ordered.pay_expires_at)
    trade = shop.simulator.order(placed.out_trade_no)["orders"][0]
    assert (trade["state"], trade["total_fen"]) == ("NOTPAY", 31000)
    assert trade["expires_at"] is not None


def test_again_gives_the_same_parameters(shop: Shop) -> None:
    ordered, placed = shop.placed()
    again = shop.pay(ordered)
    assert again.client_params == placed.client_params
    assert Payment.objects.count() == 1
    assert (
        len([c for c in shop.simulator.order(placed.out_trade_no)["calls"] if c["operation"] == "wechat.prepay"]) == 1
    )


def test_replay_of_the_key(shop: Shop) -> None:
    ordered = shop.order()
    key = shop.key("pay", body=1)
    first = shop.pay(ordered, key=key)
    again = shop.pay(ordered, key=key)
    assert again.replayed
    assert again.client_params == first.client_params


def test_a_lost_answer_is_placed_again_under_the_same_number(shop: Shop) -> None:
    ordered = shop.order()
    shop.simulator.fault("wechat.prepay", "reset_after", times=1)
    with pytest.raises(ChannelAway):
        shop.pay(ordered)
    assert payment_of(ordered).status == "PREPAYING"
    placed = shop.pay(ordered)
    assert placed.out_trade_no == payment_of(ordered).out_trade_no
    assert channel_state(shop, placed.out_trade_no) == "NOTPAY"


def test_refusals_write_nothing(shop: Shop) -> None:
    paid = shop.paid()
    free = shop.order(AskedLine(sku="GIFT", title="赠品", unit_price_fen=0, qty=1))
    ended, _placed = shop.placed(AskedLine(sku="A", title="a", unit_price_fen=100, qty=1))
    shop.cancel(ended)
    waiting = shop.order(AskedLine(sku="B", title="b", unit_price_fen=100, qty=1))
    before = snapshot()
    for ordered, error, values in [
        (paid, OrderAlreadyPaid, {}),
        (free, NothingToPay, {}),
        (ended, OrderNotPayable, {}),
        (waiting, OrderNotPayable, {"now": waiting.pay_expires_at}),
        (waiting, NotFound, {"user_id": "somebody-else"}),
    ]:
        with pytest.raises(error):
            shop.pay(ordered, **values)
    assert snapshot() == before


def test_paid_there_already_is_settled(shop: Shop) -> None:
    ordered = shop.order()
    shop.simulator.fault("wechat.prepay", "reset_after", times=1)
    with pytest.raises(ChannelAway):
        shop.pay(ordered)
    shop.simulator.pay(payment_of(ordered).out_trade_no, notify=False)
    with pytest.raises(OrderAlreadyPaid):
        shop.pay(ordered)
    assert order_of(ordered).status == 10


def test_race_places_one_payment(shop: Shop) -> None:
    ordered = shop.order()
    results = race(*[lambda: shop.pay(ordered) for _ in range(4)])
    assert not [result for result in results if isinstance(result, BaseException)]
    assert len({str(result.client_params["package"]) for result in results}) == 1
    assert Payment.objects.count() == 1


def test_race_with_cancel_never_leaves_a_payable_payment_behind(shop: Shop) -> None:
    for number in range(6):
        ordered = shop.order(AskedLine(sku=f"R{number}", title="r", unit_price_fen=100, qty=1))
        race(lambda ordered=ordered: shop.pay(ordered), lambda ordered=ordered: shop.cancel(ordered))
        order, payment = order_of(ordered), Payment.objects.filter(order_no=ordered.order_no).first()
        if order.status == 50 and payment is not None:
            assert payment.status == "CLOSED"
            trades = shop.simulator.order(payment.out_trade_no)["orders"]
            assert not trades or trades[0]["state"] == "CLOSED"


def test_enqueue_fail_gives_coupon_and_stock_back(shop: Shop) -> None:
    coupon_id = shop.coupon()
    ordered = shop.order(coupon_id=coupon_id)
    shop.simulator.fault("wechat.prepay", "refuse", times=1, status=400, code="PARAM_ERROR", message="openid")
    with pytest.raises(ChannelRefusedPayment):
        shop.pay(ordered)
    order = order_of(ordered)
    assert (order.status, order.closed_reason) == (40, "enqueue_fail")
    assert coupon_state(coupon_id) == "AVAILABLE"
    assert stock_of(shop, "NUT") == (10, 0)
