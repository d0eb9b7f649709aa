"""Give or take points by decision of a person or a campaign."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel import errors
from kernel.transactions import unit_of_work
from ledgers.commands.move_points import locked_points_account, move_points
from ledgers.models import PointsEntry


@dataclass(frozen=True)
class PointsAdjusted:
    user_id: str
    balance: int
    replayed: bool = False


def adjust_points(
    *, merchant_id: UUID, user_id: str, delta: int, business_key: str, reference: str, now: datetime
) -> PointsAdjusted:
    """Add `delta` (may be negative, not zero). May join. The same key again → replay. Raises InvalidInput,
    PointsKeyReused."""
    if delta == 0 or not user_id:
        raise errors.InvalidInput(delta=delta, user_id=user_id)
    with unit_of_work(now=now):
        account = locked_points_account(merchant_id=merchant_id, user_id=user_id, now=now)
        moved = move_points(
            account=account,
            kind=PointsEntry.Kind.ADJUST,
            delta=delta,
            business_key=business_key,
            reference=reference,
            now=now,
        )
        return PointsAdjusted(user_id, account.balance, replayed=not moved)
