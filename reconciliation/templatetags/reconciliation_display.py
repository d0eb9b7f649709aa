"""How figures of a finding and a run are shown."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.translation import gettext_lazy as _

from kernel import money

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
}

CHANNELS = {
    "wechat": _("WeChat Pay"),
    "alipay": _("Alipay"),
    "balance": _("Balance"),
    "offline": _("Offline"),
    "zero": _("Nothing to pay"),
    "unknown": _("Unknown"),
}

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
    """An amount as money; everything else as it is stored."""
    if name.endswith("_fen") and value.lstrip("-").isdigit():
        return money.display(int(value))
    return "–" if value == "null" else value


@register.filter
def channel_name(channel: str) -> Any:
    return CHANNELS.get(channel, channel)


@register.filter
def has_channel_side(row: dict[str, Any]) -> bool:
    return row["channel"] in ("wechat", "alipay", "unknown")


@register.filter
def comment_tone(kind: str) -> str:
    return TONES.get(kind, "neutral")
