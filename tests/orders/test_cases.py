"""Cases from public bug reports that concern orders, by their id in the list of cases. Those that are a command's
ordinary refusal or race stand with the command (C1 C6 C8 C10 C12 C14 C17 C21 C22 C26 C27 C34 C36). C23 is R1; C3, C24
and C28 stand with the races, the sweeps and the relay."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from coupons.commands.lock_coupon import LeaseTimeInvalid, lock_coupon
from coupons.models import CouponRedemption
from kernel import clock, inbox, numbers
from kernel.models import InboxMessage, OutboxEvent
from merchants.models import Merchant
from orders.commands.close_by_admin import close_by_admin
from orders.commands.close_order import close_order
from orders.commands.settle_notice import settle_notice
from orders.models import Anomaly, OrderStatusLog
from payments.models import ChannelNotify, Payment, RefundRequest
from tests.orders.factories import (
    CARD,
    AskedLine,
    Shop,
    commands_of,
    coupon_state,
    drain,
    events,
    order_of,
    payment_of,
    race,
    stock_of,
)
from tests.orders.test_callback_matrix import Cell, deliver_callback, money_out


def placed(shop: Shop, **values) -> Cell:
    ordered, _placed = shop.placed(**values)
    return Cell(shop, ordered, payment_of(ordered))


def pay(cell: Cell, **values) -> dict:
    return cell.shop.simulator.pay(cell.payment.out_trade_no, **{"notify": False, **values})["charge"]


def callback(cell: Cell, charge: dict, **values):
    asked = {"trade_no": charge["trade_no"], "amount_fen": charge["amount_fen"], **values}
    return deliver_callback(cell, **asked)


def stored_callback(shop: Shop, out_trade_no: str, *, received_at=None) -> ChannelNotify:
    """A verified callback as the endpoint leaves it: the row and its event."""
    from kernel import outbox

    with transaction.atomic():
        notify = ChannelNotify.objects.create(
            id=numbers.uuid7(),
            channel="wechat",
            kind="payment",
            merchant_id=shop.id,
            account_id=shop.account_id,
            verdict="VERIFIED",
            body=b"{}",
            body_size=2,
            event_type="TRANSACTION.SUCCESS",
            out_trade_no=out_trade_no,
            trade_no="4200007777",
            facts={
                "state": "SUCCESS",
                "out_trade_no": out_trade_no,
                "trade_no": "4200007777",
                "amount_fen": 31000,
                "paid_at": shop.now.isoformat(),
            },
            received_at=received_at or shop.now,
        )
        outbox.append(
            name="payment.notified",
            merchant_id=shop.id,
            subject=out_trade_no,
            payload={"notify_id": str(notify.id)},
            now=shop.now,
        )
    return notify


def test_c4_the_same_checkout_twice_gets_the_first_result(shop: Shop) -> None:
    coupon_id = shop.coupon()
    quoted = shop.quote(coupon_id=coupon_id)
    key = shop.key("checkout", body=1)
    results = race(*[lambda: shop.order(quote=quoted, key=key) for _ in range(3)])
    assert len({result.order_no for result in results}) == 1
    assert RefundRequest.objects.count() == 0


def test_c5_two_unpaid_orders_never_share_a_coupon(shop: Shop) -> None:
    coupon_id = shop.coupon()
    shop.order(coupon_id=coupon_id)
    with pytest.raises(Exception, match="ILLEGAL_TRANSITION"):
        shop.quote(coupon_id=coupon_id, address={"street": "2"})


def test_c9_the_channels_own_cancel_gives_everything_back(shop: Shop) -> None:
    coupon_id = shop.coupon()
    cell = placed(shop, coupon_id=coupon_id)
    shop.simulator.post("trade-state", out_trade_no=cell.payment.out_trade_no, state="CLOSED")
    settled = deliver_callback(cell, trade_no="", amount_fen=None, state="CLOSED")
    assert settled.outcome == "ended"
    assert (order_of(cell.ordered).status, coupon_state(coupon_id), stock_of(shop, "NUT")) == (
        40,
        "AVAILABLE",
        (10, 0),
    )


@pytest.mark.parametrize("seconds", [0, -1])
def test_c11_a_lease_of_no_length_is_refused(shop: Shop, seconds: int) -> None:
    with pytest.raises(LeaseTimeInvalid):
        lock_coupon(
            merchant_id=shop.id,
            coupon_id=shop.coupon(),
            user_id="user-1",
            order_no="X",
            lease_seconds=seconds,
            key=shop.key(),
            now=shop.now,
        )
    with pytest.raises(Exception, match="merchant_lease_is_30s_to_1h"), transaction.atomic():
        Merchant.objects.filter(pk=shop.id).update(lease_seconds=max(seconds, 0))


def test_c13_cancelled_then_paid_then_retried_is_one_refund(shop: Shop) -> None:
    cell = placed(shop)
    shop.cancel(cell.ordered)
    charge = pay(cell, force=True)
    for _ in range(3):
        callback(cell, charge)
    race(*[lambda: callback(cell, charge) for _ in range(3)])
    assert order_of(cell.ordered).status == 50
    assert money_out(cell) == [(charge["trade_no"], 31000)]
    assert commands_of(cell.ordered) == ["create", "cancel", "note_paid"]
    assert len(events("refund.requested")) == 1


def test_c15_only_columns_are_written_never_whole_rows() -> None:
    """Rows are made by create and moved by conditional updates; no `save()` writes an old row back."""
    from pathlib import Path

    for file in Path("orders/commands").glob("*.py"):
        assert ".save(" not in file.read_text(), file


def test_c16_an_old_attempts_failure_on_a_done_order_is_ignored(shop: Shop) -> None:
    cell = placed(shop)
    callback(cell, pay(cell))
    for state in ("PAYERROR", "CLOSED", "REVOKED", "NOTPAY"):
        deliver_callback(cell, trade_no="", amount_fen=None, state=state)
    assert order_of(cell.ordered).status == 10
    assert Anomaly.objects.count() == 0


def test_c18_a_callback_before_its_order_is_kept_tried_again_and_shown(shop: Shop) -> None:
    notify = stored_callback(shop, "Q00009999999999P1")
    drain()
    message = InboxMessage.objects.get(consumer="orders.settle_notice")
    assert (message.state, message.attempts) == ("FAILED", 1)
    assert "Later" in message.last_error
    late = settle_notice(notify_id=notify.id, now=shop.now + timedelta(minutes=6))
    assert late.again
    assert Anomaly.objects.get().kind == "order_disappeared"
    assert settle_notice(notify_id=notify.id, now=shop.now + timedelta(minutes=7)).again
    assert Anomaly.objects.get().seen == 2


def test_c18_the_order_that_commits_later_is_settled_by_the_retry(shop: Shop) -> None:
    ordered = shop.order()
    placed = shop.pay(ordered)
    Payment.objects.filter(out_trade_no=placed.out_trade_no).update(out_trade_no="hidden")
    stored_callback(shop, placed.out_trade_no)
    drain()
    assert order_of(ordered).status == 0
    Payment.objects.filter(out_trade_no="hidden").update(out_trade_no=placed.out_trade_no)
    inbox.retry_due(now=clock.now() + timedelta(minutes=1))
    assert order_of(ordered).status == 10


def test_c19_a_handler_that_fails_is_not_done(shop: Shop) -> None:
    cell = placed(shop)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE order_status_log ADD CONSTRAINT nothing_moves CHECK (command <> 'confirm_paid')")
    try:
        stored_callback(shop, cell.payment.out_trade_no)
        drain()
        assert order_of(cell.ordered).status == 0
        assert InboxMessage.objects.get(consumer="orders.settle_notice").state == "FAILED"
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE order_status_log DROP CONSTRAINT nothing_moves")
    inbox.retry_due(now=clock.now() + timedelta(minutes=1))
    assert order_of(cell.ordered).status == 10
    assert InboxMessage.objects.get(consumer="orders.settle_notice").state == "DONE"


def test_c20_c16_status_never_goes_back(shop: Shop) -> None:
    cell = placed(shop)
    charge = pay(cell)
    callback(cell, charge)
    shop.ship(cell.ordered)
    for _ in range(2):
        callback(cell, charge)
        close_order(order_id=cell.ordered.order_id, reason="timeout", now=shop.now + timedelta(hours=1))
        deliver_callback(cell, trade_no="", amount_fen=None, state="CLOSED")
    assert order_of(cell.ordered).status == 20
    assert commands_of(cell.ordered) == ["create", "confirm_paid", "deliver"]


def test_c25_every_move_has_its_event_in_its_transaction(shop: Shop) -> None:
    cell = placed(shop)
    callback(cell, pay(cell))
    shop.ship(cell.ordered)
    moves = OrderStatusLog.objects.filter(order_id=cell.ordered.order_id).count()
    said = OutboxEvent.objects.filter(
        subject=cell.ordered.order_no, name__in=["order.created", "order.paid", "order.delivered"]
    )
    assert said.count() == moves == 3


def test_c29_two_orders_of_one_user_time_out_at_once_and_both_give_back(shop: Shop) -> None:
    line = AskedLine(sku="TEA", title="茶", unit_price_fen=20000, qty=2)
    orders = [shop.order(line, address={"street": str(n)}) for n in range(4)]
    assert stock_of(shop, "TEA") == (2, 8)
    race(
        *[lambda order=order: close_order(order_id=order.order_id, reason="timeout", now=shop.now) for order in orders]
    )
    assert stock_of(shop, "TEA") == (10, 0)


@pytest.mark.parametrize("status", ["paid", "delivered"])
def test_c31_another_trade_number_is_a_second_charge_recorded_and_refunded(shop: Shop, status: str) -> None:
    cell = placed(shop, coupon_id=shop.coupon())
    callback(cell, pay(cell))
    if status == "delivered":
        shop.ship(cell.ordered)
    second = pay(cell, again=True)
    callback(cell, second)
    callback(cell, second)
    assert money_out(cell) == [(second["trade_no"], 26000)]
    extra = Payment.objects.get(kind="extra")
    assert (extra.trade_no, extra.amount_fen, extra.refund_committed_fen) == (second["trade_no"], 26000, 26000)
    assert Anomaly.objects.get().kind == "trade_no_mismatch"
    assert CouponRedemption.objects.count() == 1


def test_c31_a_second_charge_nobody_knows_of_is_asked_about_again(shop: Shop) -> None:
    cell = placed(shop)
    callback(cell, pay(cell))
    settled = deliver_callback(cell, trade_no="4200000000NOBODY", amount_fen=31000)
    assert settled.again
    assert money_out(cell) == []


def test_c32_a_closed_order_and_a_channel_that_does_not_answer_is_a_work_item(shop: Shop) -> None:
    cell = placed(shop)
    close_order(order_id=cell.ordered.order_id, reason="timeout", now=shop.now)
    pay(cell, force=True)
    shop.simulator.fault("wechat.query", "server_error", times=-1)
    stored_callback(shop, cell.payment.out_trade_no)
    drain()
    message = InboxMessage.objects.get(consumer="orders.settle_notice")
    assert message.state == "FAILED"
    queries = [c for c in shop.simulator.order(cell.payment.out_trade_no)["calls"] if c["operation"] == "wechat.query"]
    assert len([c for c in queries if c["status"] >= 500]) >= 3
    assert Anomaly.objects.get().kind == "gateway_query_failed"
    shop.simulator.clear_faults()
    inbox.retry_due(now=clock.now() + timedelta(minutes=1))
    assert order_of(cell.ordered).status == 10
    assert Anomaly.objects.get().state == "RESOLVED"


@pytest.mark.parametrize("reason", ["superseded", "manual"])
def test_c33_only_a_timeout_is_reopened(shop: Shop, reason: str) -> None:
    cell = placed(shop)
    if reason == "manual":
        close_by_admin(order_id=cell.ordered.order_id, username="cs", reason="fraud", now=shop.now)
    else:
        close_order(order_id=cell.ordered.order_id, reason="superseded", now=shop.now)
    charge = pay(cell, force=True)
    callback(cell, charge)
    assert (order_of(cell.ordered).status, order_of(cell.ordered).closed_reason) == (40, reason)
    assert money_out(cell) == [(charge["trade_no"], 31000)]
    assert "not_reopened" not in Anomaly.objects.get().evidence, "it is not even tried"


def test_c35_what_was_refunded_is_never_reopened(shop: Shop) -> None:
    coupon_id = shop.coupon()
    cell = placed(shop, coupon_id=coupon_id)
    close_order(order_id=cell.ordered.order_id, reason="timeout", now=shop.now)
    other = shop.order(coupon_id=coupon_id, address={"street": "2"})
    charge = pay(cell, force=True)
    callback(cell, charge)
    shop.cancel(other)
    assert coupon_state(coupon_id) == "AVAILABLE"
    callback(cell, charge)
    assert (order_of(cell.ordered).status, coupon_state(coupon_id)) == (40, "AVAILABLE")
    assert len(money_out(cell)) == 1


def test_c37_a_free_order_uses_its_coupon_and_no_channel(shop: Shop) -> None:
    from coupons.commands.create_template import create_template
    from coupons.commands.issue_coupon import issue_coupon

    create_template(
        merchant_id=shop.id,
        code="free",
        name="all off",
        policy_code="standard",
        kind="THRESHOLD",
        threshold_fen=0,
        off_fen=3000,
        valid_days=30,
        now=shop.now,
    )
    issued = issue_coupon(merchant_id=shop.id, user_id="user-1", template_code="free", key=shop.key(), now=shop.now)
    ordered = shop.order(CARD, coupon_id=issued.coupon_id)
    assert (ordered.status, ordered.coupon_state, coupon_state(issued.coupon_id)) == (10, "redeemed", "USED")
    assert shop.simulator.get("log")["calls"] == []
    drain()
    assert order_of(ordered).status == 20
