"""The main road of an order, from the quote to completion, with the coupon and the real wire."""

from django.test import Client

from orders.commands.complete_order import confirm_receipt
from orders.commands.ship_order import ship_order
from orders.commands.sign_shipment import sign_shipment
from orders.models import OrderBill, OrderCoupon, Shipment
from payments.models import ChannelNotify
from tests.orders.factories import Shop, commands_of, coupon_state, drain, events, order_of, stock_of


def test_nut_and_tea_from_quote_to_completed(shop: Shop, live_server, settings) -> None:
    settings.QUITS_BASE_URL = live_server.url
    coupon_id = shop.coupon()

    quoted = shop.quote(coupon_id=coupon_id)
    assert quoted.payable_fen == 26000
    assert [(line.coupon_share_fen, line.net_fen, line.freight_share_fen) for line in quoted.lines] == [
        (1667, 8333, 500),
        (3333, 16667, 500),
    ]
    assert coupon_state(coupon_id) == "LOCKED"

    ordered = shop.order(quote=quoted)
    assert (ordered.order_no, ordered.status, ordered.coupon_state) == (quoted.order_no, 0, "leased")
    assert stock_of(shop, "NUT") == (9, 1)
    evidence = OrderCoupon.objects.get(order_id=ordered.order_id)
    assert evidence.lease_expires_at == ordered.pay_expires_at

    placed = shop.pay(ordered)
    assert placed.client_params["package"].startswith("prepay_id=")
    shop.simulator.pay(placed.out_trade_no)
    shop.simulator.wait_for_notify(out_trade_no=placed.out_trade_no)
    assert ChannelNotify.objects.get().verdict == "VERIFIED"
    drain()

    order = order_of(ordered)
    assert (order.status, order.coupon_state, order.fulfilment) == (10, "redeemed", "waiting")
    assert coupon_state(coupon_id) == "USED"
    assert events("payment.succeeded")[0]["amount_fen"] == 26000

    shipped = ship_order(
        merchant_id=shop.id,
        order_no=ordered.order_no,
        carrier="SF",
        tracking_no="SF0001",
        key=shop.key(),
        now=shop.now,
    )
    assert shipped.status == 20
    assert stock_of(shop, "NUT") == (9, 0)
    assert OrderBill.objects.get(order_id=ordered.order_id).amount_fen == 26000
    signed = sign_shipment(merchant_id=shop.id, order_no=ordered.order_no, key=shop.key(), now=shop.now)
    assert Shipment.objects.get().signed_at == shop.now
    assert signed.complete_at is not None
    assert all(line.signed_at == shop.now for line in order_of(ordered).lines.all())

    completed = confirm_receipt(
        merchant_id=shop.id, order_no=ordered.order_no, user_id="user-1", key=shop.key(), now=shop.now
    )
    assert completed.status == 30
    assert commands_of(ordered) == ["create", "confirm_paid", "deliver", "complete"]


def test_the_token_shows_the_status(shop: Shop, client: Client) -> None:
    ordered = shop.order()
    drain()
    answer = client.get(f"/api/v1/orders/status/{ordered.order_token}")
    assert answer.status_code == 200
    assert answer.json()["status_name"] == "PENDING"
    assert client.get("/api/v1/orders/status/" + "x" * 43).status_code == 404
