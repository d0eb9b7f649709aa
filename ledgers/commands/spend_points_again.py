"""Spend points once more that went back when their order was closed: the order was paid after all and is reopened."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from kernel.transactions import unit_of_work
from ledgers.commands.move_points import locked_points_account, move_points
from ledgers.commands.spend_points import PointsUsed
from ledgers.models import PointsEntry, PointsSpent


def spend_points_again(*, merchant_id: UUID, order_no: str, now: datetime) -> PointsUsed:
    """Take again what was given back to this order. Joins the caller; once (a second call finds nothing given back). An
    order that spent no points takes none. Raises NotEnoughPoints: they were spent elsewhere meanwhile."""
    with unit_of_work(now=now):
        lines = PointsSpent.objects.filter(merchant_id=merchant_id, order_no=order_no)
        first = lines.select_related("account").first()
        if first is None:
            return PointsUsed(order_no, 0, 0)
        account = locked_points_account(merchant_id=merchant_id, user_id=first.account.user_id, now=now)
        given_back = sum(lines.values_list("given_back", flat=True))
        if given_back == 0:
            return PointsUsed(order_no, 0, account.balance, replayed=True)
        move_points(
            account=account,
            kind=PointsEntry.Kind.SPEND,
            delta=-given_back,
            business_key=f"spend_again:{order_no}",
            reference=order_no,
            now=now,
        )
        lines.update(given_back=0)
        return PointsUsed(order_no, given_back, account.balance)
