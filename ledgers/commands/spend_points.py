"""Spend points on the lines of an order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel import errors
from kernel.transactions import unit_of_work
from ledgers.commands.move_points import PointsKeyReused, locked_points_account, move_points
from ledgers.models import PointsEntry, PointsSpent


@dataclass(frozen=True)
class PointsUsed:
    order_no: str
    points: int
    balance: int
    replayed: bool = False


def spend_points(
    *, merchant_id: UUID, user_id: str, order_no: str, lines: Mapping[int, tuple[int, int]], now: datetime
) -> PointsUsed:
    """`lines`: line number → (points, units). One entry for the order, a row per line that got any. Joins the caller.
    The same order again → replay. Raises NotEnoughPoints, PointsKeyReused (other shares), InvalidInput."""
    shares = {line_no: share for line_no, share in lines.items() if share[0]}
    if not shares or any(points < 0 or units < 1 for points, units in shares.values()):
        raise errors.InvalidInput(order_no=order_no)
    total = sum(points for points, _units in shares.values())
    with unit_of_work(now=now):
        account = locked_points_account(merchant_id=merchant_id, user_id=user_id, now=now)
        moved = move_points(
            account=account,
            kind=PointsEntry.Kind.SPEND,
            delta=-total,
            business_key=f"spend:{order_no}",
            reference=order_no,
            now=now,
        )
        if not moved:
            known = PointsSpent.objects.filter(merchant_id=merchant_id, order_no=order_no)
            if {row.line_no: (row.points, row.units) for row in known} != shares:
                raise PointsKeyReused(order_no=order_no)
            return PointsUsed(order_no, total, account.balance, replayed=True)
        PointsSpent.objects.bulk_create(
            PointsSpent(
                merchant_id=merchant_id,
                account=account,
                order_no=order_no,
                line_no=line_no,
                points=points,
                units=units,
                created_at=now,
            )
            for line_no, (points, units) in sorted(shares.items())
        )
        return PointsUsed(order_no, total, account.balance)
