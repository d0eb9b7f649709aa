"""Take earned points back in proportion to the goods money refunded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel import errors
from kernel.transactions import unit_of_work
from ledgers.commands.move_points import locked_points_account, move_points
from ledgers.models import PointsEarned, PointsEntry
from ledgers.shares import share_of_money


@dataclass(frozen=True)
class EarnedPointsSettled:
    order_no: str
    line_no: int
    taken_back: int
    replayed: bool = False


def settle_earned_points(
    *, merchant_id: UUID, order_no: str, line_no: int, refunded_fen: int, after_sales_no: str, now: datetime
) -> EarnedPointsSettled:
    """`refunded_fen`: the goods money of the line refunded *so far*, this refund included. Takes back what E of it says
    beyond what was taken before; the balance may go below zero. A smaller or equal figure than one already settled
    changes nothing, so that refunds may be told in any order and any number of times. A line that earned nothing (yet)
    is no error. Joins the caller. Raises InvalidInput (more than was paid)."""
    with unit_of_work(now=now):
        earned = (
            PointsEarned.objects.select_related("account")
            .filter(merchant_id=merchant_id, order_no=order_no, line_no=line_no)
            .first()
        )
        if earned is None:
            return EarnedPointsSettled(order_no, line_no, 0)
        if not 0 <= refunded_fen <= earned.base_fen:
            raise errors.InvalidInput(refunded_fen=refunded_fen, base_fen=earned.base_fen)
        account = locked_points_account(merchant_id=merchant_id, user_id=earned.account.user_id, now=now)
        earned = PointsEarned.objects.get(id=earned.id)
        if refunded_fen <= earned.refunded_fen:
            return EarnedPointsSettled(order_no, line_no, 0, replayed=True)
        target = share_of_money(earned.points, earned.base_fen, refunded_fen)
        taken = target - earned.taken_back
        PointsEarned.objects.filter(id=earned.id).update(refunded_fen=refunded_fen, taken_back=target)
        if taken:
            move_points(
                account=account,
                kind=PointsEntry.Kind.TAKE_BACK,
                delta=-taken,
                business_key=f"take_back:{order_no}:{line_no}:{refunded_fen}",
                reference=after_sales_no,
                now=now,
            )
        return EarnedPointsSettled(order_no, line_no, taken)
