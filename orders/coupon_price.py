"""What a coupon takes off a cart, read from the coupon as it was issued. Reads only; the lease is another matter."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from coupons.discount import OrderLine, discount_for
from coupons.models import UserCoupon
from kernel.errors import NotFound


class CartLine(Protocol):
    """What has to be known of a line before the coupon."""

    @property
    def sku(self) -> str: ...
    @property
    def unit_price_fen(self) -> int: ...
    @property
    def qty(self) -> int: ...
    @property
    def line_discount_fen(self) -> int: ...


@dataclass(frozen=True)
class CouponPrice:
    """`discount_fen` is shared out over `eligible_lines`. An exchange coupon adds a free unit of `exchange_sku`."""

    coupon_id: UUID
    discount_fen: int
    eligible_lines: tuple[int, ...]
    exchange_sku: str = ""
    exchange_title: str = ""


def price_with_coupon(*, merchant_id: UUID, coupon_id: UUID, lines: Sequence[CartLine]) -> CouponPrice:
    """Raises NotFound (not this merchant's) and CouponNotApplicable (below the threshold, no eligible line)."""
    coupon = UserCoupon.objects.filter(pk=coupon_id, merchant_id=merchant_id).first()
    if coupon is None:
        raise NotFound(coupon_id=str(coupon_id))
    found = discount_for(
        coupon.template_snapshot,
        [
            OrderLine(number, line.sku, line.unit_price_fen * line.qty - line.line_discount_fen)
            for number, line in enumerate(lines, start=1)
        ],
    )
    return CouponPrice(
        coupon_id=coupon_id,
        discount_fen=found.amount_fen,
        eligible_lines=found.line_numbers,
        exchange_sku=found.exchange_sku,
        exchange_title=str(coupon.template_snapshot.get("name", "")),
    )
