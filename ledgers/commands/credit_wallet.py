"""Refund to a wallet, whatever the money was paid with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import F
from django.utils.translation import gettext_lazy as _

from kernel import errors
from kernel.transactions import unit_of_work
from ledgers.commands.move_wallet import WalletKeyReused, locked_wallet, move_wallet
from ledgers.models import WalletCharge, WalletEntry


class WalletRefundTooLarge(errors.Refusal):
    code = "REFUND_EXCEEDS_PAID"
    status = 422
    message = _("More would go back than the wallet paid.")


class WalletUnknown(errors.Refusal):
    code = "WALLET_UNKNOWN"
    status = 422
    message = _("It is not known whose wallet this is.")


errors.refuse_on_constraint("wallet_refunds_within_charge", WalletRefundTooLarge)


@dataclass(frozen=True)
class WalletCredited:
    refund_no: str
    user_id: str
    amount_fen: int
    balance_fen: int
    replayed: bool = False


def credit_wallet(
    *,
    merchant_id: UUID,
    refund_no: str,
    charge_no: str,
    user_id: str,
    amount_fen: int,
    reason: str = "",
    now: datetime,
) -> WalletCredited:
    """Give `amount_fen` back under `refund_no`. May join. The same number and fields again → replay.

    A payment that a wallet made goes back to that wallet (`user_id` may be empty) and never beyond its amount; any
    other goes to `user_id`, whose wallet is made when it is new: how much, the payment's own books guard.
    Raises WalletRefundTooLarge, WalletKeyReused, WalletUnknown (no user), InvalidInput."""
    if amount_fen <= 0 or not refund_no or not charge_no:
        raise errors.InvalidInput(amount_fen=amount_fen, refund_no=refund_no, charge_no=charge_no)
    with unit_of_work(now=now):
        charge = (
            WalletCharge.objects.select_related("account")
            .filter(merchant_id=merchant_id, number=charge_no, outcome=WalletCharge.Outcome.PAID)
            .first()
        )
        owner = charge.account.user_id if charge is not None and charge.account is not None else user_id
        if not owner:
            raise WalletUnknown(charge_no=charge_no)
        if user_id and owner != user_id:
            raise WalletKeyReused(charge_no=charge_no)
        account = locked_wallet(merchant_id=merchant_id, user_id=owner, now=now)
        _entry, replayed = move_wallet(
            account=account,
            kind=WalletEntry.Kind.CREDIT,
            delta_fen=amount_fen,
            reference=refund_no,
            charge_no=charge_no,
            note=reason[:200],
            now=now,
        )
        if charge is not None and not replayed:
            room = WalletCharge.objects.filter(id=charge.id, refunded_fen__lte=F("amount_fen") - amount_fen)
            if not room.update(refunded_fen=F("refunded_fen") + amount_fen):
                raise WalletRefundTooLarge(charge_no=charge_no, asked_fen=amount_fen, paid_fen=charge.amount_fen)
        return WalletCredited(refund_no, owner, amount_fen, account.balance_fen, replayed=replayed)
