"""An after-sales order was applied for: its line's commissions do not mature, and what had matured is frozen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Sum

from kernel.transactions import unit_of_work
from ledgers.commands.move_commission import Bucket, Kind, locked_commissions, move_commission
from ledgers.models import Commission, CommissionAccount, CommissionHold
from ledgers.shares import share_of_money


@dataclass(frozen=True)
class CommissionHeld:
    after_sales_no: str
    frozen_fen: int
    replayed: bool = False


def hold_commission(
    *, merchant_id: UUID, order_no: str, line_no: int, after_sales_no: str, goods_fen: int, now: datetime
) -> CommissionHeld:
    """`goods_fen`: what the claim asks for the goods. Of a matured commission the part that such a refund would reverse
    goes from withdrawable to frozen, as far as it is still there (what was withdrawn already cannot be frozen). Joins
    the caller. The same claim again → replay. A line without commission holds nothing."""
    with unit_of_work(now=now):
        frozen, fresh = 0, False
        for commission in locked_commissions(merchant_id=merchant_id, order_no=order_no, line_no=line_no):
            known = CommissionHold.objects.filter(commission=commission, after_sales_no=after_sales_no).first()
            if known is not None:
                frozen += known.frozen_fen
                continue
            fresh = True
            amount = _freezable(commission, goods_fen) if commission.matured_at else 0
            hold = CommissionHold.objects.create(
                merchant_id=merchant_id,
                commission=commission,
                after_sales_no=after_sales_no,
                frozen_fen=amount,
                created_at=now,
            )
            move_commission(
                account=commission.account,
                kind=Kind.FREEZE,
                deltas={Bucket.WITHDRAWABLE: -amount, Bucket.FROZEN: amount},
                business_key=f"freeze:{hold.id}",
                reference=after_sales_no,
                commission=commission,
                now=now,
            )
            frozen += amount
        return CommissionHeld(after_sales_no, frozen, replayed=not fresh)


def _freezable(commission: Commission, goods_fen: int) -> int:
    others = CommissionHold.objects.filter(commission=commission, outcome="open").aggregate(fen=Sum("frozen_fen"))
    left = commission.amount_fen - commission.reversed_fen - (others["fen"] or 0)
    target = share_of_money(commission.amount_fen, commission.base_fen, commission.refunded_fen + goods_fen)
    account = CommissionAccount.objects.get(id=commission.account_id)
    return max(0, min(target - commission.reversed_fen, left, account.withdrawable_fen))
