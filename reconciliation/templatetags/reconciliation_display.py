"""How figures of a finding and a run are shown."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django import template
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_lazy as _

from aftersales.models import Status
from coupons.models import CouponStatus, ReturnDecision
from kernel import money
from orders.models import CouponState, Order
from payments.models import Payment, RefundAttempt, RefundRequest
from reconciliation.models import FindingComment
from reconciliation.repairs import repair_named

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
    "trade_bill_fen": _("In the trade bill"),
    "opening_fen": _("Balance in the morning"),
    "closing_fen": _("Balance in the evening"),
    "previous_bill": _("Bill before"),
    "previous_balance_fen": _("Balance at its end"),
    "breaks": _("Breaks"),
    "movement": _("Movement"),
    "number": _("Number at the channel"),
    "reference": _("Reference"),
    "account": _("Account"),
    "after_sales": _("After-sales no."),
    "attempt": _("Refund at the channel"),
    "because_of": _("Because of"),
    "committed_fen": _("Committed to refunds"),
    "refunded_fen": _("Refunded"),
    "created_at": _("Created at"),
    "day": _("Day"),
    "on_date": _("Day"),
    "decided_at": _("Decided at"),
    "decision": _("Decision"),
    "ended_at": _("Ended at"),
    "event_id": _("Event"),
    "finished_at": _("Finished at"),
    "first": _("First version"),
    "last": _("Last version"),
    "last_version": _("Last version"),
    "rows": _("Rows of the history"),
    "operations": _("Operations"),
    "operation": _("Operation"),
    "lease": _("Lease"),
    "lease_until": _("Lease until"),
    "fulfilment": _("Delivery"),
    "kind": _("Kind"),
    "missing": _("Missing"),
    "twice": _("Twice"),
    "pending": _("Waiting"),
    "order": _("Order"),
    "orders": _("Orders"),
    "paid_orders": _("Paid orders"),
    "payable_fen": _("To pay"),
    "payments": _("Payments"),
    "quote": _("Price quote"),
    "reason": _("Reason"),
    "redemptions_in_force": _("Redemptions in force"),
    "refunding_at": _("Refunding since"),
    "request": _("Refund"),
    "since": _("Since"),
    "subject": _("About"),
    "sku": _("SKU"),
    "user_id": _("User"),
    "beneficiary": _("Beneficiary"),
    "business_key": _("Booking"),
    "sum_fen": _("Sum"),
    "line_no": _("Line"),
    "matured_at": _("Matured at"),
    "held_at": _("Held at"),
    "balance": _("Balance"),
    "sellable": _("Sellable"),
    "reserved": _("Reserved"),
    "defect": _("Defective"),
    "pending_fen": _("Pending"),
    "withdrawable_fen": _("Withdrawable"),
    "frozen_fen": _("Frozen"),
    "withdrawn_fen": _("Withdrawn"),
    "withdrawable": _("Withdrawable"),
    "frozen": _("Frozen"),
    "withdrawn": _("Withdrawn"),
    "commissions_net": _("Worth of the commissions"),
    "sold_qty": _("Units sold"),
    "sold_fen": _("Sold for"),
    "returned_qty": _("Units returned"),
    "returned_fen": _("Returned for"),
}
"""What the figures of findings are called; `entries_…` is the other side of the same figure."""

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

MOVEMENTS = {
    "opening": _("Balance in the morning"),
    "payment": _("Payments"),
    "refund": _("Refunds"),
    "fee": _("Fees"),
    "transfer": _("Withdrawals and top-ups"),
    "other": _("Other movements"),
    "closing": _("Balance in the evening"),
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
def fen(value: int | str | None) -> str:
    """¥1,234.56, or a dash; a side without an amount comes as the empty text."""
    return money.display(value if isinstance(value, int) else None)


NUMBERS = {
    "refund_no", "owner_no", "after_sales_no", "order_no", "coupon_id", "payment", "trade_no", "locked_by", "subject",
}  # fmt: skip


@register.filter
def is_number_of_ours(name: str) -> bool:
    """Whether the search box finds something by this figure."""
    return name in NUMBERS


@register.filter
def figure_name(name: str) -> Any:
    return NAMES.get(name.removeprefix("entries_"), name)


@register.filter
def figure(value: str, name: str) -> Any:
    """An amount as money, a status by its name, an instant in the reader's zone, a list as words; else as it is."""
    if value in ("null", ""):
        return "–"
    if name.endswith("_fen") and value.lstrip("-").isdigit():
        return money.display(int(value))
    if (name.endswith(("_at", "_until")) or name == "since") and (moment := _moment(value)):
        return timezone.localtime(moment).strftime("%Y-%m-%d %H:%M:%S")
    if value.startswith("["):
        return ", ".join(each if isinstance(each, str) else json.dumps(each) for each in json.loads(value)) or "–"
    return WORDS.get(name, {}).get(value, value)


def _moment(value: str) -> datetime | None:
    moment = parse_datetime(value)
    return moment if moment and moment.tzinfo else None


@register.filter
def comment_text(comment: FindingComment) -> Any:
    """What was said; of a repair, what its command does."""
    repair = repair_named(comment.text) if comment.kind in ("repaired", "repair_requested") else None
    return repair.title if repair else comment.text


@register.filter
def channel_name(channel: str) -> Any:
    return CHANNELS.get(channel, channel)


@register.filter
def movement_name(kind: str) -> Any:
    return MOVEMENTS.get(kind, kind)


@register.filter
def has_channel_side(row: dict[str, Any]) -> bool:
    return row["channel"] in ("wechat", "alipay", "unknown")


@register.filter
def comment_tone(kind: str) -> str:
    return TONES.get(kind, "neutral")
