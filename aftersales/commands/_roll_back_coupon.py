"""The coupon after a refund: a decision of its own, made after the money, carried out when it says RETURN."""

from datetime import datetime
from typing import Any

from aftersales.drafts import is_wholly_refunded
from aftersales.models import AfterSalesOrder
from coupons.commands.decide_return import decide_return
from coupons.commands.return_coupon import return_coupon
from coupons.commands.void_coupon import void_coupon
from coupons.models import CouponRedemption, ReturnDecision, UserCoupon
from kernel.idempotency import business_key
from orders.models import Order


def roll_back_coupon(claim: AfterSalesOrder, now: datetime) -> dict[str, Any]:
    """Decide by the quantities refunded so far, over any number of claims; joins run_rollback's transaction.

    The order's row is locked, so of two claims that end at once the later one sees the whole.
    """
    order = Order.objects.select_for_update().get(pk=claim.order_id)
    redemption = CouponRedemption.objects.filter(
        merchant_id=claim.merchant_id, order_no=claim.order_no, ended_by=None
    ).first()
    if redemption is None:
        return {"outcome": "nothing_to_do"}
    decided = decide_return(
        merchant_id=claim.merchant_id,
        redemption_id=redemption.pk,
        order_wholly_refunded=is_wholly_refunded(list(order.lines.all())),
        cause_no=claim.after_sales_no,
        risk_flagged=claim.held_for_review,
        key=business_key(merchant_id=claim.merchant_id, key=f"{claim.after_sales_no}:coupon:decide"),
        now=now,
    )
    outcome = {"outcome": decided.decision.lower(), "reasons": decided.reasons, "coupon_id": str(decided.coupon_id)}
    key = business_key(merchant_id=claim.merchant_id, key=f"{claim.after_sales_no}:coupon:move")
    if decided.decision == ReturnDecision.RETURN:
        returned = return_coupon(
            merchant_id=claim.merchant_id,
            redemption_id=redemption.pk,
            decision_id=decided.decision_id,
            key=key,
            now=now,
        )
        outcome["coupon_status"] = returned.status
    elif decided.decision == ReturnDecision.VOID:
        voided = void_coupon(
            merchant_id=claim.merchant_id,
            coupon_id=decided.coupon_id,
            expected_version=UserCoupon.objects.get(pk=decided.coupon_id).state_version,
            reason="return policy",
            decision_id=decided.decision_id,
            actor="system",
            key=key,
            now=now,
        )
        outcome["coupon_status"] = voided.status
    return outcome
