"""Turn one system back after a refund: PENDING → DONE commits together with the effect, so it happens once."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from aftersales.claims import get_claim
from aftersales.commands._roll_back_coupon import roll_back_coupon
from aftersales.commands._roll_back_ledgers import (
    roll_back_commission,
    roll_back_entitlement,
    roll_back_points,
    roll_back_sales,
)
from aftersales.commands._roll_back_stock import roll_back_stock
from aftersales.models import AfterSalesOrder, Rollback, System
from kernel.transactions import unit_of_work

Effect = Callable[[AfterSalesOrder, datetime], dict[str, Any]]

EFFECTS: dict[str, Effect] = {
    System.STOCK: roll_back_stock,
    System.COUPON: roll_back_coupon,
    System.POINTS: roll_back_points,
    System.COMMISSION: roll_back_commission,
    System.SALES: roll_back_sales,
    System.ENTITLEMENT: roll_back_entitlement,
}


@dataclass(frozen=True)
class RolledBack:
    system: str
    result: dict[str, Any]
    replayed: bool = False


def run_rollback(*, merchant_id: UUID, after_sales_no: str, system: str, now: datetime) -> RolledBack:
    """Claim the rollback's row, then take its effect, in one transaction. A second delivery finds it DONE.

    Raises NotFound, and whatever the system's own command raises: then nothing happened and it is tried again.
    """
    with unit_of_work(now=now):
        claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no)
        mine = Rollback.objects.filter(after_sales=claim, system=system)
        if not mine.filter(state=Rollback.State.PENDING).update(state=Rollback.State.DONE, done_at=now):
            return RolledBack(system=system, result=mine.get().result, replayed=True)
        result = EFFECTS[system](claim, now)
        mine.update(result=result)
        return RolledBack(system=system, result=result)
