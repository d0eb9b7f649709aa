"""Say who will earn from the lines of an order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Sum

from kernel import errors
from kernel.transactions import unit_of_work
from ledgers.commands.move_commission import CommissionKeyReused
from ledgers.models import CommissionShare

WHOLE_BP = 10_000
MAX_SHARES = 200

errors.refuse_on_constraint("one_beneficiary_per_line_and_level", CommissionKeyReused)


@dataclass(frozen=True, kw_only=True)
class Share:
    """`rate_bp` of a line's net goods, in basis points (1250 = 12.5 %), for one beneficiary at one level."""

    line_no: int
    level: int
    beneficiary: str
    rate_bp: int


@dataclass(frozen=True)
class CommissionDeclared:
    order_no: str
    shares: int
    replayed: bool = False


def declare_commission(
    *, merchant_id: UUID, order_no: str, shares: Sequence[Share], now: datetime
) -> CommissionDeclared:
    """One row per line and level; nothing is booked before the order completes. Joins the caller.

    The same shares again → replay. Raises InvalidInput (a rate outside 1..10000, a level outside 1..9, more than the
    goods are worth in all), CommissionKeyReused (a level of a line has another beneficiary or rate).
    """
    if not 0 < len(shares) <= MAX_SHARES or not all(
        each.beneficiary and 1 <= each.rate_bp <= WHOLE_BP and 1 <= each.level <= 9 for each in shares
    ):
        raise errors.InvalidInput(shares=len(shares))
    with unit_of_work(now=now):
        mine = CommissionShare.objects.filter(merchant_id=merchant_id, order_no=order_no)
        known = {(row.line_no, row.level): (row.beneficiary, row.rate_bp) for row in mine}
        fresh: dict[tuple[int, int], Share] = {}
        for share in shares:
            place = share.line_no, share.level
            if known.setdefault(place, (share.beneficiary, share.rate_bp)) != (share.beneficiary, share.rate_bp):
                raise CommissionKeyReused(order_no=order_no, line_no=share.line_no, level=share.level)
            fresh[place] = share
        for place in mine.values_list("line_no", "level"):
            fresh.pop(place, None)
        CommissionShare.objects.bulk_create(
            CommissionShare(
                merchant_id=merchant_id,
                order_no=order_no,
                line_no=share.line_no,
                level=share.level,
                beneficiary=share.beneficiary,
                rate_bp=share.rate_bp,
                created_at=now,
            )
            for share in fresh.values()
        )
        if mine.values("line_no").annotate(bp=Sum("rate_bp")).filter(bp__gt=WHOLE_BP).exists():
            raise errors.InvalidInput(rate_bp="more than the goods are worth")
        return CommissionDeclared(order_no, len(shares), replayed=not fresh)
