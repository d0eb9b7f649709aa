"""The same lives of an order on Alipay's wire: paid by callback, late, doubled, cancelled, lost."""

import pytest

from aftersales.commands.approve_after_sales import approve_after_sales
from orders.commands.check_order import check_order
from orders.commands.close_order import close_order
from orders.commands.complete_order import confirm_receipt
from orders.commands.sign_shipment import sign_shipment
from orders.models import Anomaly
from payments.commands.save_account import save_account
from payments.models import ChannelAccount, ChannelNotify, Payment, RefundRequest
from payments.simulator.client import SimulatorClient
from payments.simulator.keys import alipay_certificate_settings
from tests.aftersales.backend import Backend
from tests.aftersales.build import MERCHANT
from tests.orders.factories import Shop, channel_state, coupon_state, drain, open_shop, order_of, payment_of
from tests.orders.test_chaos import send_refunds

BUYER = "2088102146225135"


@pytest.fixture
def alipay(transactional_db: None, now, simulator: SimulatorClient, keys: dict, live_server, settings) -> Shop:
    """A merchant with an Alipay account; callbacks come to this server."""
    settings.QUITS_BASE_URL = live_server.url
    return open_shop(now=now, keys=keys, simulator=simulator, channel="alipay")


def placed(shop: Shop, **values):
    ordered = shop.order(pay_method="alipay", **values)
    return ordered, shop.pay(ordered, payer_ref=BUYER)


def pay(shop: Shop, out_trade_no: str, **options) -> dict:
    return shop.simulator.pay(out_trade_no, channel="alipay", **options)["charge"]


def hear(shop: Shop, out_trade_no: str, count: int = 1) -> None:
    shop.simulator.wait_for_notify(out_trade_no=out_trade_no, count=count)
    drain()


def test_paid_by_callback_shipped_and_done(alipay: Shop) -> None:
    coupon_id = alipay.coupon()
    ordered, paying = placed(alipay, coupon_id=coupon_id)
    assert paying.client_params["tradeNO"]
    charge = pay(alipay, paying.out_trade_no)
    hear(alipay, paying.out_trade_no)
    order = order_of(ordered)
    assert (order.status, order.paid_channel, order.trade_no) == (10, "alipay", charge["trade_no"])
    assert (coupon_state(coupon_id), ChannelNotify.objects.get().verdict) == ("USED", "VERIFIED")
    assert alipay.ship(ordered).status == 20


@pytest.mark.parametrize("mode", ["public_key", "certificate"])
def test_the_whole_story_with_a_refund(alipay: Shop, keys: dict, mode: str) -> None:
    """From the quote to a refunded line, in both of Alipay's modes; the money here is the money there."""
    if mode == "certificate":
        account = ChannelAccount.objects.get(id=alipay.account_id)
        save_account(
            merchant_id=alipay.id,
            channel="alipay",
            mchid=account.mchid,
            app_id=account.app_id,
            settings={**account.settings, **alipay_certificate_settings(keys, 0)},
            now=alipay.now,
        )
        alipay.simulator.settings(notify_key="certificate")
    coupon_id = alipay.coupon()
    ordered, paying = placed(alipay, coupon_id=coupon_id)
    pay(alipay, paying.out_trade_no)
    hear(alipay, paying.out_trade_no)
    assert (order_of(ordered).status, coupon_state(coupon_id)) == (10, "USED")
    assert alipay.ship(ordered).status == 20
    sign_shipment(merchant_id=alipay.id, order_no=ordered.order_no, key=alipay.key(), now=alipay.now)

    backend = Backend(alipay.merchant)
    item = {"line_no": 2, "type": 1, "qty": 1, "reason_code": "quality"}
    applied = backend.post("/after-sales", {"user_id": "user-1", "order_no": ordered.order_no, "items": [item]})
    assert applied.status_code == 201, applied.content
    [claim] = applied.json()["after_sales"]
    approve_after_sales(
        merchant_id=alipay.id,
        after_sales_no=claim["after_sales_no"],
        expected_version=claim["version"],
        by=MERCHANT,
        key=alipay.key(),
        now=alipay.now,
    )
    drain()
    send_refunds()
    drain()
    payment = payment_of(ordered)
    there = alipay.simulator.get(f"orders/{payment.out_trade_no}")["refunds"]
    assert sum(row["amount_fen"] for row in there) == payment.refunded_fen > 0
    assert backend.get(f"/after-sales/{claim['after_sales_no']}").json()["status"] == "REFUND_SUCCESS"
    done = confirm_receipt(
        merchant_id=alipay.id, order_no=ordered.order_no, user_id="user-1", key=alipay.key(), now=alipay.now
    )
    assert done.status == 30


def test_the_same_callback_five_times_and_one_forged(alipay: Shop) -> None:
    ordered, paying = placed(alipay)
    pay(alipay, paying.out_trade_no)
    hear(alipay, paying.out_trade_no)
    deliveries = alipay.simulator.redeliver(out_trade_no=paying.out_trade_no, times=5, parallel=True)
    assert [each["status"] for each in deliveries] == [200] * 5
    [forged] = alipay.simulator.forge(paying.out_trade_no, amount_fen=1, channel="alipay")
    assert forged["status"] != 200
    drain()
    assert order_of(ordered).version == 2
    assert Payment.objects.filter(status="PAID").count() == 1
    assert ChannelNotify.objects.filter(verdict="FORGED").count() == 1


def test_paid_after_cancelling_goes_back(alipay: Shop) -> None:
    ordered, paying = placed(alipay)
    alipay.cancel(ordered)
    charge = pay(alipay, paying.out_trade_no, force=True)
    hear(alipay, paying.out_trade_no)
    refund = RefundRequest.objects.get()
    assert (order_of(ordered).status, refund.owner_no, refund.amount_fen) == (50, charge["trade_no"], 31000)
    assert Anomaly.objects.get().kind == "paid_on_cancelled"
    send_refunds()
    refund.refresh_from_db()
    assert refund.status == "SUCCEEDED"


def test_paid_after_the_timeout_reopens(alipay: Shop) -> None:
    ordered, paying = placed(alipay)
    close_order(order_id=ordered.order_id, reason="timeout", now=alipay.now)
    pay(alipay, paying.out_trade_no, force=True)
    hear(alipay, paying.out_trade_no)
    assert order_of(ordered).status == 10


def test_a_lost_callback_is_found_by_asking(alipay: Shop) -> None:
    ordered, paying = placed(alipay)
    pay(alipay, paying.out_trade_no, notify=False)
    assert check_order(order_id=ordered.order_id, now=alipay.now).outcome == "paid"


def test_closing_closes_there_too(alipay: Shop) -> None:
    ordered, _paying = placed(alipay)
    assert close_order(order_id=ordered.order_id, reason="timeout", now=alipay.now).ending == "ended"
    assert channel_state(alipay, payment_of(ordered).out_trade_no) == "CLOSED"


def test_another_amount_is_closed_and_sent_back(alipay: Shop) -> None:
    ordered, paying = placed(alipay)
    charge = pay(alipay, paying.out_trade_no, amount_fen=1234)
    hear(alipay, paying.out_trade_no)
    assert order_of(ordered).status == 40
    assert [(each.owner_no, each.amount_fen) for each in RefundRequest.objects.all()] == [(charge["trade_no"], 1234)]
