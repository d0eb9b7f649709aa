"""How an order's discounts and its freight are shared out over its lines, frozen when the order is made.

Pure functions over integer fen. Line discounts stay on their line and never enter a second split. The order-level
discounts (coupon, platform subsidy, points: in that order) are split one after the other, each over what the
earlier ones left of the line's base, by largest remainder with ties to the lower line number. So every discount
is shared out exactly and no line goes below zero, which splitting each over the base alone does not promise
(1 + 999 fen with two discounts of 500).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from django.utils.translation import gettext_lazy as _

from kernel import money
from kernel.errors import Refusal

ALGORITHM_VERSION = "largest-remainder-1"

FreightPolicy = Literal["by_amount", "equal"]


class DiscountExceedsGoods(Refusal):
    code = "DISCOUNT_EXCEEDS_GOODS"
    status = 422
    message = _("A discount is larger than what the earlier ones left of the goods.")


class FreightSharesDoNotAddUp(Refusal):
    code = "FREIGHT_SHARES_DO_NOT_ADD_UP"
    status = 422
    message = _("The freight shares of the lines must not be negative and must add up to the freight.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedLine:
    """One line before the order-level discounts, with the caller's own freight share if it gives one."""

    line_no: int
    unit_price_fen: int
    qty: int
    line_discount_fen: int = 0
    freight_share_fen: int | None = None

    @property
    def subtotal_fen(self) -> int:
        return self.unit_price_fen * self.qty

    @property
    def base_fen(self) -> int:
        return self.subtotal_fen - self.line_discount_fen


@dataclass(frozen=True, slots=True, kw_only=True)
class Discounts:
    """The order-level discounts in fen. The coupon takes only from the lines it names (None: from all).

    Points are a discount worth `points_fen`; `points_used` is the number of points that paid for it.
    """

    coupon_fen: int = 0
    coupon_lines: Collection[int] | None = None
    subsidy_fen: int = 0
    points_fen: int = 0
    points_used: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedLine:
    """Every share of one line, in fen; what refunds are computed from for the rest of the order's life."""

    line_no: int
    unit_price_fen: int
    qty: int
    subtotal_fen: int
    line_discount_fen: int
    base_fen: int
    coupon_share_fen: int
    subsidy_share_fen: int
    points_share_fen: int
    points_used: int
    net_fen: int
    freight_share_fen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The lines with their shares. Σ of every share is the discount it came from, exactly."""

    lines: tuple[AllocatedLine, ...]
    freight_fen: int
    algorithm_version: str = ALGORITHM_VERSION

    @property
    def goods_fen(self) -> int:
        """Σ base: the goods after line discounts and before order-level discounts."""
        return sum(line.base_fen for line in self.lines)

    @property
    def line_discount_fen(self) -> int:
        return sum(line.line_discount_fen for line in self.lines)

    @property
    def coupon_fen(self) -> int:
        return sum(line.coupon_share_fen for line in self.lines)

    @property
    def subsidy_fen(self) -> int:
        return sum(line.subsidy_share_fen for line in self.lines)

    @property
    def points_fen(self) -> int:
        return sum(line.points_share_fen for line in self.lines)

    @property
    def points_used(self) -> int:
        return sum(line.points_used for line in self.lines)

    @property
    def net_fen(self) -> int:
        return sum(line.net_fen for line in self.lines)

    @property
    def payable_fen(self) -> int:
        return self.net_fen + self.freight_fen


def allocate(
    *,
    lines: Sequence[PricedLine],
    discounts: Discounts,
    freight_fen: int = 0,
    freight_policy: FreightPolicy = "by_amount",
) -> Allocation:
    """Share out discounts and freight over lines given in order of their line number.

    Raises DiscountExceedsGoods (a line discount above its subtotal, an order-level discount above what the
    earlier ones left) and FreightSharesDoNotAddUp.
    """
    for line in lines:
        if not 0 <= line.line_discount_fen <= line.subtotal_fen:
            raise DiscountExceedsGoods(
                discount="line", line_no=line.line_no, fen=line.line_discount_fen, left_fen=line.subtotal_fen
            )
    left = [line.base_fen for line in lines]
    eligible = [discounts.coupon_lines is None or line.line_no in discounts.coupon_lines for line in lines]
    coupon, left = take_discount("coupon", discounts.coupon_fen, left, eligible)
    everywhere = [True] * len(lines)
    subsidy, left = take_discount("subsidy", discounts.subsidy_fen, left, everywhere)
    points, left = take_discount("points", discounts.points_fen, left, everywhere)
    points_used = money.split_by_weight(discounts.points_used, points) if lines else []
    freight = freight_shares(lines=lines, freight_fen=freight_fen, policy=freight_policy)
    return Allocation(
        freight_fen=freight_fen,
        lines=tuple(
            AllocatedLine(
                line_no=line.line_no,
                unit_price_fen=line.unit_price_fen,
                qty=line.qty,
                subtotal_fen=line.subtotal_fen,
                line_discount_fen=line.line_discount_fen,
                base_fen=line.base_fen,
                coupon_share_fen=coupon[index],
                subsidy_share_fen=subsidy[index],
                points_share_fen=points[index],
                points_used=points_used[index],
                net_fen=left[index],
                freight_share_fen=freight[index],
            )
            for index, line in enumerate(lines)
        ),
    )


def take_discount(
    name: str, discount_fen: int, left: Sequence[int], eligible: Sequence[bool]
) -> tuple[list[int], list[int]]:
    """Split one discount over what is left of the eligible lines: the shares, and what is left after them."""
    room = [fen if may else 0 for fen, may in zip(left, eligible, strict=True)]
    if not 0 <= discount_fen <= sum(room):
        raise DiscountExceedsGoods(discount=name, fen=discount_fen, left_fen=sum(room))
    if discount_fen == 0:
        return [0] * len(room), list(left)
    shares = money.split_by_weight(discount_fen, room)
    return shares, [fen - share for fen, share in zip(left, shares, strict=True)]


def freight_shares(*, lines: Sequence[PricedLine], freight_fen: int, policy: FreightPolicy) -> list[int]:
    """The caller's own shares where it gives them, else by base or equally. Σ base = 0 splits equally."""
    given = [line.freight_share_fen for line in lines if line.freight_share_fen is not None]
    if given:
        if len(given) != len(lines) or min(given) < 0 or sum(given) != freight_fen:
            raise FreightSharesDoNotAddUp(freight_fen=freight_fen, given_fen=given)
        return given
    if policy == "equal":
        return money.split_equally(freight_fen, len(lines))
    return money.split_by_weight(freight_fen, [line.base_fen for line in lines])
