"""What the page of an anomaly shows: both sides' figures and the rest of the evidence, in words and units of people."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from coupons.models import CouponStatus
from kernel import money
from orders.matrix import Said
from orders.models import Anomaly, CouponState, Order
from orders.order_page import ANOMALY_TONES, COUPON_TONES, MOST, TONES, outcome_of
from orders.tender import Answer
from payments.gateway import PaymentState
from payments.models import ChannelAccount, ChannelNotify, Payment, RefundAttempt, RefundFact, RefundRequest
from payments.pages import notify_rows
from payments.words import CONTRADICTIONS, FAILURES, REFUND_STATES

NAMES: dict[str, Any] = {
    "said": _("The callback said"),
    "answer": _("The channel answered"),
    "event": _("Event"),
    "notify_id": _("Callback"),
    "notify_no": _("Notify number"),
    "state": _("State"),
    "status": _("Status"),
    "closed_reason": _("Closed because"),
    "payment_status": _("Status of the payment"),
    "trade_no": _("Trade number"),
    "out_trade_no": _("Payment number"),
    "payable_fen": _("Payable"),
    "amount_fen": _("Amount"),
    "total_fen": _("Total of the payment"),
    "payer_paid_fen": _("Paid by the payer after vouchers"),
    "theirs_fen": _("Amount at the channel"),
    "claimed_fen": _("Amount in the callback"),
    "not_reopened": _("Not reopened because"),
    "detail": _("Detail"),
    "error": _("Error"),
    "while": _("While"),
    "cause": _("Cause"),
    "coupon_id": _("Coupon"),
    "asked_by": _("Asked by"),
    "owner_kind": _("For"),
    "owner_no": _("Number"),
    "order_no": _("Order number"),
    "refund_no": _("Refund number"),
    "refund_request_id": _("Refund"),
    "kind": _("Difference"),
    "difference": _("Difference"),
    "channel": _("Channel"),
    "source": _("Source"),
    "code": _("Code"),
    "dead": _("Given up"),
    "paid_at": _("Paid at"),
    "version": _("Version"),
    "coupon_state": _("Coupon"),
    "lock_id": _("Lease"),
    "coupon_version": _("Version of the coupon"),
    "state_version": _("Version"),
    "locked_order_no": _("Held by the order"),
    "valid_until": _("Valid until"),
}
"""The members of an anomaly's evidence, in words for people; what is not named here is shown as it is."""

GROUPS: dict[str, Any] = {
    "order": _("The order at that moment"),
    "lease": _("The order's lease"),
    "coupon": _("The coupon at that moment"),
    "facts": _("What the callback says"),
}
"""Evidence with members of its own gets a table of its own."""

WORDS: dict[str, dict[Any, Any]] = {
    "closed_reason": dict(Order.ClosedReason.choices),
    "payment_status": dict(Payment.Status.choices),
    "coupon_state": dict(CouponState.choices),
    "channel": dict(ChannelAccount.Channel.choices),
    "owner_kind": dict(RefundRequest.OwnerKind.choices),
    "source": dict(RefundFact.Source.choices),
    "state": {
        PaymentState.SUCCESS: _("Paid"),
        PaymentState.REFUND: _("Paid, refunded in part or whole"),
        PaymentState.NOTPAY: _("Not paid"),
        PaymentState.USERPAYING: _("The buyer is paying"),
        PaymentState.PAYERROR: _("Payment failed"),
        PaymentState.CLOSED: _("Closed"),
        PaymentState.REVOKED: _("Revoked"),
        PaymentState.NOT_FOUND: _("Not known to the channel"),
    },
    "answer": {
        Answer.PAID_EQUAL: _("Paid, the same amount"),
        Answer.PAID_DIFFERENT: _("Paid, another amount"),
        Answer.REFUNDED: _("Paid and refunded"),
        Answer.UNPAID: _("Not paid"),
        Answer.OVER: _("Closed"),
        Answer.NOT_FOUND: _("Not known to the channel"),
        Answer.UNKNOWN: _("No usable answer"),
    },
    "said": {
        Said.PAID: _("Paid"),
        Said.WRONG_AMOUNT: _("Paid, another amount"),
        Said.OTHER_TRADE_NO: _("Paid under another trade number"),
        Said.UNPAID: _("Not paid"),
        Said.SENSELESS: _("Signed, but makes no sense"),
        Said.NOTHING: _("Nothing: we asked by ourselves"),
    },
    "kind": CONTRADICTIONS,
    "difference": CONTRADICTIONS,
    "code": FAILURES,
    "while": {"closing": _("Closing"), "superseding": _("Replacing an older order"), "fulfilment": _("Handing over")},
    "asked_by": {"a person": _("a person")},
}
"""Codes of the evidence that have words."""

