"""The repairs that rules name, each an ordinary command of another app. Imported when the app is ready."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from aftersales.commands.complete_rollbacks import complete_rollbacks
from coupons import leases
from coupons.commands.release_coupon import release_coupon
from coupons.commands.return_coupon import return_coupon
from coupons.models import RefundCoupon, UserCoupon
from kernel import inbox
from kernel.models import InboxMessage, OutboxEvent
from kernel.transactions import unit_of_work
from orders.commands._coordinate_coupon import redeem_for_order
from orders.commands.settle_charge import settle_charge
from orders.models import Order
from orders.tender import ask
from payments.commands.download_bill import download_bill
from payments.commands.query_refund import query_refund
from payments.commands.request_refund import request_refund
from payments.models import ChannelAccount, Payment, RefundAttempt, RefundRequest
from reconciliation.models import Finding
from reconciliation.repairs import key_of, register


def _merchant(finding: Finding) -> UUID:
    """Whose finding it is. Rules that name a repair always know."""
    assert finding.merchant_id is not None
    return finding.merchant_id


@register(name="query_refund", title=_("ask the channel about the refund and record its answer"))
def ask_about_refund(finding: Finding, now: datetime) -> dict[str, Any]:
    attempts = RefundAttempt.objects.filter(merchant_id=_merchant(finding))
    attempt = attempts.filter(number=finding.key).first() or (
        attempts.filter(request__owner_no=finding.key).order_by("-seq").first()
    )
    if attempt is None:
        return {"result": "no such refund"}
    asked = query_refund(attempt_id=attempt.pk, forced=True, now=now)
    return {"refund_no": asked.refund_no, "result": asked.result, "status": asked.status}


@register(name="redeliver_refund", title=_("hand the refund's event over again"))
def redeliver_refund(finding: Finding, now: datetime) -> dict[str, Any]:
    request = RefundRequest.objects.filter(merchant_id=_merchant(finding), refund_no=finding.key).first()
    return _redeliver("refund.succeeded", "refund_request_id", request.pk if request else None, now=now)


@register(name="redeliver_payment", title=_("hand the payment's event over again"))
def redeliver_payment(finding: Finding, now: datetime) -> dict[str, Any]:
    payment = Payment.objects.filter(merchant_id=_merchant(finding), trade_no=finding.key).first()
    return _redeliver("payment.succeeded", "payment_id", payment.pk if payment else None, now=now)


def _redeliver(name: str, member: str, value: UUID | None, *, now: datetime) -> dict[str, Any]:
    events = OutboxEvent.objects.filter(name=name, **{f"payload__{member}": str(value)}).order_by("id")
    for event in events:
        dead = InboxMessage.objects.filter(event_id=event.pk, state=InboxMessage.State.DEAD)
        for message in dead:
            inbox.revive(message.pk, now=now)
        inbox.deliver(event.pk, now=now)
    return {"events": len(events)}


@register(name="release_lease", title=_("release the lease of the coupon"))
def release_lease(finding: Finding, now: datetime) -> dict[str, Any]:
    coupon = UserCoupon.objects.get(pk=UUID(finding.ours["coupon_id"]))
    if coupon.lock_id is None or coupon.locked_order_no is None:
        return {"result": "not locked any more"}
    released = release_coupon(
        merchant_id=coupon.merchant_id,
        coupon_id=coupon.pk,
        order_no=coupon.locked_order_no,
        lock_token=leases.token_for(coupon.lock_id),
        expected_version=coupon.state_version,
        key=key_of(finding, coupon_id=coupon.pk),
        now=now,
        actor="reconciliation",
        reason=finding.rule,
    )
    return {"status": released.status, "version": released.state_version}


@register(name="carry_out_return", title=_("carry the return decision out"))
def carry_out_return(finding: Finding, now: datetime) -> dict[str, Any]:
    decision = RefundCoupon.objects.get(pk=UUID(finding.key))
    returned = return_coupon(
        merchant_id=decision.merchant_id,
        redemption_id=decision.redemption_id,
        decision_id=decision.pk,
        key=key_of(finding, decision_id=decision.pk),
        now=now,
        actor="reconciliation",
    )
    return {"status": returned.status, "version": returned.state_version}


@register(name="revive_message", title=_("give the message its tries back"))
def revive_message(finding: Finding, now: datetime) -> dict[str, Any]:
    consumer, _colon, event_id = finding.key.rpartition(":")
    message = InboxMessage.objects.filter(consumer=consumer, event_id=UUID(event_id)).first()
    revived = message is not None and inbox.revive(message.pk, now=now)
    if revived:
        inbox.deliver(UUID(event_id), now=now)
    return {"revived": bool(revived)}


@register(name="download_bill", title=_("download the bill again"))
def download_again(finding: Finding, now: datetime) -> dict[str, Any]:
    _shop, mchid, kind, _day = finding.key.split(":")
    assert finding.on_date is not None
    account = ChannelAccount.objects.get(merchant_id=_merchant(finding), channel=finding.theirs["channel"], mchid=mchid)
    bill = download_bill(account_id=account.pk, kind=kind, bill_on=finding.on_date, again=True, now=now)
    return {"state": bill.state, "rows": bill.row_count}


@register(name="redeem_for_order", title=_("redeem the coupon for this order, or decide what the order may keep"))
def redeem_late(finding: Finding, now: datetime) -> dict[str, Any]:
    with unit_of_work(now=now):
        order = Order.objects.select_for_update().get(merchant_id=_merchant(finding), order_no=finding.key)
        settled = redeem_for_order(order, payment_no=order.out_trade_no, now=now)
    return {"coupon_state": settled.coupon_state, "decision": settled.decision, "cause": settled.cause}


@register(name="query_payment", title=_("ask the channel about the payment and settle it"))
def ask_about_payment(finding: Finding, now: datetime) -> dict[str, Any]:
    payment = Payment.objects.exclude(kind=Payment.Kind.EXTRA).filter(
        merchant_id=_merchant(finding), out_trade_no=finding.theirs.get("payment", "")
    )
    return _settle(payment.select_related("account").first(), now=now)


@register(name="settle_payment", title=_("settle the order with this payment, or refund it"))
def settle_payment(finding: Finding, now: datetime) -> dict[str, Any]:
    payment = (
        Payment.objects.select_related("account")
        .filter(
            merchant_id=_merchant(finding),
            out_trade_no=finding.ours.get("payment", ""),
            trade_no=finding.ours.get("trade_no", ""),
        )
        .first()
    )
    if payment is None or payment.kind != Payment.Kind.EXTRA:
        return _settle(payment, now=now)
    requested = request_refund(
        merchant_id=payment.merchant_id,
        payment_id=payment.pk,
        owner_kind=RefundRequest.OwnerKind.ORDER_PAYMENT,
        owner_no=payment.trade_no,
        amount_fen=payment.amount_fen - payment.refund_committed_fen,
        reason=finding.rule,
        now=now,
    )
    return {"refund_no": requested.refund_no, "status": requested.status}


def _settle(payment: Payment | None, *, now: datetime) -> dict[str, Any]:
    if payment is None:
        return {"outcome": "no such payment"}
    settled = settle_charge(payment_id=payment.pk, heard=ask(payment, now=now), now=now)
    return {"order_no": settled.order_no, "outcome": settled.outcome}


@register(name="complete_rollbacks", title=_("ask for what is missing, and turn back what still waits"))
def complete(finding: Finding, now: datetime) -> dict[str, Any]:
    completed = complete_rollbacks(merchant_id=_merchant(finding), after_sales_no=finding.key, now=now)
    return {"asked": completed.asked, "done": completed.done}
