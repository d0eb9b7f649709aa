"""What the pages of payments, refunds and notifies show besides the row itself. Reads only."""

from __future__ import annotations

import json
import re
from typing import Any

from django.urls import reverse

from payments.models import ChannelNotify, Payment, RefundAttempt, RefundFact, RefundRequest

PAYMENT_TONES = {
    "CREATED": "neutral",
    "PREPAYING": "info",
    "AWAITING": "info",
    "PAID": "success",
    "CLOSED": "neutral",
}
REQUEST_TONES = {"PENDING": "info", "SUCCEEDED": "success", "FAILED": "danger", "ABANDONED": "neutral"}
ATTEMPT_TONES = {
    "CREATED": "neutral",
    "SENT": "warning",
    "PROCESSING": "info",
    "SUCCESS": "success",
    "CLOSED": "danger",
    "ABNORMAL": "danger",
    "REFUSED": "danger",
}
VERDICT_TONES = {"VERIFIED": "success", "FORGED": "danger", "STALE": "warning", "MALFORMED": "warning"}
OUTCOME_TONES = {"moved": "success", "same": "neutral", "ignored": "neutral", "unknown": "warning", "anomaly": "danger"}

OF_PEOPLE = re.compile(
    r"(\b(?:buyer_(?:logon_id|open_id|user_id|id|name)|(?:s[pu]b?_)?openid|payer_ref|user_received_account)"
    r"(?:\"\s*:\s*\"|=))[^\"&\n]+"
)
"""What channels write about the person who pays, in JSON (`"name": "value"`) and in forms (`name=value&`)."""
MOST = 100
"""Rows of one kind on one page; a payment has at most 50 refund numbers, but a channel may repeat itself for ever."""


def payment_context(payment: Payment) -> dict[str, Any]:
    """Refunds and callbacks of one payment."""
    requests = RefundRequest.objects.filter(payment=payment).order_by("created_at")[:MOST]
    notifies = ChannelNotify.objects.filter(out_trade_no=payment.out_trade_no, merchant_id=payment.merchant_id)
    return {
        "payment": payment,
        "tone": PAYMENT_TONES.get(payment.status, "neutral"),
        "left_fen": payment.amount_fen - payment.refund_committed_fen,
        "refunds": [
            {
                "row": row,
                "tone": REQUEST_TONES.get(row.status, "neutral"),
                "url": reverse("admin:payments_refundrequest_change", args=[row.pk]),
            }
            for row in requests
        ],
        "notifies": notify_rows(notifies.order_by("-received_at")[:MOST]),
    }


def notify_rows(notifies: Any) -> list[dict[str, Any]]:
    """Callbacks as table rows."""
    return [
        {
            "row": row,
            "tone": VERDICT_TONES.get(row.verdict, "neutral"),
            "url": reverse("admin:payments_channelnotify_change", args=[row.pk]),
        }
        for row in notifies
    ]


def refund_context(request: RefundRequest) -> dict[str, Any]:
    """Every number of a refund with everything the channel ever said about it, oldest first."""
    facts: dict[Any, list[dict[str, Any]]] = {}
    for fact in RefundFact.objects.filter(attempt__request=request).order_by("id")[: 5 * MOST]:
        facts.setdefault(fact.attempt_id, []).append({"row": fact, "tone": OUTCOME_TONES.get(fact.outcome, "neutral")})
    rows = list(RefundAttempt.objects.filter(request=request).order_by("seq"))
    attempts = [
        {"row": row, "tone": ATTEMPT_TONES.get(row.status, "neutral"), "facts": facts.get(row.id, [])} for row in rows
    ]
    numbers = [row.number for row in rows]
    notifies = ChannelNotify.objects.filter(merchant_id=request.merchant_id, refund_no__in=numbers)
    return {
        "refund": request,
        "tone": REQUEST_TONES.get(request.status, "neutral"),
        "attempts": attempts,
        "payment_url": reverse("admin:payments_payment_change", args=[request.payment_id]),
        "notifies": notify_rows(notifies.order_by("-received_at")[:MOST]),
    }


def body_of(notify: ChannelNotify) -> str:
    """The body as text, whole."""
    return _pretty(bytes(notify.body).decode("utf-8", "replace"))


def without_people(text: str) -> str:
    """A callback's text with the buyer's ids and names at the channel covered, in JSON and in forms alike."""
    return OF_PEOPLE.sub(lambda found: found[1] + "••••", text)


def notify_context(notify: ChannelNotify, *, how: str) -> dict[str, Any]:
    """One callback as it came, readable. Who the payer is, only when `how` is "plain"."""
    text = body_of(notify)
    return {
        "notify": notify,
        "tone": VERDICT_TONES.get(notify.verdict, "neutral"),
        "headers": sorted(notify.headers.items()),
        "facts": [
            (name, "–" if value is None else "••••" if name == "payer_ref" and value and how != "plain" else value)
            for name, value in notify.facts.items()
        ],
        "body_text": text if how == "plain" else without_people(text),
        "covers": how == "masked" and without_people(text) != text,
        "kept_size": len(bytes(notify.body)),
    }


def _pretty(text: str) -> str:
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    except ValueError:
        return text
