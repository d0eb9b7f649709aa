"""Points, commission and sales figures after a refund; each joins run_rollback and is idempotent by the claim's number.

Earned points and commission follow the goods money refunded *so far*, so the order in which the rollbacks of several
claims arrive does not matter. Commission and points ignore freight. They stand on the line that was ordered, which is
locked: an order that completes in the same moment grants either before or after, never beside.
"""

from datetime import datetime
from typing import Any

from aftersales.models import AfterSalesOrder, Hold
from aftersales.rewards import ordered_units, refunded_goods_fen
from ledgers.commands.count_sale_return import count_sale_return
from ledgers.commands.give_points_back import give_points_back
from ledgers.commands.settle_commission import settle_commission
from ledgers.commands.settle_earned_points import settle_earned_points
from orders.commands.revoke_entitlement import revoke_entitlement
from orders.models import OrderLine


def roll_back_points(claim: AfterSalesOrder, now: datetime) -> dict[str, Any]:
    """Used points of the units given back return; earned points are taken back, below zero if they are spent."""
    back = 0
    line, ordinals = _locked_origin(claim)
    if claim.hold == Hold.CONSUMES:
        given = give_points_back(
            merchant_id=claim.merchant_id,
            order_no=claim.order_no,
            line_no=line.line_no,
            ordinals=ordinals,
            after_sales_no=claim.after_sales_no,
            now=now,
        )
        back = given.points
    taken = settle_earned_points(
        merchant_id=claim.merchant_id,
        order_no=claim.order_no,
        line_no=line.line_no,
        refunded_fen=refunded_goods_fen(line),
        after_sales_no=claim.after_sales_no,
        now=now,
    ).taken_back
    if not back and not taken:
        return {"outcome": "nothing_to_do"}
    return {"outcome": "points", "back": back, "taken": taken}


def roll_back_commission(claim: AfterSalesOrder, now: datetime) -> dict[str, Any]:
    """Pending ones shrink, frozen ones are debited, withdrawn ones leave a debt that later commissions offset."""
    line, _ordinals = _locked_origin(claim)
    settled = settle_commission(
        merchant_id=claim.merchant_id,
        order_no=claim.order_no,
        line_no=line.line_no,
        refunded_fen=refunded_goods_fen(line),
        after_sales_no=claim.after_sales_no,
        now=now,
    )
    if not settled.reversed_fen:
        return {"outcome": "nothing_to_do"}
    return {"outcome": "commission", "reversed_fen": settled.reversed_fen}


def roll_back_sales(claim: AfterSalesOrder, now: datetime) -> dict[str, Any]:
    """Units and money down, on the day of the refund's success. Goods that stay count as money only."""
    qty = len(ordinals_of(claim)) if claim.hold == Hold.CONSUMES else 0
    amount_fen = claim.approved_goods_fen or 0
    if not qty and not amount_fen:
        return {"outcome": "nothing_to_do"}
    count_sale_return(
        merchant_id=claim.merchant_id,
        sku=claim.line.sku,
        qty=qty,
        amount_fen=amount_fen,
        business_key=f"{claim.after_sales_no}:sales",
        reference=claim.after_sales_no,
        at=claim.finished_at or now,
        now=now,
    )
    return {"outcome": "sales", "qty": qty, "amount_fen": amount_fen}


def roll_back_entitlement(claim: AfterSalesOrder, now: datetime) -> dict[str, Any]:
    """What a virtual line granted is taken back with its units."""
    if claim.hold != Hold.CONSUMES:
        return {"outcome": "nothing_to_do"}
    revoked = revoke_entitlement(
        line_id=claim.line_id, ordinals=ordinals_of(claim), reference=claim.after_sales_no, now=now
    )
    return {"outcome": "revoked", "qty": len(revoked.ordinals)} if revoked.ordinals else {"outcome": "nothing_to_do"}


def ordinals_of(claim: AfterSalesOrder) -> list[int]:
    return list(claim.units.filter(live=True).order_by("ordinal").values_list("ordinal", flat=True))


def _locked_origin(claim: AfterSalesOrder) -> tuple[OrderLine, list[int]]:
    line, ordinals = ordered_units(claim.line, ordinals_of(claim))
    return OrderLine.objects.select_for_update().get(pk=line.pk), ordinals
