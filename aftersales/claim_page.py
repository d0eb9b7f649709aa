"""What the audit page shows of one claim: read once, in a constant number of queries."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Q, Sum
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from aftersales.amounts import goods_entitlement
from aftersales.drafts import frozen_line
from aftersales.funding import refund_requests_of
from aftersales.models import FINAL, AfterSalesOrder, GoodsState, Hold, Liability, Rollback, Status, System, Type
from aftersales.reasons import freight_is_refundable, reason_label
from kernel import money
from kernel.models import InboxMessage
from payments.models import Payment, RefundAttempt

TONES = {
    Status.WAIT_AUDIT: "warning",
    Status.WAIT_BUYER_RETURN: "info",
    Status.WAIT_MERCHANT_RECEIVE: "warning",
    Status.WAIT_BUYER_PAY: "info",
    Status.WAIT_MERCHANT_SHIP: "warning",
    Status.WAIT_BUYER_CONFIRM: "info",
    Status.REFUNDING: "primary",
    Status.REFUND_FAILED: "danger",
    Status.REFUND_SUCCESS: "success",
    Status.COMPLETED: "success",
    Status.REJECTED: "neutral",
    Status.CANCELED: "neutral",
}
ATTEMPT_TONES = {"SUCCESS": "success", "CLOSED": "danger", "REFUSED": "danger", "ABNORMAL": "danger"}
PATHS = {
    Type.REFUND_ONLY: (Status.WAIT_AUDIT, Status.REFUNDING, Status.REFUND_SUCCESS),
    Type.RETURN: (
        Status.WAIT_AUDIT,
        Status.WAIT_BUYER_RETURN,
        Status.WAIT_MERCHANT_RECEIVE,
        Status.REFUNDING,
        Status.REFUND_SUCCESS,
    ),
    Type.EXCHANGE: (
        Status.WAIT_AUDIT,
        Status.WAIT_BUYER_RETURN,
        Status.WAIT_MERCHANT_RECEIVE,
        Status.WAIT_MERCHANT_SHIP,
        Status.WAIT_BUYER_CONFIRM,
        Status.COMPLETED,
    ),
    Type.RESHIP: (Status.WAIT_AUDIT, Status.WAIT_MERCHANT_SHIP, Status.WAIT_BUYER_CONFIRM, Status.COMPLETED),
    Type.PRICE_PROTECTION: (Status.WAIT_AUDIT, Status.REFUNDING, Status.REFUND_SUCCESS),
}
"""The way each type usually goes, drawn as steps."""

TABS: dict[str, tuple[Any, Q]] = {
    "audit": (gettext_lazy("To audit"), Q(status=Status.WAIT_AUDIT)),
    "receive": (gettext_lazy("To inspect"), Q(status=Status.WAIT_MERCHANT_RECEIVE)),
    "ship": (gettext_lazy("To ship"), Q(status=Status.WAIT_MERCHANT_SHIP)),
    "buyer": (
        gettext_lazy("With the buyer"),
        Q(status__in=[Status.WAIT_BUYER_RETURN, Status.WAIT_BUYER_PAY, Status.WAIT_BUYER_CONFIRM]),
    ),
    "refunding": (gettext_lazy("Refunding"), Q(status=Status.REFUNDING)),
    "failed": (gettext_lazy("Refund failed"), Q(status=Status.REFUND_FAILED)),
    "done": (gettext_lazy("Ended"), Q(status__in=Status.final())),
}
"""The queue's tabs: what has to be done by whom."""

HISTORY = timedelta(days=90)


@dataclass(frozen=True)
class Step:
    label: str
    state: str
    at: datetime | None


def steps_of(claim: AfterSalesOrder, log: list[Any]) -> list[Step]:
    """The usual way of the type with where the claim is; an end beside the way stands last."""
    reached = {row.to_status: row.created_at for row in log}
    way = list(PATHS[Type(claim.type)])
    if claim.status in (Status.REJECTED, Status.CANCELED):
        way = [status for status in way if status in reached] + [Status(claim.status)]
    elif claim.status not in way:
        at = way.index(Status.REFUNDING) if Status.REFUNDING in way else len(way) - 1
        way.insert(at + 1, Status(claim.status))
    here = way.index(Status(claim.status))
    ended = claim.status in FINAL
    return [
        Step(
            str(status.label),
            "done" if index < here or (index == here and ended) else "here" if index == here else "ahead",
            reached.get(status),
        )
        for index, status in enumerate(way)
    ]


