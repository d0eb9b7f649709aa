"""The hold is over and no claim is open: pending commission becomes withdrawable."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Exists, OuterRef

from kernel.transactions import unit_of_work
from ledgers.commands.move_commission import Bucket, Kind, move_commission
from ledgers.models import Commission, CommissionAccount, CommissionHold


@dataclass(frozen=True)
class CommissionMatured:
    commission_id: UUID
    matured: bool
    amount_fen: int


def mature_commission(*, commission_id: UUID, now: datetime) -> CommissionMatured:
    """Pending → withdrawable for what is left of it. Not due, held by an open claim, or done already → nothing."""
    with unit_of_work(now=now):
        found = Commission.objects.filter(id=commission_id).first()
        if found is None:
            return CommissionMatured(commission_id, False, 0)
        account = CommissionAccount.objects.select_for_update().get(id=found.account_id)
        commission = Commission.objects.get(id=commission_id)
        held = CommissionHold.objects.filter(commission=commission, outcome="open").exists()
        if commission.matured_at is not None or commission.hold_until > now or held:
            return CommissionMatured(commission_id, False, 0)
        amount = commission.amount_fen - commission.reversed_fen
        Commission.objects.filter(id=commission.id).update(matured_at=now)
        move_commission(
            account=account,
            kind=Kind.MATURE,
            deltas={Bucket.PENDING: -amount, Bucket.WITHDRAWABLE: amount},
            business_key=f"mature:{commission.id}",
            reference=commission.order_no,
            commission=commission,
            now=now,
        )
        return CommissionMatured(commission_id, True, amount)


def commissions_to_mature(*, now: datetime, limit: int = 500) -> list[UUID]:
    """Those whose hold is over and that no open claim keeps, longest over first."""
    held = CommissionHold.objects.filter(commission=OuterRef("pk"), outcome="open")
    due = Commission.objects.filter(matured_at__isnull=True, hold_until__lte=now).exclude(Exists(held))
    return list(due.order_by("hold_until").values_list("id", flat=True)[:limit])
