"""How figures of a finding and a run are shown."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import template
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from aftersales.models import Status
from coupons.models import CouponStatus, ReturnDecision
from kernel import money
from orders.models import CouponState, Order
from payments.models import Payment, RefundAttempt, RefundRequest

register = template.Library()

NAMES = {
    "refund_no": _("Refund number"),
    "status": _("Status"),
    "state": _("State"),
    "amount_fen": _("Amount"),
    "succeeded_at": _("Refunded at"),
    "after_sales_no": _("After-sales no."),
    "owner_no": _("For"),
    "claim_status": _("After-sales status"),
    "claim_fen": _("Approved amount"),
    "booked_fen": _("Booked amount"),
    "bookings": _("Bookings"),
    "successes": _("Successful numbers"),
    "channel": _("Channel"),
    "refund_id": _("Number at the channel"),
    "bill_on": _("In the bill of"),
    "lines": _("Lines in the bill"),
    "coupon_id": _("Coupon"),
    "version": _("Version"),
    "locked_by": _("Locked by"),
    "order_no": _("Order no."),
    "order_status": _("Order status"),
    "coupon_state": _("Coupon of the order"),
    "paid_at": _("Paid at"),
    "payment": _("Payment number"),
    "trade_no": _("Trade number"),
    "error": _("Error"),
    "last_error": _("Last error"),
    "event": _("Event"),
    "consumer": _("Consumer"),
    "subject": _("About"),
    "reason": _("Reason"),
    "account": _("Account"),
    "after_sales": _("After-sales no."),
    "because_of": _("Because of"),
    "committed_fen": _("Committed to refunds"),
    "created_at": _("Created"),
    "decided_at": _("Decided at"),
    "decision": _("Decision"),
    "ended_at": _("Ended"),
    "finished_at": _("Finished"),
    "fulfilment": _("Fulfilment"),
    "lease": _("Lease"),
    "lease_until": _("Lease until"),
    "last_version": _("Newest version"),
    "operations": _("Operations"),
    "order": _("Order no."),
    "orders": _("Orders"),
    "paid_orders": _("Paid orders"),
    "payable_fen": _("Payable"),
    "payments": _("Payments"),
    "pending": _("Pending"),
    "quote": _("Quote"),
    "redemptions_in_force": _("Redemptions in force"),
    "refunded_fen": _("Refunded"),
    "refunding_at": _("Refunding since"),
    "rows": _("Rows"),
    "since": _("Since"),
    "missing": _("Missing"),
    "day": _("Day"),
    "kind": _("Kind"),
}

CHANNELS = {
    "wechat": _("WeChat Pay"),
    "alipay": _("Alipay"),
    "balance": _("Balance"),
    "offline": _("Offline"),
    "zero": _("Nothing to pay"),
    "unknown": _("Unknown"),
}

STATUSES: dict[str, Any] = {
    **{str(value): label for value, label in Order.Status.choices},
    **dict(CouponStatus.choices),
    **dict(Payment.Status.choices),
    **dict(RefundAttempt.Status.choices),
    **dict(RefundRequest.Status.choices),
    **dict(Status.choices),
}
"""A plain status is an order's, a coupon's, a payment's, a refund's or a claim's. Of one code's two words the later
one stands here."""

WORDS: dict[str, dict[str, Any]] = {
    "status": STATUSES,
    "state": STATUSES,
    "claim_status": STATUSES,
    "order_status": STATUSES,
    "coupon_state": dict(CouponState.choices),
    "fulfilment": dict(Order.Fulfilment.choices),
    "decision": dict(ReturnDecision.choices),
    "channel": CHANNELS,
}
"""Codes of the figures that have words."""

TONES = {
    "assigned": "info",
    "repair_requested": "warning",
    "repair_refused": "warning",
    "repaired": "info",
    "accepted": "neutral",
    "resolved": "success",
    "reopened": "danger",
    "comment": "neutral",
}


@register.filter
def fen(value: int | None) -> str:
    """¥1,234.56, or a dash."""
    return money.display(value)


NUMBERS = {
    "refund_no", "owner_no", "after_sales_no", "order_no", "coupon_id", "payment", "trade_no", "locked_by", "subject",
}  # fmt: skip


@register.filter
def is_number_of_ours(name: str) -> bool:
    """Whether the search box finds something by this figure."""
    return name in NUMBERS


@register.filter
def figure_name(name: str) -> Any:
    return NAMES.get(name, name)


@register.filter
def figure(value: str, name: str) -> str:
    """An amount as money, a status by its name, an instant in the reader's zone; everything else as it is stored."""
    if value in ("null", ""):
        return "–"
    if name.endswith("_fen") and value.lstrip("-").isdigit():
        return money.display(int(value))
    if name.endswith("_at") or name in ("since", "lease_until"):
        return _moment(value)
    return str(WORDS.get(name, {}).get(value, value))


def _moment(value: str) -> str:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return value
    return timezone.localtime(moment).strftime("%Y-%m-%d %H:%M:%S") if moment.tzinfo else value


@register.filter
def channel_name(channel: str) -> Any:
    return CHANNELS.get(channel, channel)


@register.filter
def has_channel_side(row: dict[str, Any]) -> bool:
    return row["channel"] in ("wechat", "alipay", "unknown")


@register.filter
def comment_tone(kind: str) -> str:
    return TONES.get(kind, "neutral")
