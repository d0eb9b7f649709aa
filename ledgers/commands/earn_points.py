"""Grant what a completed order line earns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel import errors
from kernel.transactions import unit_of_work
from ledgers.commands.move_points import PointsKeyReused, locked_points_account, move_points
from ledgers.models import PointsEarned, PointsEntry
from ledgers.shares import share_of_money


@dataclass(frozen=True)
class PointsGranted:
    order_no: str
    line_no: int
    points: int
    replayed: bool = False


def earn_points(
    *,
    merchant_id: UUID,
    user_id: str,
    order_no: str,
    line_no: int,
    base_fen: int,
    points: int,
    refunded_fen: int = 0,
    now: datetime,
) -> PointsGranted:
    """`points` for goods of `base_fen`, less what falls to the goods money already refunded. Joins the caller. The line
    again → replay. Raises PointsKeyReused (other figures), InvalidInput."""
    if points < 0 or not 0 <= refunded_fen <= base_fen:
        raise errors.InvalidInput(points=points, base_fen=base_fen, refunded_fen=refunded_fen)
    with unit_of_work(now=now):
        account = locked_points_account(merchant_id=merchant_id, user_id=user_id, now=now)
        known = PointsEarned.objects.filter(merchant_id=merchant_id, order_no=order_no, line_no=line_no).first()
        if known is not None:
            if (known.account_id, known.points, known.base_fen) != (account.id, points, base_fen):
                raise PointsKeyReused(order_no=order_no, line_no=line_no)
            return PointsGranted(order_no, line_no, known.points, replayed=True)
        gone = share_of_money(points, base_fen, refunded_fen)
        PointsEarned.objects.create(
            merchant_id=merchant_id,
            account=account,
            order_no=order_no,
            line_no=line_no,
            base_fen=base_fen,
            points=points,
            refunded_fen=refunded_fen,
            taken_back=gone,
            created_at=now,
        )
        if points - gone:
            move_points(
                account=account,
                kind=PointsEntry.Kind.EARN,
                delta=points - gone,
                business_key=f"earn:{order_no}:{line_no}",
                reference=order_no,
                now=now,
            )
        return PointsGranted(order_no, line_no, points - gone)
