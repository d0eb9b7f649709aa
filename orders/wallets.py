"""The wallet that the balance channel charges: the ledgers' books, as payments want to be answered.

Payments and ledgers know nothing of each other; an order's user is known here, so here they meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel.errors import InvalidInput, Refusal
from ledgers.commands.charge_wallet import WalletChargeClosed, charge_wallet
from ledgers.commands.close_wallet_charge import close_wallet_charge
from ledgers.commands.credit_wallet import WalletRefundTooLarge, WalletUnknown, credit_wallet
from ledgers.commands.move_wallet import NotEnoughBalance, WalletKeyReused
from ledgers.models import WalletAccount, WalletCharge, WalletEntry
from orders.models import Order
from payments.channels.balance import WalletEntry as Entry
from payments.channels.balance import WalletRefused
from payments.models import Payment

CODES: dict[type[Refusal], str] = {
    NotEnoughBalance: "NOT_ENOUGH_BALANCE",
    WalletChargeClosed: "CLOSED",
    WalletKeyReused: "DIFFERS",
    WalletRefundTooLarge: "TOO_MUCH",
    WalletUnknown: "NO_WALLET",
    InvalidInput: "NOT_SENT",
}


@dataclass(frozen=True)
class LedgerWallet:
    """One merchant's wallets (payments.channels.balance.Wallet). A movement is one transaction, or part of the
    caller's."""

    merchant_id: UUID

    def charge(self, *, number: str, owner: str, amount_fen: int, now: datetime) -> Entry:
        try:
            charge_wallet(merchant_id=self.merchant_id, user_id=owner, number=number, amount_fen=amount_fen, now=now)
        except tuple(CODES) as refusal:
            raise self._refused(refusal) from refusal
        entry = self.find_charge(number=number)
        assert entry is not None
        return entry

    def credit(
        self, *, number: str, charge_no: str, amount_fen: int, total_fen: int, reason: str, now: datetime
    ) -> Entry:
        try:
            credit_wallet(
                merchant_id=self.merchant_id,
                refund_no=number,
                charge_no=charge_no,
                user_id=self._payer_of(charge_no),
                amount_fen=amount_fen,
                reason=reason,
                now=now,
            )
        except tuple(CODES) as refusal:
            raise self._refused(refusal) from refusal
        entry = self.find_credit(number=number)
        assert entry is not None
        return entry

    def find_charge(self, *, number: str) -> Entry | None:
        entry = self._entry(WalletEntry.Kind.CHARGE, number)
        if entry is None:
            return None
        charge = WalletCharge.objects.get(merchant_id=self.merchant_id, number=number)
        return Entry(
            number=number,
            entry_no=f"W{entry.id}",
            owner=entry.account.user_id,
            amount_fen=-entry.delta_fen,
            posted_at=entry.created_at,
            refunded_fen=charge.refunded_fen,
        )

    def find_credit(self, *, number: str) -> Entry | None:
        entry = self._entry(WalletEntry.Kind.CREDIT, number)
        if entry is None:
            return None
        return Entry(
            number=number,
            entry_no=f"W{entry.id}",
            owner=entry.account.user_id,
            amount_fen=entry.delta_fen,
            posted_at=entry.created_at,
            charge_no=entry.charge_no,
        )

    def forbid(self, *, number: str, now: datetime) -> bool:
        ended = close_wallet_charge(merchant_id=self.merchant_id, number=number, now=now)
        return ended.outcome == WalletCharge.Outcome.CLOSED

    def is_forbidden(self, *, number: str) -> bool:
        return WalletCharge.objects.filter(
            merchant_id=self.merchant_id, number=number, outcome=WalletCharge.Outcome.CLOSED
        ).exists()

    def _entry(self, kind: str, number: str) -> WalletEntry | None:
        found = WalletEntry.objects.filter(merchant_id=self.merchant_id, kind=kind, reference=number)
        return found.select_related("account").first()

    def _payer_of(self, charge_no: str) -> str:
        """The user of the order that this payment was for."""
        order_no = (
            Payment.objects.filter(merchant_id=self.merchant_id, out_trade_no=charge_no)
            .values_list("order_no", flat=True)
            .first()
        )
        order = Order.objects.filter(merchant_id=self.merchant_id, order_no=order_no or "").first()
        return order.user_id if order else ""

    def _refused(self, refusal: Refusal) -> WalletRefused:
        return WalletRefused(CODES[type(refusal)], ", ".join(f"{name} {value}" for name, value in refusal.data.items()))


NEWEST = 50


def get_wallet(*, merchant_id: UUID, user_id: str) -> tuple[WalletAccount | None, list[WalletEntry]]:
    """A user's wallet, if there is one, and its newest entries."""
    wallet = WalletAccount.objects.filter(merchant_id=merchant_id, user_id=user_id).first()
    return wallet, list(wallet.entries.order_by("-id")[:NEWEST]) if wallet else []