def context_of(claim: AfterSalesOrder, *, now: datetime) -> dict[str, Any]:
    """Everything the template needs."""
    log = list(claim.log.order_by("to_version"))
    requests = refund_requests_of(claim)
    units = list(claim.units.order_by("ordinal"))
    lines = list(claim.order.lines.order_by("line_no"))
    return {
        "claim": claim,
        "tone": TONES[Status(claim.status)],
        "reason": reason_label(claim.reason_code),
        "steps": steps_of(claim, log),
        "log": log,
        "units": units,
        "if_liable": _if_liable(claim),
        "deductions": _deductions(claim),
        "lines": lines,
        "payment": Payment.objects.filter(merchant_id=claim.merchant_id, order_no=claim.order_no)
        .exclude(kind="supplement")
        .order_by("-paid_at")
        .first(),
        "requests": list(requests),
        "attempts": [
            {"row": attempt, "tone": ATTEMPT_TONES.get(attempt.status, "info")}
            for attempt in RefundAttempt.objects.filter(request__in=requests).order_by("number")
        ],
        "rollbacks": rollbacks_of(claim),
        "shipments": list(claim.shipments.order_by("entered_at")),
        "inspection": getattr(claim, "inspection", None),
        "images": list(claim.evidence.order_by("created_at")),
        "cases": list(claim.arbitrations.order_by("opened_at")),
        "exchange": getattr(claim, "exchange", None),
        "risk": getattr(claim, "risk_review", None),
        "linked": list(claim.linked.order_by("created_at")),
        "sisters": list(
            AfterSalesOrder.objects.filter(order_id=claim.order_id).exclude(pk=claim.pk).order_by("-created_at")[:10]
        ),
        "history": _history(claim, now=now),
        "left": time_left(claim.due_at, now=now),
    }


def _deductions(claim: AfterSalesOrder) -> list[tuple[str, int]]:
    """From the list price down to what was paid: every share the order froze, in fen, none left out."""
    line = claim.line
    return [
        (_("List price × %(qty)s") % {"qty": line.qty}, line.unit_price_fen * line.qty),
        (_("Line discount"), -line.line_discount_fen),
        (_("Coupon share"), -line.coupon_share_fen),
        (_("Subsidy share"), -line.subsidy_share_fen),
        (_("Points share"), -line.points_share_fen),
    ]


def _if_liable(claim: AfterSalesOrder) -> dict[str, int]:
    """What the claim pays at either side's fault; the merchant sees the difference before deciding."""
    full = goods_entitlement(
        line=frozen_line(claim.line, claim.algorithm),
        ordinals=list(claim.units.values_list("ordinal", flat=True)),
        freight_refundable=claim.hold == Hold.CONSUMES,
    )
    unshipped = claim.goods_state == GoodsState.UNSHIPPED
    return {
        str(liability): claim.applied_goods_fen
        + (full.freight_fen if freight_is_refundable(unshipped=unshipped, liability=liability) else 0)
        for liability in Liability
    }


def rollbacks_of(claim: AfterSalesOrder) -> list[dict[str, Any]]:
    """The five rollbacks with what their messages say: waiting, being tried again, or dead."""
    rows = {row.system: row for row in claim.rollbacks.all()}
    messages = {
        message.event_id: message
        for message in InboxMessage.objects.filter(event_id__in=[row.event_id for row in rows.values()])
    }
    shown = []
    for row in rows.values():
        message = messages.get(row.event_id)
        state = "done" if row.state == Rollback.State.DONE else "waiting"
        if state == "waiting" and message is not None:
            state = "dead" if message.state == InboxMessage.State.DEAD else "retrying"
        shown.append({"row": row, "state": state, "message": message, "outcome": _outcome(row.result)})
    return sorted(shown, key=lambda item: System.values.index(item["row"].system))


def _outcome(result: dict[str, Any]) -> str:
    texts = {
        "nothing_to_do": _("Nothing to do"),
        "released": _("%(sellable)s back on sale"),
        "restocked": _("%(sellable)s sellable, %(defect)s defective"),
        "points": _("%(back)s points back, %(taken)s taken"),
        "commission": _("Commission down by %(reversed)s"),
        "sales": _("%(qty)s units, %(amount)s"),
        "revoked": _("%(qty)s units taken back"),
        "return": _("Returned to the buyer"),
        "keep": _("Stays used"),
        "void": _("Voided"),
        "review": _("Waits for a person"),
    }
    text = texts.get(result.get("outcome", ""))
    figures = {
        **result,
        "amount": money.display(result.get("amount_fen")),
        "reversed": money.display(result.get("reversed_fen")),
    }
    return text % figures if text else ""


def _history(claim: AfterSalesOrder, *, now: datetime) -> dict[str, Any]:
    """What the same buyer applied for lately."""
    mine = AfterSalesOrder.objects.filter(
        merchant_id=claim.merchant_id, user_id=claim.user_id, created_at__gte=now - HISTORY
    )
    return mine.aggregate(count=Count("id"), approved_fen=Sum("approved_goods_fen") + Sum("approved_freight_fen"))


def time_left(due_at: datetime | None, *, now: datetime) -> dict[str, str] | None:
    """A deadline as people read it: how long there is, and how worrying that is."""
    if due_at is None:
        return None
    seconds = int((due_at - now).total_seconds())
    if seconds <= 0:
        return {"text": _("overdue"), "tone": "danger"}
    tone = "danger" if seconds < 6 * 3600 else "warning" if seconds < 24 * 3600 else "neutral"
    if seconds >= 2 * 86400:
        return {"text": _("%(days)s days") % {"days": seconds // 86400}, "tone": tone}
    hours, minutes = seconds // 3600, seconds % 3600 // 60
    if hours:
        return {"text": _("%(hours)s h %(minutes)s min") % {"hours": hours, "minutes": minutes}, "tone": tone}
    return {"text": _("%(minutes)s min") % {"minutes": minutes}, "tone": tone}
