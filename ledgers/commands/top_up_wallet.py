"""Put money into a user's wallet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel import errors
from kernel.transactions import unit_of_work
from ledgers.commands.move_wallet import locked_wallet, move_wallet
from ledgers.commands.post_journal import post_journal
from ledgers.models import JournalEntry, WalletEntry

FUNDING = "wallet_funding"
OWED_TO_USERS = "channel_clearing:balance"
"""What the wallets hold is what the channel "balance" has to pay: payments debit it, refunds and top-ups credit it."""


@dataclass(frozen=True)
class WalletToppedUp:
    user_id: str
    amount_fen: int
    balance_fen: int
    replayed: bool = False


def top_up_wallet(
    *,
    merchant_id: UUID,
    user_id: str,
    amount_fen: int,
    reference: str,
    note: str = "",
    person: str = "",
    now: datetime,
) -> WalletToppedUp:
    """Add `amount_fen` (positive) and post it: debit `wallet_funding`, credit what the wallets owe. `reference` is the
    number of the money's coming in (a transfer, a campaign) and the business key. May join. The same reference, user
    and amount again → replay. Raises InvalidInput, WalletKeyReused."""
    if amount_fen <= 0 or not user_id:
        raise errors.InvalidInput(amount_fen=amount_fen, user_id=user_id)
    with unit_of_work(now=now):
        account = locked_wallet(merchant_id=merchant_id, user_id=user_id, now=now)
        entry, replayed = move_wallet(
            account=account,
            kind=WalletEntry.Kind.TOP_UP,
            delta_fen=amount_fen,
            reference=reference,
            note=note[:200],
            person=person,
            now=now,
        )
        if not replayed:
            post_journal(
                merchant_id=merchant_id,
                kind=JournalEntry.Kind.TOP_UP,
                business_key=f"wallet:{entry.id}",
                reference=reference,
                lines={FUNDING: amount_fen, OWED_TO_USERS: -amount_fen},
                posted_at=now,
                now=now,
            )
        return WalletToppedUp(user_id, amount_fen, account.balance_fen, replayed=replayed)
