"""The user's own wallet as a payment channel, and as the way back for refunds that no other channel can take.

The wallet is somebody else's ledger, handed in as a ``Wallet``: this adapter turns its entries into facts.
There is no wire, so there are no notifies and no bills; everything is done on the spot, and ``Prepaid.fact``
says so.

A wallet keeps, per entry, a number of ours: the payment's or the refund's. That number is the idempotency
key; the same number with other fields must raise ``WalletRefused('DIFFERS')``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Protocol, TypeVar
from uuid import UUID

from payments.channels.sending import not_sent, whole_fen
from payments.gateway import (
    AbnormalRefundTo,
    BillFile,
    BillKind,
    BillRow,
    BillState,
    Channel,
    ChannelRefused,
    ChannelUnknown,
    Doubt,
    FollowUp,
    NotifyAnswer,
    NotifyRejected,
    PaymentFact,
    PaymentNotice,
    PaymentState,
    Prepaid,
    RefundFact,
    RefundNotice,
    RefundState,
    Verdict,
)

Answered = TypeVar("Answered")

FOLLOW_UPS = {
    "DIFFERS": FollowUp.ASK_AND_ALERT,
    "NO_WALLET": FollowUp.OTHER_MEANS,
}


class WalletRefused(Exception):
    """The wallet's definite no: NOT_ENOUGH_BALANCE, CLOSED, NO_WALLET, DIFFERS, TOO_MUCH."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, kw_only=True)
class WalletEntry:
    """One movement. ``entry_no`` is the ledger's own number; ``refunded_fen`` is what went back of a charge
    so far."""

    number: str
    entry_no: str
    owner: str
    amount_fen: int
    posted_at: datetime
    charge_no: str = ""
    total_fen: int | None = None
    refunded_fen: int = 0


class Wallet(Protocol):
    """One merchant's wallets; amounts are positive fen. A movement is one transaction, or part of the caller's: no
    wire lies between, so a refund that changes its way to the wallet is one commit with the wallet's entry."""

    def charge(self, *, number: str, owner: str, amount_fen: int, now: datetime) -> WalletEntry:
        """Take from the owner's wallet. Refuses NOT_ENOUGH_BALANCE, CLOSED, NO_WALLET, DIFFERS."""

    def credit(
        self, *, number: str, charge_no: str, amount_fen: int, total_fen: int, reason: str, now: datetime
    ) -> WalletEntry:
        """Give back to whoever paid ``charge_no``, by wallet or otherwise. Refuses TOO_MUCH, NO_WALLET,
        DIFFERS."""

    def find_charge(self, *, number: str) -> WalletEntry | None: ...

    def find_credit(self, *, number: str) -> WalletEntry | None: ...

    def forbid(self, *, number: str, now: datetime) -> bool:
        """Never accept a charge under this number. False when it is charged already."""

    def is_forbidden(self, *, number: str) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class BalanceConfig:
    merchant_id: UUID


