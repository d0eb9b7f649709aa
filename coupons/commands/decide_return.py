"""Decide what becomes of a coupon when money went back: apart from the refund, recorded with policy and reasons."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from coupons.models import Campaign, CouponRedemption, RefundCoupon, ReturnDecision, UserCoupon
from coupons.return_policy import ReturnFacts, Verdict, decide
from kernel import idempotency, outbox
from kernel.errors import InvalidInput, NotFound, Refusal, refuse_on_constraint
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work


class RedemptionEnded(Refusal):
    """The coupon is not used by this redemption any more: there is nothing to decide."""

    code: ClassVar[str] = "REDEMPTION_ENDED"
    message = _("This use of the coupon was undone before.")


class AlreadyReviewed(Refusal):
    """A decision that was not REVIEW, or one that somebody has decided already."""

    code: ClassVar[str] = "ALREADY_REVIEWED"
    message = _("This return decision is not waiting for anybody.")


class AlreadyReturned(Refusal):
    """Another decision to return the coupon for this use is recorded already, and one is enough."""

    code: ClassVar[str] = "ALREADY_RETURNED"
    message = _("It was decided before to return this coupon.")


refuse_on_constraint("redemption_is_returned_once", AlreadyReturned)
refuse_on_constraint("review_is_decided_once", AlreadyReviewed)


@dataclass(frozen=True)
class Decided:
    """A return decision. RETURN and VOID are carried out by `return_coupon` and `void_coupon`."""

    decision_id: UUID
    coupon_id: UUID
    redemption_id: UUID
    decision: str
    reasons: list[str]
    policy_code: str
    policy_version: int
    replayed: bool = False


def decide_return(
    *,
    merchant_id: UUID,
    redemption_id: UUID,
    order_wholly_refunded: bool,
    cause_no: str,
    key: BusinessKey,
    now: datetime,
    risk_flagged: bool = False,
    actor: str = "system",
) -> Decided:
    """Apply the policy version the coupon was issued with; one decision per redemption and cause.

    `cause_no` is the after-sales order (or refund) that asks. `order_wholly_refunded` counts over any number of
    partial refunds. The same cause asked again gets the first decision, `replayed`. Moves no coupon. Joins the
    caller's transaction, if any. Raises NotFound, RedemptionEnded, AlreadyReturned, IdempotencyKeyReused.
    """
    with unit_of_work(now=now):
        replay = idempotency.begin(key, Decided, now=now)
        if replay is not None:
            return replay
        redemption = _read(merchant_id, redemption_id)
        earlier = RefundCoupon.objects.filter(merchant_id=merchant_id, redemption=redemption, cause_no=cause_no).first()
        if earlier is not None:
            result = idempotency.as_replay(_result(earlier))
            idempotency.finish(key, result)
            return result
        if redemption.ended_by_id is not None:
            raise RedemptionEnded(redemption_id=str(redemption_id))
        facts = _facts(redemption.coupon, order_wholly_refunded, risk_flagged, now=now)
        result = _record(
            redemption, cause_no, facts, decide(redemption.coupon.policy_snapshot["rules"], facts), actor, now
        )
        idempotency.finish(key, result)
    return result


def review_return(
    *,
    merchant_id: UUID,
    decision_id: UUID,
    decision: str,
    reason: str,
    actor: str,
    key: BusinessKey,
    now: datetime,
) -> Decided:
    """A person settles a REVIEW as RETURN, KEEP or VOID, with a reason; the REVIEW row stays as it is.

    Raises NotFound, AlreadyReviewed, RedemptionEnded, InvalidInput, IdempotencyKeyReused.
    """
    if decision not in (ReturnDecision.RETURN, ReturnDecision.KEEP, ReturnDecision.VOID) or not reason.strip():
        raise InvalidInput(decision="RETURN, KEEP or VOID, with a reason")
    with unit_of_work(now=now):
        replay = idempotency.begin(key, Decided, now=now)
        if replay is not None:
            return replay
        review = RefundCoupon.objects.filter(pk=decision_id, merchant_id=merchant_id).first()
        if review is None:
            raise NotFound()
        if review.decision != ReturnDecision.REVIEW or review.reviews.exists():
            raise AlreadyReviewed(decision=review.decision)
        redemption = _read(merchant_id, review.redemption_id)
        if redemption.ended_by_id is not None:
            raise RedemptionEnded(redemption_id=str(redemption.pk))
        facts = ReturnFacts(**review.facts)
        verdict = Verdict(ReturnDecision(decision), ("REVIEWED", reason.strip()[:200]))
        result = _record(redemption, f"review:{review.pk}", facts, verdict, actor, now, review=review)
        idempotency.finish(key, result)
    return result


def _read(merchant_id: UUID, redemption_id: UUID) -> CouponRedemption:
    found = (
        CouponRedemption.objects.select_related("coupon__campaign", "coupon__policy")
        .filter(pk=redemption_id, merchant_id=merchant_id)
        .first()
    )
    if found is None:
        raise NotFound()
    return found


def _facts(coupon: UserCoupon, wholly: bool, risk_flagged: bool, *, now: datetime) -> ReturnFacts:
    campaign = coupon.campaign
    closed = campaign is not None and (
        campaign.state == Campaign.State.CLOSED or (campaign.ends_at is not None and campaign.ends_at <= now)
    )
    return ReturnFacts(
        order_wholly_refunded=wholly,
        expired=coupon.valid_until <= now,
        campaign_closed=closed,
        risk_flagged=risk_flagged,
    )


def _record(
    redemption: CouponRedemption,
    cause_no: str,
    facts: ReturnFacts,
    verdict: Verdict,
    actor: str,
    now: datetime,
    review: RefundCoupon | None = None,
) -> Decided:
    coupon = redemption.coupon
    if verdict.decision == ReturnDecision.RETURN:
        _require_first_return(redemption)
    row = RefundCoupon.objects.create(
        merchant_id=redemption.merchant_id,
        coupon=coupon,
        redemption=redemption,
        order_no=redemption.order_no,
        cause_no=cause_no,
        decision=verdict.decision,
        reasons=list(verdict.reasons),
        facts=facts.as_data(),
        policy=coupon.policy,
        review_of=review,
        decided_by=actor,
        decided_at=now,
    )
    outbox.append(
        name="coupon.return_decided",
        merchant_id=redemption.merchant_id,
        subject=str(coupon.pk),
        payload={
            "decision_id": str(row.pk),
            "coupon_id": str(coupon.pk),
            "order_no": redemption.order_no,
            "decision": row.decision,
        },
        now=now,
    )
    return _result(row)


def _require_first_return(redemption: CouponRedemption) -> None:
    """Say it before the database has to: inside a caller's transaction a violated constraint ends everything."""
    earlier = RefundCoupon.objects.filter(redemption=redemption, decision=ReturnDecision.RETURN).first()
    if earlier is not None:
        raise AlreadyReturned(decision_id=str(earlier.pk), cause_no=earlier.cause_no)


def _result(row: RefundCoupon) -> Decided:
    return Decided(
        row.pk,
        row.coupon_id,
        row.redemption_id,
        row.decision,
        list(row.reasons),
        row.policy.code,
        row.policy.version,
    )
