"""Into REFUNDING: the line's guard, the move, the units, the payment's guard; joined by the deciding commands."""

from datetime import datetime

from aftersales.actors import By
from aftersales.commands._finish_refund import finish_refund
from aftersales.commands._transition import blaming_the_state, move
from aftersales.funding import owner_no, split_over_payments
from aftersales.models import AfterSalesOrder, AfterSalesUnit, GoodsState, Hold
from aftersales.settlement import Settled
from kernel.statemachine import Edge, P
from orders.commands.hold_units import commit_line_refund, free_units
from payments.commands.request_refund import request_refund
from payments.models import RefundRequest

AMOUNTS = {
    "approved_goods_fen": P("goods_fen"),
    "approved_freight_fen": P("freight_fen"),
    "entitled_goods_fen": P("entitled_goods_fen"),
    "entitled_freight_fen": P("entitled_freight_fen"),
    "accepted_qty": P("accepted_qty"),
    "hold": P("hold"),
    "liability": P("liability"),
    "liability_reason": P("liability_reason"),
    "reduction_reason": P("reduction_reason"),
    "decided_at": P("now"),
    "refunding_at": P("now"),
}
"""What every edge into REFUNDING from a decision writes; the amounts in fen."""


def start_refund(
    edge: Edge,
    claim: AfterSalesOrder,
    settled: Settled,
    *,
    expected_version: int,
    by: By,
    now: datetime,
    reason: str,
    liability_reason: str = "",
    reduction_reason: str = "",
    dispositions: dict[int, str] | None = None,
) -> int:
    """Move a decided claim to REFUNDING and ask for its money, or end it at once when that is zero.

    Locks in the fixed order: line, claim, payment. Returns the new version. Raises VersionConflict,
    IllegalTransition, InArbitration, RefundExceedsPaid.
    """
    with blaming_the_state(edge, claim.pk, expected_version=expected_version):
        _commit_on_line(claim, settled)
    version = move(
        edge,
        claim,
        expected_version=expected_version,
        by=by,
        now=now,
        reason=reason,
        evidence={"goods_fen": settled.goods_fen, "freight_fen": settled.freight_fen, "liability": settled.liability},
        goods_fen=settled.goods_fen,
        freight_fen=settled.freight_fen,
        entitled_goods_fen=settled.entitled_goods_fen,
        entitled_freight_fen=settled.entitled_freight_fen,
        accepted_qty=len(settled.units),
        hold=settled.hold,
        liability=settled.liability,
        liability_reason=liability_reason,
        reduction_reason=reduction_reason,
    )
    write_units(claim, settled, dispositions=dispositions or {})
    if settled.total_fen == 0:
        return finish_refund(claim.pk, by=by, now=now)
    _ask_for_money(claim, settled.total_fen, now=now)
    return version


def _commit_on_line(claim: AfterSalesOrder, settled: Settled) -> None:
    """The line's guard (goods ≤ net, freight ≤ share, unshipped still unshipped): the first lock of the decision."""
    keeps = [unit.ordinal for unit in settled.units] if settled.hold == Hold.CONSUMES else []
    commit_line_refund(
        line_id=claim.line_id,
        goods_fen=settled.goods_fen,
        freight_fen=settled.freight_fen,
        unshipped_ordinals=keeps if claim.goods_state == GoodsState.UNSHIPPED else (),
    )
    free_given_up_units(claim, settled)


def free_given_up_units(claim: AfterSalesOrder, settled: Settled) -> None:
    """Units the claim no longer takes (compensation instead, or not in the parcel) may be claimed again."""
    keeps = [unit.ordinal for unit in settled.units] if settled.hold == Hold.CONSUMES else []
    if claim.hold == Hold.CONSUMES:
        given_up = [row.ordinal for row in claim.units.filter(live=True) if row.ordinal not in keeps]
        if given_up:
            free_units(line_id=claim.line_id, ordinals=given_up)


def write_units(claim: AfterSalesOrder, settled: Settled, *, dispositions: dict[int, str]) -> None:
    """Store per unit what is paid for it and what became of it; units that were not accepted leave the claim."""
    paid_by_ordinal = {unit.ordinal: unit for unit in settled.units}
    rows = list(claim.units.filter(live=True))
    for row in rows:
        paid = paid_by_ordinal.get(row.ordinal)
        row.disposition = dispositions.get(row.ordinal, row.disposition)
        row.hold = settled.hold
        row.goods_fen, row.freight_fen = (paid.goods_fen, paid.freight_fen) if paid else (0, 0)
        if paid is None:
            row.live = row.is_open = False
    AfterSalesUnit.objects.bulk_update(rows, ["disposition", "hold", "live", "is_open", "goods_fen", "freight_fen"])


def _ask_for_money(claim: AfterSalesOrder, amount_fen: int, *, now: datetime) -> None:
    """From the payment of the order; what a supplement paid for goes back to the supplement first."""
    for part, (payment, fen) in enumerate(split_over_payments(claim, amount_fen)):
        request_refund(
            merchant_id=claim.merchant_id,
            payment_id=payment.pk,
            owner_kind=RefundRequest.OwnerKind.AFTER_SALES,
            owner_no=owner_no(claim.after_sales_no, part),
            amount_fen=fen,
            reason=claim.reason_code,
            now=now,
        )
