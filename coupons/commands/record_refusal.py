"""The evidence of a refused command, written after its rollback."""

from datetime import datetime
from uuid import UUID

from coupons.models import CouponRefusal, UserCoupon


def record_refusal(
    *,
    merchant_id: UUID,
    coupon_id: UUID | None,
    command: str,
    code: str,
    business_key: str,
    request_hash: str,
    order_no: str,
    expected_version: int | None,
    coupon: UserCoupon | None,
    token_matched: bool | None,
    actor: str,
    now: datetime,
) -> None:
    """One row: what was asked, by whom, and what it met. Never a token. Joins the caller's transaction."""
    CouponRefusal.objects.create(
        merchant_id=merchant_id,
        coupon_id=coupon_id,
        command=command,
        code=code,
        business_key=business_key,
        request_hash=request_hash,
        order_no=order_no[:64],
        expected_version=expected_version,
        actual_version=coupon.state_version if coupon else None,
        actual_status=coupon.status if coupon else "",
        token_matched=token_matched,
        actor=actor[:120],
        at=now,
    )
