"""Give spent points back: unit by unit for a refund, all that is left for an order that ended unpaid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import F
from django.utils.translation import gettext_lazy as _

from kernel import errors
from kernel.transactions import unit_of_work
from ledgers.commands.move_points import locked_points_account, move_points
from ledgers.models import PointsAccount, PointsEntry, PointsSpent
from ledgers.shares import points_of_units


class PointsBackExceedSpent(errors.Refusal):
    code = "POINTS_BACK_EXCEED_SPENT"
    status = 422
    message = _("More points would go back than were spent on this line.")


errors.refuse_on_constraint("points_given_back_within_spent", PointsBackExceedSpent)


@dataclass(frozen=True)
class PointsGivenBack:
    order_no: str
    points: int
    replayed: bool = False


def give_points_back(
    *, merchant_id: UUID, order_no: str, line_no: int, ordinals: Iterable[int], after_sales_no: str, now: datetime
) -> PointsGivenBack:
    """The points of these units of a line. Joins the caller; idempotent by the after-sales number. A line on which no
    points were spent gives none. Raises PointsBackExceedSpent, InvalidInput (a unit that is not there)."""
    with unit_of_work(now=now):
        rows = _locked(merchant_id, order_no, line_no=line_no, now=now)
        if rows is None:
            return PointsGivenBack(order_no, 0)
        account, (spent,) = rows
        try:
            points = points_of_units(spent.points, spent.units, ordinals)
        except ValueError as error:
            raise errors.InvalidInput(line_no=line_no, reason=str(error)) from error
        if points == 0:
            return PointsGivenBack(order_no, 0)
        moved = move_points(
            account=account,
            kind=PointsEntry.Kind.GIVE_BACK,
            delta=points,
            business_key=f"give_back:{after_sales_no}:{line_no}",
            reference=after_sales_no,
            now=now,
        )
        if moved:
            _count_back(spent, points)
        return PointsGivenBack(order_no, points, replayed=not moved)


def return_spent_points(*, merchant_id: UUID, order_no: str, now: datetime) -> PointsGivenBack:
    """Everything an order spent and did not get back yet (it was closed or cancelled before it was paid). Joins the
    caller; a second call gives nothing."""
    with unit_of_work(now=now):
        rows = _locked(merchant_id, order_no, line_no=None, now=now)
        if rows is None:
            return PointsGivenBack(order_no, 0)
        account, lines = rows
        left = sum(spent.points - spent.given_back for spent in lines)
        if left == 0:
            return PointsGivenBack(order_no, 0, replayed=True)
        move_points(
            account=account,
            kind=PointsEntry.Kind.GIVE_BACK,
            delta=left,
            business_key=f"give_back:{order_no}",
            reference=order_no,
            now=now,
        )
        for spent in lines:
            _count_back(spent, spent.points - spent.given_back)
        return PointsGivenBack(order_no, left)


def _locked(
    merchant_id: UUID, order_no: str, *, line_no: int | None, now: datetime
) -> tuple[PointsAccount, list[PointsSpent]] | None:
    lines = PointsSpent.objects.filter(merchant_id=merchant_id, order_no=order_no)
    if line_no is not None:
        lines = lines.filter(line_no=line_no)
    first = lines.select_related("account").first()
    if first is None:
        return None
    account = locked_points_account(merchant_id=merchant_id, user_id=first.account.user_id, now=now)
    return account, list(lines.order_by("line_no"))


def _count_back(spent: PointsSpent, points: int) -> None:
    if spent.given_back + points > spent.points:
        raise PointsBackExceedSpent(line_no=spent.line_no, spent=spent.points, given_back=spent.given_back)
    PointsSpent.objects.filter(id=spent.id).update(given_back=F("given_back") + points)
