"""Reads: coupons, their timeline, and what a decision needs to know."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from coupons.facts import OrderMoment, order_facts
from coupons.models import (
    CouponCommand,
    CouponOperation,
    CouponRedemption,
    CouponRefusal,
    RefundCoupon,
    UserCoupon,
)

TIMELINE_REFUSALS = 200
"""Refused commands shown at most; the newest ones."""


def list_coupons(*, merchant_id: UUID, user_id: str = "", status: str = "") -> QuerySet[UserCoupon]:
    """A merchant's coupons, newest first, perhaps of one user or in one status."""
    coupons = UserCoupon.objects.filter(merchant_id=merchant_id).order_by("-id")
    if user_id:
        coupons = coupons.filter(user_id=user_id)
    return coupons.filter(status=status) if status else coupons


def get_coupon(*, merchant_id: UUID, coupon_id: UUID) -> UserCoupon | None:
    """One coupon inside its merchant."""
    return UserCoupon.objects.filter(pk=coupon_id, merchant_id=merchant_id).first()


def get_redemption(*, merchant_id: UUID, order_no: str) -> CouponRedemption | None:
    """The newest redemption of an order, in force or ended."""
    return (
        CouponRedemption.objects.filter(merchant_id=merchant_id, order_no=order_no)
        .order_by("-redeemed_at", "-id")
        .first()
    )


@dataclass(frozen=True)
class TimelineEntry:
    """One thing that happened to a coupon or around it.

    `kind`: operation, refusal, decision, gap, or what the order app calls its fact (order, payment, refund).
    `version`: the version an operation made, or the one a refused command met.
    """

    at: datetime | None
    kind: str
    title: str
    version: int | None = None
    status: str = ""
    order_no: str = ""
    actor: str = ""
    reference: str = ""
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Timeline:
    """A coupon with everything that happened to it, in order of version and time. `gaps`: missing versions."""

    coupon_id: UUID
    status: str
    state_version: int
    entries: list[TimelineEntry]
    gaps: list[int]


def get_timeline(coupon: UserCoupon) -> Timeline:
    """The coupon's story: ledger rows joined with its orders' facts, decisions, refused commands and gaps.

    A constant number of queries, whatever the length.
    """
    operations = list(CouponOperation.objects.filter(coupon=coupon).order_by("to_version"))
    order_nos = sorted({row.order_no for row in operations if row.order_no})
    gaps = sorted(set(range(1, coupon.state_version + 1)) - {row.to_version for row in operations})
    entries = [
        *map(_of_operation, operations),
        *[TimelineEntry(None, "gap", "GAP", version=version) for version in gaps],
        *[_of_decision(row) for row in RefundCoupon.objects.filter(coupon=coupon).select_related("policy")],
        *[_of_refusal(row) for row in _refusals(coupon)],
        *[_of_moment(row) for row in order_facts().moments(merchant_id=coupon.merchant_id, order_nos=order_nos)],
    ]
    return Timeline(coupon.pk, coupon.status, coupon.state_version, _in_order(entries), gaps)


def _refusals(coupon: UserCoupon) -> list[CouponRefusal]:
    newest = CouponRefusal.objects.filter(coupon_id=coupon.pk, merchant_id=coupon.merchant_id).order_by("-at", "-id")
    return list(newest[:TIMELINE_REFUSALS])


def _in_order(entries: list[TimelineEntry]) -> list[TimelineEntry]:
    """Operations and gaps by version; what has only a time stands after the last operation before it."""
    spine = sorted(
        (entry for entry in entries if entry.kind in ("operation", "gap")), key=lambda each: each.version or 0
    )
    beside = sorted(
        (entry for entry in entries if entry.kind not in ("operation", "gap")),
        key=lambda each: (each.at is None, each.at, each.kind),
    )
    ordered: list[TimelineEntry] = []
    for entry in spine:
        while beside and entry.at is not None and beside[0].at is not None and beside[0].at < entry.at:
            ordered.append(beside.pop(0))
        ordered.append(entry)
    return ordered + beside


def _of_operation(row: CouponOperation) -> TimelineEntry:
    detail: dict[str, Any] = {"from_version": row.from_version, "from_status": row.from_status}
    if row.lease_expires_at is not None:
        detail["lease_expires_at"] = row.lease_expires_at.isoformat()
    if row.redemption_id is not None:
        detail["redemption_id"] = str(row.redemption_id)
    if row.original_id is not None:
        detail["original_id"] = str(row.original_id)
    if row.reason:
        detail["reason"] = row.reason
    return TimelineEntry(
        row.at,
        "operation",
        CouponCommand(row.command).value,
        version=row.to_version,
        status=row.to_status,
        order_no=row.order_no,
        actor=row.actor,
        reference=str(row.pk),
        detail=detail,
    )


def _of_refusal(row: CouponRefusal) -> TimelineEntry:
    return TimelineEntry(
        row.at,
        "refusal",
        row.command,
        version=row.actual_version,
        status=row.actual_status,
        order_no=row.order_no,
        actor=row.actor,
        reference=str(row.pk),
        detail={
            "code": row.code,
            "expected_version": row.expected_version,
            "token_matched": row.token_matched,
            "business_key": row.business_key,
        },
    )


def _of_decision(row: RefundCoupon) -> TimelineEntry:
    return TimelineEntry(
        row.decided_at,
        "decision",
        row.decision,
        order_no=row.order_no,
        actor=row.decided_by,
        reference=str(row.pk),
        detail={
            "reasons": row.reasons,
            "cause_no": row.cause_no,
            "redemption_id": str(row.redemption_id),
            "policy": row.policy.code,
            "policy_version": row.policy.version,
        },
    )


def _of_moment(row: OrderMoment) -> TimelineEntry:
    detail = {} if row.amount_fen is None else {"amount_fen": row.amount_fen}
    return TimelineEntry(row.at, row.kind, row.title, order_no=row.order_no, reference=row.reference, detail=detail)
