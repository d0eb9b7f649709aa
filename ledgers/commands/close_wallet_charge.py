"""Close a payment number at the wallet: it will never be charged."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel import numbers
from kernel.transactions import unit_of_work
from ledgers.models import WalletCharge


@dataclass(frozen=True)
class WalletChargeEnded:
    """`outcome` is the number's: CLOSED, or PAID when the money was taken before."""

    number: str
    outcome: str
    replayed: bool = False


def close_wallet_charge(*, merchant_id: UUID, number: str, now: datetime) -> WalletChargeEnded:
    """Never accept this payment number. May join. A number paid or closed before stays what it is (`replayed`)."""
    with unit_of_work(now=now):
        row = WalletCharge(
            id=numbers.uuid7(),
            merchant_id=merchant_id,
            number=number,
            outcome=WalletCharge.Outcome.CLOSED,
            created_at=now,
        )
        WalletCharge.objects.bulk_create([row], ignore_conflicts=True)
        stored = WalletCharge.objects.get(merchant_id=merchant_id, number=number)
        return WalletChargeEnded(number, stored.outcome, replayed=stored.id != row.id)
