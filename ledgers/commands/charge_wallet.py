"""Pay with a wallet: take the money of one payment number, once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel import errors, numbers
from kernel.transactions import unit_of_work
from ledgers.commands.move_wallet import NotEnoughBalance, WalletKeyReused, move_wallet
from ledgers.models import WalletAccount, WalletCharge, WalletEntry


class WalletChargeClosed(errors.Refusal):
    code = "WALLET_CHARGE_CLOSED"
    message = _("This payment was closed and is not taken any more.")


@dataclass(frozen=True)
class WalletCharged:
    number: str
    user_id: str
    amount_fen: int
    replayed: bool = False


def charge_wallet(*, merchant_id: UUID, user_id: str, number: str, amount_fen: int, now: datetime) -> WalletCharged:
    """Take `amount_fen` for payment `number`. May join. The same number, user and amount again → replay.

    The number's row is what excludes charging and closing each other, whoever comes first. Raises NotEnoughBalance
    (also when there is no wallet), WalletChargeClosed, WalletKeyReused (other fields), InvalidInput."""
    if amount_fen <= 0 or not number:
        raise errors.InvalidInput(amount_fen=amount_fen, number=number)
    with unit_of_work(now=now):
        account = WalletAccount.objects.select_for_update().filter(merchant_id=merchant_id, user_id=user_id).first()
        if account is None:
            known = WalletCharge.objects.filter(merchant_id=merchant_id, number=number).first()
            if known is not None:
                return _known(known, user_id=user_id, amount_fen=amount_fen)
            raise NotEnoughBalance(asked_fen=amount_fen, have_fen=0)
        charge = WalletCharge(
            id=numbers.uuid7(),
            merchant_id=merchant_id,
            number=number,
            outcome=WalletCharge.Outcome.PAID,
            account=account,
            amount_fen=amount_fen,
            created_at=now,
        )
        WalletCharge.objects.bulk_create([charge], ignore_conflicts=True)
        stored = WalletCharge.objects.select_related("account").get(merchant_id=merchant_id, number=number)
        if stored.id != charge.id:
            return _known(stored, user_id=user_id, amount_fen=amount_fen)
        move_wallet(
            account=account,
            kind=WalletEntry.Kind.CHARGE,
            delta_fen=-amount_fen,
            reference=number,
            now=now,
        )
        return WalletCharged(number, user_id, amount_fen)


def _known(charge: WalletCharge, *, user_id: str, amount_fen: int) -> WalletCharged:
    if charge.outcome == WalletCharge.Outcome.CLOSED:
        raise WalletChargeClosed(number=charge.number)
    if charge.account is None or (charge.account.user_id, charge.amount_fen) != (user_id, amount_fen):
        raise WalletKeyReused(number=charge.number)
    return WalletCharged(charge.number, user_id, amount_fen, replayed=True)
