"""Book what a completed order line earns a beneficiary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel import errors
from kernel.transactions import unit_of_work
from ledgers.commands.move_commission import (
    Bucket,
    CommissionKeyReused,
    Kind,
    locked_commission_account,
    move_commission,
)
from ledgers.models import Commission, CommissionHold
from ledgers.shares import share_of_money


@dataclass(frozen=True)
class CommissionAccrued:
    commission_id: UUID
    amount_fen: int
    replayed: bool = False


def accrue_commission(
    *,
    merchant_id: UUID,
    order_no: str,
    line_no: int,
    beneficiary: str,
    level: int,
    base_fen: int,
    amount_fen: int,
    hold_until: datetime,
    refunded_fen: int = 0,
    open_claims: Iterable[str] = (),
    now: datetime,
) -> CommissionAccrued:
    """→ pending, less what falls to the goods money already refunded; `open_claims` (after-sales numbers) keep it from
    maturing. Joins the caller. The same line, beneficiary and level again → replay. Raises CommissionKeyReused (other
    figures), InvalidInput."""
    if not (beneficiary and 0 <= amount_fen <= base_fen and 0 <= refunded_fen <= base_fen):
        raise errors.InvalidInput(beneficiary=beneficiary, amount_fen=amount_fen, base_fen=base_fen)
    with unit_of_work(now=now):
        account = locked_commission_account(merchant_id=merchant_id, beneficiary=beneficiary, now=now)
        known = Commission.objects.filter(account=account, order_no=order_no, line_no=line_no, level=level).first()
        if known is not None:
            if (known.base_fen, known.amount_fen) != (base_fen, amount_fen):
                raise CommissionKeyReused(order_no=order_no, line_no=line_no, level=level)
            return CommissionAccrued(known.id, known.amount_fen - known.reversed_fen, replayed=True)
        gone = share_of_money(amount_fen, base_fen, refunded_fen)
        commission = Commission.objects.create(
            merchant_id=merchant_id,
            account=account,
            order_no=order_no,
            line_no=line_no,
            level=level,
            base_fen=base_fen,
            amount_fen=amount_fen,
            refunded_fen=refunded_fen,
            reversed_fen=gone,
            hold_until=hold_until,
            created_at=now,
        )
        CommissionHold.objects.bulk_create(
            CommissionHold(merchant_id=merchant_id, commission=commission, after_sales_no=number, created_at=now)
            for number in sorted(set(open_claims))
        )
        move_commission(
            account=account,
            kind=Kind.ACCRUE,
            deltas={Bucket.PENDING: amount_fen - gone},
            business_key=f"accrue:{commission.id}",
            reference=order_no,
            commission=commission,
            now=now,
        )
        return CommissionAccrued(commission.id, amount_fen - gone)
