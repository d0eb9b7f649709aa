"""Goods money went back: reverse the commissions of the line in proportion."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel import errors
from kernel.transactions import unit_of_work
from ledgers.commands.move_commission import Bucket, Kind, locked_commissions, move_commission
from ledgers.models import Commission, CommissionHold
from ledgers.shares import share_of_money


@dataclass(frozen=True)
class CommissionSettled:
    order_no: str
    line_no: int
    reversed_fen: int
    replayed: bool = False


def settle_commission(
    *, merchant_id: UUID, order_no: str, line_no: int, refunded_fen: int, after_sales_no: str, now: datetime
) -> CommissionSettled:
    """`refunded_fen`: the goods money of the line refunded *so far*, this refund included. Joins the caller.

    Per commission, what E of it says beyond what was reversed before: a pending one is reduced; of a matured one the
    claim's frozen part goes first, then withdrawable, below zero if it was withdrawn (later commissions offset it,
    nobody is asked to pay back). What the claim froze beyond that is free again and its hold ends. A smaller or equal
    figure than one already settled reverses nothing. A line without commission (yet) is no error. Raises InvalidInput.
    """
    with unit_of_work(now=now):
        total, news = 0, False
        for commission in locked_commissions(merchant_id=merchant_id, order_no=order_no, line_no=line_no):
            if not 0 <= refunded_fen <= commission.base_fen:
                raise errors.InvalidInput(refunded_fen=refunded_fen, base_fen=commission.base_fen)
            hold = CommissionHold.objects.filter(
                commission=commission, after_sales_no=after_sales_no, outcome="open"
            ).first()
            if hold is None and refunded_fen <= commission.refunded_fen:
                continue
            news = True
            total += _settle(commission, hold, refunded_fen, after_sales_no=after_sales_no, now=now)
        return CommissionSettled(order_no, line_no, total, replayed=not news)


def _settle(
    commission: Commission, hold: CommissionHold | None, refunded_fen: int, *, after_sales_no: str, now: datetime
) -> int:
    refunded = max(refunded_fen, commission.refunded_fen)
    target = share_of_money(commission.amount_fen, commission.base_fen, refunded)
    reversing = target - commission.reversed_fen
    Commission.objects.filter(id=commission.id).update(refunded_fen=refunded, reversed_fen=target)
    frozen = hold.frozen_fen if hold else 0
    if hold:
        CommissionHold.objects.filter(id=hold.id).update(outcome="settled", ended_at=now)
    deltas: dict[str, int]
    if commission.matured_at is None:
        deltas = {Bucket.PENDING: -reversing}
    else:
        deltas = {Bucket.FROZEN: -frozen, Bucket.WITHDRAWABLE: frozen - reversing}
    move_commission(
        account=commission.account,
        kind=Kind.REVERSE,
        deltas=deltas,
        business_key=f"settle:{commission.id}:{refunded}:{after_sales_no}",
        reference=after_sales_no,
        commission=commission,
        now=now,
    )
    return reversing
