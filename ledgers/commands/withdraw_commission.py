"""Pay commission out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel import errors
from kernel.transactions import unit_of_work
from ledgers.commands.move_commission import (
    Bucket,
    CommissionKeyReused,
    Kind,
    NotWithdrawable,
    locked_commission_account,
    move_commission,
)
from ledgers.models import CommissionEntry


@dataclass(frozen=True)
class CommissionWithdrawn:
    beneficiary: str
    amount_fen: int
    withdrawable_fen: int
    replayed: bool = False


def withdraw_commission(
    *, merchant_id: UUID, beneficiary: str, amount_fen: int, business_key: str, reference: str, now: datetime
) -> CommissionWithdrawn:
    """Withdrawable → withdrawn, never below zero. May join. The same key again → replay. Raises NotWithdrawable,
    CommissionKeyReused, InvalidInput."""
    if amount_fen <= 0:
        raise errors.InvalidInput(amount_fen=amount_fen)
    with unit_of_work(now=now):
        account = locked_commission_account(merchant_id=merchant_id, beneficiary=beneficiary, now=now)
        done = CommissionEntry.objects.filter(merchant_id=merchant_id, business_key=business_key, bucket="withdrawn")
        known = done.first()
        if known is not None:
            if (known.account_id, known.kind, known.delta_fen) != (account.id, Kind.WITHDRAW, amount_fen):
                raise CommissionKeyReused(business_key=business_key)
            return CommissionWithdrawn(beneficiary, amount_fen, account.withdrawable_fen, replayed=True)
        if amount_fen > account.withdrawable_fen:
            raise NotWithdrawable(asked_fen=amount_fen, have_fen=max(0, account.withdrawable_fen))
        move_commission(
            account=account,
            kind=Kind.WITHDRAW,
            deltas={Bucket.WITHDRAWABLE: -amount_fen, Bucket.WITHDRAWN: amount_fen},
            business_key=business_key,
            reference=reference,
            commission=None,
            now=now,
        )
        return CommissionWithdrawn(beneficiary, amount_fen, account.withdrawable_fen - amount_fen)
