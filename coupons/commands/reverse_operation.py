"""Reverse: undo the newest operation by appending its opposite. Nothing is deleted, nothing overwritten."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from coupons.commands.move import find_replay, move
from coupons.ledger import (
    AVAILABLE_OR_EXPIRED,
    END_REDEMPTION,
    NEXT_VERSION,
    VERSION_PROOF,
    operation,
)
from coupons.models import CouponCommand, CouponOperation, CouponRedemption, UserCoupon
from coupons.refusals import Attempt, CouponNotFound, CouponRefused, VersionConflict, read_coupon, refusal_of_version
from kernel import numbers
from kernel.errors import InvalidInput
from kernel.idempotency import BusinessKey
from kernel.statemachine import Edge, Emit, Insert, New, P, key_row
from kernel.transactions import unit_of_work

REVERSIBLE = (CouponCommand.REDEEM, CouponCommand.RETURN, CouponCommand.VOID, CouponCommand.REVERSE)


class NotReversible(CouponRefused):
    """Only a redeem, a return, a void, or a reverse of one of these can be undone."""

    code = "NOT_REVERSIBLE"
    message = _("This kind of operation cannot be undone.")


@dataclass(frozen=True)
class Reversed:
    """The coupon as it is after its newest operation was undone."""

    coupon_id: UUID
    operation_id: UUID
    original_id: UUID
    redemption_id: UUID | None
    status: str
    state_version: int
    replayed: bool = False


def _edge(source: str, target: Any, *extra: Any, redemption: Any) -> Edge:
    return Edge(
        UserCoupon,
        "reverse",
        source=source,
        guards=VERSION_PROOF,
        changes={"status": target, "state_version": NEXT_VERSION, "updated_at": P("now")},
        writes=[
            *extra,
            operation(
                CouponCommand.REVERSE,
                source=source,
                order_no=P("order_no"),
                redemption_id=redemption,
                original=P("original_id"),
                reason=P("reason"),
            ),
            key_row(
                coupon_id=New("id"),
                operation_id=P("operation_id"),
                original_id=P("original_id"),
                redemption_id=P("redemption_id"),
                status=New("status"),
                state_version=New("state_version"),
            ),
        ],
        emit=Emit(
            "coupon.reversed",
            subject=New("id"),
            payload={
                "coupon_id": New("id"),
                "order_no": P("order_no"),
                "original_id": P("original_id"),
                "status": New("status"),
                "state_version": New("state_version"),
            },
        ),
        returning=["status", "state_version"],
    )


_USE_AGAIN = Insert(
    CouponRedemption,
    {
        "id": P("redemption_id"),
        "merchant_id": New("merchant_id"),
        "coupon": New("id"),
        "order_no": P("order_no"),
        "payment_no": P("payment_no"),
        "lock_id": P("lock_id"),
        "redeemed_at": P("now"),
        "replaces": P("replaces_id"),
    },
)
_SAME = P("redemption_id")

REVERSE = {
    ("USED", "FREE"): _edge("USED", AVAILABLE_OR_EXPIRED, END_REDEMPTION, redemption=_SAME),
    ("AVAILABLE", "USED"): _edge("AVAILABLE", "USED", _USE_AGAIN, redemption=_SAME),
    ("EXPIRED", "USED"): _edge("EXPIRED", "USED", _USE_AGAIN, redemption=_SAME),
    ("VOID", "AVAILABLE"): _edge("VOID", "AVAILABLE", redemption=_SAME),
    ("VOID", "USED"): _edge("VOID", "USED", redemption=_SAME),
    ("AVAILABLE", "VOID"): _edge("AVAILABLE", "VOID", redemption=_SAME),
    ("USED", "VOID"): _edge("USED", "VOID", redemption=_SAME),
}
"""From the coupon's status to where the reverse takes it; FREE is AVAILABLE or EXPIRED, by the coupon's validity."""


def reverse_operation(
    *,
    merchant_id: UUID,
    operation_id: UUID,
    expected_version: int,
    reason: str,
    actor: str,
    key: BusinessKey,
    now: datetime,
) -> Reversed:
    """Undo the newest operation of a coupon; joins the caller's transaction, if any.

    A redeem goes to AVAILABLE or EXPIRED, never back to LOCKED, and ends its redemption; a return goes to USED with a
    new redemption that replaces the ended one; a void goes to what was before; a reverse is undone the same way.
    Raises NOT_FOUND, VERSION_CONFLICT (also: not the newest operation), NOT_REVERSIBLE, ILLEGAL_TRANSITION,
    IDEMPOTENCY_KEY_REUSED, each leaving evidence, and InvalidInput without a reason.
    """
    if not reason.strip():
        raise InvalidInput(reason="is needed")
    original = CouponOperation.objects.filter(pk=operation_id, merchant_id=merchant_id).first()
    coupon_id = original.coupon_id if original else None
    attempt = Attempt(
        CouponCommand.REVERSE, key, coupon_id, actor, original.order_no if original else "", expected_version
    )
    with unit_of_work(now=now):
        replay = find_replay(attempt, Reversed)
        if replay is not None:
            return replay
        if original is None:
            raise CouponNotFound(attempt)
        coupon = read_coupon(attempt)
        if original.command not in REVERSIBLE:
            raise NotReversible(attempt, coupon, operation=original.command)
        if original.to_version != coupon.state_version:
            raise VersionConflict(attempt, coupon, operation_version=original.to_version)
        edge, params = _plan(original)
        moved = move(
            edge=edge,
            merchant_id=merchant_id,
            attempt=attempt,
            params={**params, "original_id": original.pk, "reason": reason.strip()[:200]},
            result=Reversed,
            refusal=lambda found: refusal_of_version(attempt, found, sources=[original.to_status]),
            now=now,
        )
        if isinstance(moved, Reversed):
            return moved
        written = CouponOperation.objects.get(coupon_id=original.coupon_id, to_version=moved["state_version"])
    return Reversed(
        original.coupon_id,
        written.pk,
        original.pk,
        written.redemption_id,
        moved["status"],
        moved["state_version"],
    )


def _plan(original: CouponOperation) -> tuple[Edge, dict[str, Any]]:
    """The edge that undoes an operation, and the redemption it ends, replaces or leaves as it is."""
    source, target = original.to_status, original.from_status
    if source == "USED" and target != "VOID":
        return REVERSE["USED", "FREE"], {"redemption_id": original.redemption_id}
    if target == "USED" and source != "VOID":
        ended = CouponRedemption.objects.get(ended_by=original)
        return REVERSE[source, "USED"], {
            "redemption_id": numbers.uuid7(),
            "payment_no": ended.payment_no,
            "lock_id": ended.lock_id,
            "replaces_id": ended.pk,
        }
    return REVERSE[source, str(target)], {"redemption_id": original.redemption_id}