STATUSES: tuple[dict[Any, Any], ...] = (
    dict(Order.Status.choices),
    dict(CouponStatus.choices),
    dict(RefundAttempt.Status.choices),
)
"""What a plain `status` may be: an order's, a coupon's or a refund's; their codes differ."""


def word_for(name: str, value: Any, *, of_refund: bool) -> Any:
    """One figure as people read it."""
    if value in (None, ""):
        return "–"
    if name.endswith("_fen") and isinstance(value, int):
        return money.display(value)
    if name in ("paid_at", "valid_until") and isinstance(value, str):
        return timezone.localtime(datetime.fromisoformat(value)).strftime("%Y-%m-%d %H:%M:%S")
    if name == "status":
        return next((words[value] for words in STATUSES if value in words), value)
    if isinstance(value, bool):
        return _("Yes") if value else _("No")
    if isinstance(value, list | tuple):
        return ", ".join(str(part) for part in value)
    words = REFUND_STATES if name == "state" and of_refund else WORDS.get(name, {})
    return words.get(value, value)


def readable(members: Mapping[str, Any], *, of_refund: bool = False) -> list[tuple[Any, Any]]:
    """Evidence as (name, value) for people; members of members stand behind their group's name."""
    shown: list[tuple[Any, Any]] = []
    for name, value in members.items():
        if isinstance(value, Mapping):
            shown.extend(
                (f"{GROUPS.get(name, name)}: {inner}", said) for inner, said in readable(value, of_refund=of_refund)
            )
        else:
            shown.append((NAMES.get(name, name), word_for(name, value, of_refund=of_refund)))
    return shown


def anomaly_context(anomaly: Anomaly) -> dict[str, Any]:
    """Both sides' evidence of an anomaly, the order as it stands now, and where all of it leads."""
    evidence = {name: value for name, value in anomaly.evidence.items() if value not in (None, "", {}, [])}
    ours, theirs = evidence.pop("ours", None), evidence.pop("theirs", None)
    groups = {name: evidence.pop(name) for name in list(evidence) if isinstance(evidence[name], Mapping)}
    notifies = ChannelNotify.objects.filter(merchant_id=anomaly.merchant_id, out_trade_no=anomaly.out_trade_no)
    order = anomaly.order
    of_refund = anomaly.kind in (Anomaly.Kind.REFUND_DRIFT, Anomaly.Kind.REFUND_FAILED)
    coupon_id, refund_id = evidence.get("coupon_id"), evidence.get("refund_request_id")
    return {
        "anomaly": anomaly,
        "tone": ANOMALY_TONES[anomaly.state],
        "outcome": outcome_of(anomaly),
        "ours": readable(ours or {}, of_refund=of_refund),
        "theirs": readable(theirs or {}, of_refund=of_refund),
        "facts": readable(evidence, of_refund=of_refund),
        "groups": [(GROUPS.get(name, name), readable(members)) for name, members in groups.items()],
        "order": order,
        "order_tone": TONES[Order.Status(order.status)] if order else "",
        "coupon_tone": COUPON_TONES.get(CouponState(order.coupon_state), "neutral") if order else "",
        "order_url": reverse("admin:orders_order_change", args=[order.pk]) if order else "",
        "coupon_url": reverse("admin:coupons_usercoupon_change", args=[coupon_id]) if coupon_id else "",
        "refund_url": reverse("admin:payments_refundrequest_change", args=[refund_id]) if refund_id else "",
        "notifies": notify_rows(notifies.order_by("-received_at")[:MOST]) if anomaly.out_trade_no else [],
    }
