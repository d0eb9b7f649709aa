"""A claim ended without money going back: what it froze is free again, what it kept from maturing matures."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel.transactions import unit_of_work
from ledgers.commands.move_commission import Bucket, Kind, locked_commissions, move_commission
from ledgers.models import CommissionHold


@dataclass(frozen=True)
class CommissionReleased:
    after_sales_no: str
    released_fen: int
    replayed: bool = False


def release_commission(
    *, merchant_id: UUID, order_no: str, line_no: int, after_sales_no: str, now: datetime
) -> CommissionReleased:
    """Frozen → withdrawable, hold ended. Joins the caller. Ended already, or never held → replay."""
    with unit_of_work(now=now):
        released, ended = 0, False
        for commission in locked_commissions(merchant_id=merchant_id, order_no=order_no, line_no=line_no):
            for hold in CommissionHold.objects.filter(
                commission=commission, after_sales_no=after_sales_no, outcome="open"
            ):
                ended = True
                released += hold.frozen_fen
                CommissionHold.objects.filter(id=hold.id).update(outcome="released", ended_at=now)
                move_commission(
                    account=commission.account,
                    kind=Kind.RELEASE,
                    deltas={Bucket.FROZEN: -hold.frozen_fen, Bucket.WITHDRAWABLE: hold.frozen_fen},
                    business_key=f"release:{hold.id}",
                    reference=after_sales_no,
                    commission=commission,
                    now=now,
                )
        return CommissionReleased(after_sales_no, released, replayed=not ended)
