"""What a coupon takes off an order: pure arithmetic in integer fen over the template as it was issued.

Over Σ base of the eligible lines, where base is the line's subtotal less its own discounts; other lines take no
share. Threshold-off takes `off_fen`; percent-off takes min(cap, ⌊base × rate⌋); a line coupon takes `off_fen` off one
line, the dearest eligible one; an exchange coupon makes a line of its own, quantity 1, that costs nothing. Nothing
takes more than the base it is taken from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from django.utils.translation import gettext_lazy as _

from coupons.models import CouponKind
from kernel.errors import Refusal

RATE_UNITS = 10_000


class Line(Protocol):
    """What has to be known of an order line."""

    @property
    def line_no(self) -> int: ...
    @property
    def sku(self) -> str: ...
    @property
    def base_fen(self) -> int: ...


@dataclass(frozen=True)
class OrderLine:
    """A line as the discount sees it; any object with these three attributes will do."""

    line_no: int
    sku: str
    base_fen: int


@dataclass(frozen=True)
class Discount:
    """What the coupon is worth for these lines.

    `amount_fen` is to be shared among `line_numbers` (one line for a LINE coupon); an EXCHANGE coupon is worth 0 here
    and asks for a free line of `exchange_sku` instead.
    """

    kind: str
    amount_fen: int
    line_numbers: tuple[int, ...]
    eligible_base_fen: int
    exchange_sku: str = ""


class CouponNotApplicable(Refusal):
    """The coupon's conditions are not met by these lines. `data` says which, and what is missing (fen)."""

    code = "COUPON_NOT_APPLICABLE"
    status = 422
    message = _("The coupon does not apply to these lines.")


def discount_for(template_snapshot: Mapping[str, Any], lines: Sequence[Line]) -> Discount:
    """The discount of a coupon for an order. Raises CouponNotApplicable."""
    eligible = [line for line in lines if is_eligible(template_snapshot, line.sku)]
    kind = template_snapshot["kind"]
    base_fen = sum(line.base_fen for line in eligible)
    threshold_fen = template_snapshot.get("threshold_fen") or 0
    if not eligible:
        raise CouponNotApplicable(reason="NO_ELIGIBLE_LINE", next_actions=["choose_another_coupon"])
    if base_fen < threshold_fen:
        raise CouponNotApplicable(
            reason="BELOW_THRESHOLD",
            threshold_fen=threshold_fen,
            eligible_base_fen=base_fen,
            missing_fen=threshold_fen - base_fen,
            next_actions=["add_lines", "choose_another_coupon"],
        )
    numbers = tuple(line.line_no for line in eligible)
    if kind == CouponKind.EXCHANGE:
        return Discount(kind, 0, (), base_fen, template_snapshot["exchange_sku"])
    if kind == CouponKind.LINE:
        line = min(eligible, key=lambda each: (-each.base_fen, each.line_no))
        return Discount(kind, min(template_snapshot["off_fen"], line.base_fen), (line.line_no,), base_fen)
    if kind == CouponKind.PERCENT:
        amount_fen = base_fen * template_snapshot["rate_bp"] // RATE_UNITS
        cap_fen = template_snapshot.get("cap_fen")
        return Discount(kind, amount_fen if cap_fen is None else min(cap_fen, amount_fen), numbers, base_fen)
    return Discount(kind, min(template_snapshot["off_fen"], base_fen), numbers, base_fen)


def is_eligible(template_snapshot: Mapping[str, Any], sku: str) -> bool:
    """Whether a SKU counts for the coupon: named (no list names all) and not excluded."""
    named = template_snapshot.get("eligible_skus") or []
    return (not named or sku in named) and sku not in (template_snapshot.get("excluded_skus") or [])
