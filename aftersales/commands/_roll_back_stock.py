"""Goods after a refund: unshipped units return to sale, inspected ones go where the inspection said, else none move."""

from collections import Counter
from datetime import datetime
from typing import Any

from aftersales.models import AfterSalesOrder, Disposition, GoodsState, Hold, Type
from ledgers.commands.release_stock import release_stock
from ledgers.commands.restock import restock


def roll_back_stock(claim: AfterSalesOrder, now: datetime) -> dict[str, Any]:
    """Joins run_rollback's transaction; the ledger's business key is the after-sales number."""
    if claim.hold != Hold.CONSUMES or claim.line.kind != "physical":
        return {"outcome": "nothing_to_do"}
    units = list(claim.units.filter(live=True))
    if claim.goods_state == GoodsState.UNSHIPPED:
        release_stock(
            merchant_id=claim.merchant_id,
            sku=claim.line.sku,
            qty=len(units),
            business_key=f"{claim.after_sales_no}:stock",
            reference=claim.after_sales_no,
            now=now,
        )
        return {"outcome": "released", "sellable": len(units)}
    if claim.type == Type.REFUND_ONLY:
        return {"outcome": "nothing_to_do"}
    return restock_inspected(claim, now)


def restock_inspected(claim: AfterSalesOrder, now: datetime) -> dict[str, Any]:
    """Accepted units go into the bucket the inspection chose; for an exchange that happens on receipt, and the refund
    it may turn into finds it done."""
    units = list(claim.units.filter(live=True))
    counts = Counter(unit.disposition for unit in units)
    for bucket in (Disposition.SELLABLE, Disposition.DEFECT):
        if counts[bucket]:
            restock(
                merchant_id=claim.merchant_id,
                sku=claim.line.sku,
                qty=counts[bucket],
                bucket=str(bucket),
                business_key=f"{claim.after_sales_no}:stock:{bucket}",
                reference=claim.after_sales_no,
                now=now,
            )
    return {
        "outcome": "restocked",
        "sellable": counts[Disposition.SELLABLE],
        "defect": counts[Disposition.DEFECT],
    }
