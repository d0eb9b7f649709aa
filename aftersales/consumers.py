"""Events that move an after-sales order, and the rollbacks it asks for."""

from uuid import UUID

from aftersales.commands.confirm_supplement import confirm_supplement
from aftersales.commands.count_order_sales import count_order_sales
from aftersales.commands.record_refund_failed import record_refund_failed
from aftersales.commands.record_refund_succeeded import record_refund_succeeded
from aftersales.commands.refund_whole_order import refund_whole_order
from aftersales.commands.reward_order import reward_order
from aftersales.commands.run_rollback import run_rollback
from aftersales.commands.settle_supplement import settle_supplement
from aftersales.funding import claim_no
from kernel import inbox
from orders.commands.settle_notice import fact_of, payment_of
from payments.models import ChannelNotify, Payment

OWNER = "after_sales"


@inbox.consumer("refund.succeeded", name="aftersales.record_refund_succeeded")
def refund_succeeded(event: inbox.Event) -> None:
    if event.payload["owner_kind"] == OWNER:
        record_refund_succeeded(
            merchant_id=event.merchant_id,
            after_sales_no=claim_no(event.payload["owner_no"]),
            refund_no=event.payload["refund_no"],
            amount_fen=event.payload["amount_fen"],
            now=event.now,
        )


@inbox.consumer("refund.failed", name="aftersales.record_refund_failed")
def refund_failed(event: inbox.Event) -> None:
    if event.payload["owner_kind"] == OWNER:
        record_refund_failed(
            merchant_id=event.merchant_id,
            after_sales_no=claim_no(event.payload["owner_no"]),
            refund_no=event.payload["refund_no"],
            code=event.payload["code"],
            dead=bool(event.payload.get("dead")),
            now=event.now,
        )


@inbox.consumer("payment.notified", name="aftersales.settle_supplement", atomic=False)
def payment_notified(event: inbox.Event) -> None:
    """A verified callback about a supplement; every other payment is the orders' business."""
    notify = ChannelNotify.objects.get(id=UUID(event.payload["notify_id"]))
    payment = payment_of(notify)
    if payment is not None and payment.kind == Payment.Kind.SUPPLEMENT:
        settle_supplement(payment_id=payment.pk, fact=fact_of(notify), now=event.now)


@inbox.consumer("payment.succeeded", name="aftersales.confirm_supplement")
def payment_succeeded(event: inbox.Event) -> None:
    if event.payload["kind"] == Payment.Kind.SUPPLEMENT:
        confirm_supplement(payment_id=UUID(event.payload["payment_id"]), now=event.now)


@inbox.consumer("order.refund_required", name="aftersales.refund_whole_order")
def order_refund_required(event: inbox.Event) -> None:
    """Orders decided that the whole order goes back (a coupon it does not have, say)."""
    refund_whole_order(
        merchant_id=event.merchant_id,
        order_no=event.payload["order_no"],
        reason=event.payload["reason"],
        now=event.now,
    )


@inbox.consumer("order.paid", name="aftersales.count_order_sales")
def order_paid(event: inbox.Event) -> None:
    count_order_sales(merchant_id=event.merchant_id, order_no=event.payload["order_no"], now=event.now)


@inbox.consumer("order.completed", name="aftersales.reward_order")
def order_completed(event: inbox.Event) -> None:
    reward_order(merchant_id=event.merchant_id, order_no=event.payload["order_no"], now=event.now)


@inbox.consumer("rollback.requested", name="aftersales.run_rollback")
def rollback_requested(event: inbox.Event) -> None:
    run_rollback(
        merchant_id=event.merchant_id,
        after_sales_no=event.payload["after_sales_no"],
        system=event.payload["system"],
        now=event.now,
    )
