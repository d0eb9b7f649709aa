"""Settle a review: a person decides about a coupon, and the decision is carried out in the same breath."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from coupons.commands.decide_return import Decided, review_return
from coupons.commands.return_coupon import return_coupon
from coupons.commands.void_coupon import void_coupon
from coupons.models import ReturnDecision, UserCoupon
from kernel.idempotency import BusinessKey, business_key
from kernel.transactions import unit_of_work


@dataclass(frozen=True)
class Settled:
    """The decision, and the coupon after it."""

    decision_id: UUID
    coupon_id: UUID
    decision: str
    status: str
    state_version: int
    replayed: bool = False


def settle_review(
    *,
    merchant_id: UUID,
    decision_id: UUID,
    decision: str,
    reason: str,
    actor: str,
    key: BusinessKey,
    now: datetime,
) -> Settled:
    """Decide a REVIEW as RETURN, KEEP or VOID and move the coupon accordingly, all or nothing.

    Raises what `review_return`, `return_coupon` and `void_coupon` raise.
    """
    with unit_of_work(now=now):
        decided = review_return(
            merchant_id=merchant_id,
            decision_id=decision_id,
            decision=decision,
            reason=reason,
            actor=actor,
            key=key,
            now=now,
        )
        carry_out(merchant_id=merchant_id, decided=decided, reason=reason, actor=actor, now=now)
        coupon = UserCoupon.objects.get(pk=decided.coupon_id)
    return Settled(
        decided.decision_id,
        coupon.pk,
        decided.decision,
        coupon.status,
        coupon.state_version,
        replayed=decided.replayed,
    )


def carry_out(*, merchant_id: UUID, decided: Decided, reason: str, actor: str, now: datetime) -> None:
    """Do what a decision says; a decision that was carried out before stays as it is (its own key says so)."""
    key = business_key(merchant_id=merchant_id, key=f"decision:{decided.decision_id}", decision=decided.decision)
    if decided.decision == ReturnDecision.RETURN:
        return_coupon(
            merchant_id=merchant_id,
            redemption_id=decided.redemption_id,
            decision_id=decided.decision_id,
            key=key,
            now=now,
            actor=actor,
        )
    elif decided.decision == ReturnDecision.VOID:
        void_coupon(
            merchant_id=merchant_id,
            coupon_id=decided.coupon_id,
            expected_version=UserCoupon.objects.values_list("state_version", flat=True).get(pk=decided.coupon_id),
            reason=reason,
            decision_id=decided.decision_id,
            actor=actor,
            key=key,
            now=now,
        )