class BalanceGateway:
    channel = Channel.BALANCE

    def __init__(self, wallet: Wallet) -> None:
        self._wallet = wallet

    def prepay(
        self,
        *,
        out_trade_no: str,
        amount_fen: int,
        description: str,
        payer_ref: str,
        notify_url: str,
        expires_at: datetime | None,
        now: datetime,
    ) -> Prepaid:
        """Pays at once, in the window only."""
        if expires_at is not None and now > expires_at:
            raise not_sent("the payment window is over")
        entry = asked(
            lambda: self._wallet.charge(number=out_trade_no, owner=payer_ref, amount_fen=whole_fen(amount_fen), now=now)
        )
        return Prepaid(channel=Channel.BALANCE, prepay_id=entry.entry_no, client_params={}, fact=payment_fact(entry))

    def query_payment(self, *, out_trade_no: str, now: datetime) -> PaymentFact:
        entry = asked(lambda: self._wallet.find_charge(number=out_trade_no))
        if entry is not None:
            return payment_fact(entry)
        forbidden = asked(lambda: self._wallet.is_forbidden(number=out_trade_no))
        state = PaymentState.CLOSED if forbidden else PaymentState.NOT_FOUND
        return PaymentFact(channel=Channel.BALANCE, state=state, out_trade_no=out_trade_no)

    def query_payment_by_trade_no(self, *, trade_no: str, out_trade_no: str, now: datetime) -> PaymentFact:
        fact = self.query_payment(out_trade_no=out_trade_no, now=now)
        if fact.trade_no == trade_no:
            return fact
        return PaymentFact(
            channel=Channel.BALANCE,
            state=PaymentState.NOT_FOUND,
            out_trade_no=out_trade_no,
            trade_no=trade_no,
        )

    def close_payment(self, *, out_trade_no: str, now: datetime) -> None:
        if not asked(lambda: self._wallet.forbid(number=out_trade_no, now=now)):
            raise ChannelRefused(409, "ORDERPAID", "the wallet was charged already")

    def refund(
        self,
        *,
        refund_no: str,
        out_trade_no: str,
        amount_fen: int,
        total_fen: int,
        reason: str,
        notify_url: str,
        trade_no: str = "",
        now: datetime,
    ) -> RefundFact:
        if whole_fen(amount_fen) > whole_fen(total_fen):
            raise not_sent("a refund above its payment")
        entry = asked(
            lambda: self._wallet.credit(
                number=refund_no,
                charge_no=out_trade_no,
                amount_fen=amount_fen,
                total_fen=total_fen,
                reason=reason,
                now=now,
            )
        )
        return refund_fact(entry)

    def query_refund(self, *, refund_no: str, out_trade_no: str, now: datetime) -> RefundFact:
        entry = asked(lambda: self._wallet.find_credit(number=refund_no))
        if entry is None:
            return RefundFact(
                channel=Channel.BALANCE,
                state=RefundState.NOT_FOUND,
                refund_no=refund_no,
                out_trade_no=out_trade_no,
            )
        return refund_fact(entry)

    def apply_abnormal_refund(
        self,
        *,
        refund_no: str,
        refund_id: str,
        to: AbnormalRefundTo,
        bank_type: str = "",
        bank_account: str = "",
        real_name: str = "",
        now: datetime,
    ) -> RefundFact:
        raise ChannelRefused(501, "NOT_SUPPORTED", "a wallet has no abnormal refunds")

    def download_bill(self, *, kind: BillKind, bill_on: date, now: datetime) -> BillFile:
        """A wallet has no other side to compare with: its days are empty."""
        return BillFile(channel=Channel.BALANCE, kind=kind, bill_on=bill_on, state=BillState.EMPTY)

    def parse_bill(self, bill: BillFile) -> Iterator[BillRow]:
        return iter(())

    def parse_notify(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> PaymentNotice | RefundNotice:
        raise NotifyRejected(Verdict.FORGED, "a wallet sends no notifies")

    def parse_payment_notify(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> PaymentNotice:
        raise NotifyRejected(Verdict.FORGED, "a wallet sends no notifies")

    def parse_refund_notify(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> RefundNotice:
        raise NotifyRejected(Verdict.FORGED, "a wallet sends no notifies")

    def ack(self) -> NotifyAnswer:
        return NotifyAnswer(status=204)

    def nack(self, message: str) -> NotifyAnswer:
        return NotifyAnswer(status=404)


def asked(question: Callable[[], Answered]) -> Answered:
    """The wallet's answer; its no as a refusal, and any stumble as *unknown*: it may have committed."""
    try:
        return question()
    except WalletRefused as refused:
        follow_up = FOLLOW_UPS.get(refused.code, FollowUp.FINAL)
        raise ChannelRefused(409, refused.code, refused.message, follow_up) from refused
    except (ChannelRefused, ChannelUnknown):
        raise
    except Exception as error:
        raise ChannelUnknown(Doubt.CONNECTION, f"{type(error).__name__}: {error}") from error


def payment_fact(entry: WalletEntry) -> PaymentFact:
    return PaymentFact(
        channel=Channel.BALANCE,
        state=PaymentState.REFUND if entry.refunded_fen else PaymentState.SUCCESS,
        out_trade_no=entry.number,
        trade_no=entry.entry_no,
        amount_fen=entry.amount_fen,
        payer_paid_fen=entry.amount_fen,
        paid_at=entry.posted_at,
        payer_ref=entry.owner,
    )


def refund_fact(entry: WalletEntry) -> RefundFact:
    return RefundFact(
        channel=Channel.BALANCE,
        state=RefundState.SUCCESS,
        refund_no=entry.number,
        refund_id=entry.entry_no,
        out_trade_no=entry.charge_no,
        amount_fen=entry.amount_fen,
        payer_refund_fen=entry.amount_fen,
        total_fen=entry.total_fen,
        succeeded_at=entry.posted_at,
    )
