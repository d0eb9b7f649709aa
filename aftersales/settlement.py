"""How much a decided claim pays: the rules beside what the merchant asks for. Writes nothing."""

from collections.abc import Collection
from dataclasses import dataclass

from django.utils.translation import gettext_lazy as _

from aftersales.algorithms import unit_worth
from aftersales.amounts import UnitAmount, lower_to
from aftersales.drafts import AboveEntitlement, hold_of
from aftersales.models import AfterSalesOrder, AfterSalesUnit, GoodsState, Hold, Type
from aftersales.reasons import freight_is_refundable
from kernel.errors import InvalidInput, Refusal


class ReasonNeeded(Refusal):
    code = "REASON_NEEDED"
    status = 422
    message = _("Paying less than the buyer is entitled to needs a reason.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What the merchant decided; None means: what the rules give. Amounts in fen."""

    liability: str = ""
    liability_reason: str = ""
    goods_fen: int | None = None
    freight_fen: int | None = None
    reduction_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The decided amounts, per unit and in all, with what the claim now does to its units."""

    units: tuple[UnitAmount, ...]
    hold: str
    liability: str
    entitled_goods_fen: int
    entitled_freight_fen: int
    goods_fen: int
    freight_fen: int

    @property
    def total_fen(self) -> int:
        return self.goods_fen + self.freight_fen


def settle(claim: AfterSalesOrder, ask: Ask, *, accepted: Collection[int] | None = None) -> Settled:
    """Decide the amount of a claim over the accepted ordinals (all by default).

    Freight goes back when nothing was shipped or the liability is the merchant's. Raises AboveEntitlement,
    ReasonNeeded (less than the rules give without saying why) and InvalidInput.
    """
    rows = [
        row for row in claim.units.filter(live=True).order_by("ordinal") if accepted is None or row.ordinal in accepted
    ]
    full = [_full_worth(claim, row) for row in rows]
    goods_room, freight_room = sum(u.goods_fen for u in full), sum(u.freight_fen for u in full)
    liability = ask.liability or claim.liability or claim.liability_proposed
    unshipped = claim.goods_state == GoodsState.UNSHIPPED
    applied_goods = min(claim.applied_goods_fen, goods_room)
    refundable = claim.hold == Hold.TOPS_UP or (
        claim.hold == Hold.CONSUMES and freight_is_refundable(unshipped=unshipped, liability=liability)
    )
    freight_due = freight_room if refundable else 0
    goods_fen = applied_goods if ask.goods_fen is None else ask.goods_fen
    freight_fen = freight_due if ask.freight_fen is None else ask.freight_fen
    if min(goods_fen, freight_fen) < 0:
        raise InvalidInput(goods_fen=goods_fen, freight_fen=freight_fen)
    if goods_fen > goods_room or freight_fen > freight_due:
        raise AboveEntitlement(
            goods_fen=goods_fen,
            entitled_goods_fen=goods_room,
            freight_fen=freight_fen,
            entitled_freight_fen=freight_due,
        )
    if (goods_fen < applied_goods or freight_fen < freight_due) and not ask.reduction_reason:
        raise ReasonNeeded(goods_fen=applied_goods, freight_fen=freight_due)
    hold = claim.hold
    if hold == Hold.CONSUMES and claim.type == Type.REFUND_ONLY:
        hold = hold_of(claim.type, unshipped=unshipped, whole=goods_fen == goods_room)
    if hold == Hold.DEDUCTS and claim.hold == Hold.CONSUMES:
        freight_fen = 0
    return Settled(
        units=lower_to(units=full, goods_fen=goods_fen, freight_fen=freight_fen),
        hold=hold,
        liability=liability,
        entitled_goods_fen=goods_room,
        entitled_freight_fen=freight_room,
        goods_fen=goods_fen,
        freight_fen=freight_fen,
    )


def _full_worth(claim: AfterSalesOrder, row: AfterSalesUnit) -> UnitAmount:
    if claim.hold == Hold.TOPS_UP:
        freight = row.freight_fen
    else:
        line = claim.line
        freight = claim.entitled_freight_fen and unit_worth(
            claim.algorithm, line.freight_share_fen, line.qty, row.ordinal
        )
    return UnitAmount(
        ordinal=row.ordinal,
        worth_fen=row.worth_fen,
        earlier_fen=row.earlier_fen,
        goods_fen=row.worth_fen - row.earlier_fen,
        freight_fen=freight,
    )
