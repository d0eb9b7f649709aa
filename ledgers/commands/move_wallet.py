"""The one door through which a wallet's money moves."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db.models import F
from django.utils.translation import gettext_lazy as _

from kernel import errors, numbers
from ledgers.models import WalletAccount, WalletEntry

HIGHEST_FEN = 10**10
"""No movement is larger: a slip of the keyboard is not a fortune."""


class NotEnoughBalance(errors.Refusal):
    code = "NOT_ENOUGH_BALANCE"
    status = 422
    message = _("There is not enough money in the wallet.")


class WalletKeyReused(errors.Refusal):
    code = "IDEMPOTENCY_KEY_REUSED"
    status = 422
    message = _("This number was used for another movement of a wallet.")


errors.refuse_on_constraint("wallet_movement_happens_once", WalletKeyReused)
errors.refuse_on_constraint("wallet_is_not_overdrawn", NotEnoughBalance)


def locked_wallet(*, merchant_id: UUID, user_id: str, now: datetime) -> WalletAccount:
    """The user's wallet, made when it is new, locked until the caller's transaction ends."""
    WalletAccount.objects.bulk_create(
        [WalletAccount(id=numbers.uuid7(), merchant_id=merchant_id, user_id=user_id, created_at=now)],
        ignore_conflicts=True,
    )
    return WalletAccount.objects.select_for_update().get(merchant_id=merchant_id, user_id=user_id)


def move_wallet(
    *,
    account: WalletAccount,
    kind: str,
    delta_fen: int,
    reference: str,
    charge_no: str = "",
    note: str = "",
    person: str = "",
    now: datetime,
) -> tuple[WalletEntry, bool]:
    """One entry and the balance with it; the wallet is locked by the caller. The flag says that this reference moved
    it before, and then the entry is the one of that time. Raises NotEnoughBalance, WalletKeyReused (same reference,
    another movement), InvalidInput (nothing, or more than anybody means)."""
    if delta_fen == 0 or abs(delta_fen) > HIGHEST_FEN or not reference:
        raise errors.InvalidInput(delta_fen=delta_fen, reference=reference)
    done = WalletEntry.objects.filter(merchant_id=account.merchant_id, kind=kind, reference=reference).first()
    if done is not None:
        if (done.account_id, done.delta_fen, done.charge_no) != (account.id, delta_fen, charge_no):
            raise WalletKeyReused(reference=reference)
        return done, True
    after = account.balance_fen + delta_fen
    if after < 0:
        raise NotEnoughBalance(asked_fen=-delta_fen, have_fen=account.balance_fen)
    WalletAccount.objects.filter(id=account.id).update(
        balance_fen=F("balance_fen") + delta_fen, version=F("version") + 1
    )
    account.balance_fen = after
    entry = WalletEntry.objects.create(
        merchant_id=account.merchant_id,
        account=account,
        kind=kind,
        delta_fen=delta_fen,
        balance_after_fen=after,
        reference=reference,
        charge_no=charge_no,
        note=note,
        entered_by=person,
        created_at=now,
    )
    return entry, False
