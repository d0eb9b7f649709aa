"""The one face every payment channel shows to the rest of Quits.

A driver (``payments/channels/*.py``) turns these calls into its channel's wire and the channel's answers into
*facts*. It knows no table and no order. Every amount is an ``int`` of fen, every time an aware ``datetime``.

What a caller may rely on
    * Exactly two exceptions leave a call: ``ChannelRefused`` (the channel said, verifiably, no) and
      ``ChannelUnknown`` (nothing is known; ask again with the same number and the same fields).
    * Exactly one leaves the parsing of a notify: ``NotifyRejected``.
    * "There is no such order" is a fact (``NOT_FOUND``), not an error, and no proof that a call was never
      accepted.
    * Nothing is retried inside a driver: who retries, and when, is the caller's durable decision.
    * No driver call may happen inside a database transaction: it is HTTP.

``now`` is the caller's business time. Signatures are stamped and checked by the machine's own clock instead,
because the channel compares them with its own; only the freshness of a *notify* is judged by ``now``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable


class Channel(StrEnum):
    WECHAT = "wechat"
    ALIPAY = "alipay"
    BALANCE = "balance"


class PaymentState(StrEnum):
    """Where a payment stands at the channel. ``REFUND`` is *paid, then refunded in part or whole*."""

    SUCCESS = "SUCCESS"
    REFUND = "REFUND"
    NOTPAY = "NOTPAY"
    USERPAYING = "USERPAYING"
    PAYERROR = "PAYERROR"
    CLOSED = "CLOSED"
    REVOKED = "REVOKED"
    NOT_FOUND = "NOT_FOUND"

    @property
    def is_paid(self) -> bool:
        return self in (PaymentState.SUCCESS, PaymentState.REFUND)


class RefundState(StrEnum):
    """Where a refund stands at the channel.

    ``CLOSED`` is final and the only state after which a new refund number may be used. ``ABNORMAL`` never
    permits one (``apply_abnormal_refund``, number unchanged). ``NOT_FOUND`` proves nothing: send the same
    number again.
    """

    PROCESSING = "PROCESSING"
    SUCCESS = "SUCCESS"
    CLOSED = "CLOSED"
    ABNORMAL = "ABNORMAL"
    NOT_FOUND = "NOT_FOUND"


class Verdict(StrEnum):
    """What became of a notify; stored with its raw bytes."""

    VERIFIED = "VERIFIED"
    FORGED = "FORGED"
    STALE = "STALE"
    MALFORMED = "MALFORMED"


class FollowUp(StrEnum):
    """What a refusal allows next. The table is payments.md's "May a new out_refund_no be used?"."""

    SAME_NUMBER_LATER = "same_number_later"  # not accepted: top up or slow down, then the same number again
    ASK_AND_ALERT = "ask_and_alert"  # the number carries other parameters at the channel: query, tell a human
    OTHER_MEANS = "other_means"  # this payer cannot be refunded this way
    FINAL = "final"  # a definite no


class Doubt(StrEnum):
    """Why nothing is known."""

    TIMEOUT = "timeout"
    CONNECTION = "connection"
    SERVER_ERROR = "server_error"
    UNAUTHENTICATED = "unauthenticated"  # our signature was not accepted; such an answer is itself unsigned
    UNSIGNED = "unsigned"
    FORGED = "forged"
    STALE = "stale"
    MALFORMED = "malformed"
    SYSTEM_BUSY = "system_busy"  # the channel itself says "unknown, ask again"
    CORRUPT_BILL = "corrupt_bill"


class ChannelRefused(Exception):
    """The channel answered, verifiably signed, a definite no. Status 0: not even sent, since it must be
    refused."""

    def __init__(self, status: int, code: str, message: str = "", follow_up: FollowUp = FollowUp.FINAL) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.follow_up = follow_up


class ChannelUnknown(Exception):
    """Nothing is known about what the channel did. Ask again: same number, same fields."""

    def __init__(self, reason: Doubt, detail: str = "", status: int | None = None) -> None:
        super().__init__(f"{reason}: {detail}" if detail else str(reason))
        self.reason = reason
        self.detail = detail
        self.status = status


class NotifyRejected(Exception):
    """A notify that must not be believed. ``verdict`` is FORGED, STALE or MALFORMED; never "unpaid"."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(f"{verdict}: {reason}")
        self.verdict = verdict
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class PaymentFact:
    """What the channel says about one payment.

    ``amount_fen`` is the order's amount at the channel (``amount.total`` / ``total_amount``): the figure to
    compare with our own record. ``payer_paid_fen`` is what the payer paid after the channel's own vouchers:
    never compare it. Both are ``None`` where the channel names no amount (not paid, not found).
    """

    channel: Channel
    state: PaymentState
    out_trade_no: str
    trade_no: str = ""
    amount_fen: int | None = None
    payer_paid_fen: int | None = None
    paid_at: datetime | None = None
    merchant_ref: str = ""  # mchid (WeChat), seller id (Alipay)
    app_id: str = ""
    payer_ref: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class RefundFact:
    """What the channel says about one refund. ``amount_fen`` is the refund asked for, the figure to compare;
    ``payer_refund_fen`` is what reached the payer after the share of the channel's vouchers. A notice may
    come without an amount (Alipay tells the trade's sum only): it is PROCESSING then, and a reason to query
    at once."""

    channel: Channel
    state: RefundState
    refund_no: str
    refund_id: str = ""
    out_trade_no: str = ""
    trade_no: str = ""
    amount_fen: int | None = None
    payer_refund_fen: int | None = None
    total_fen: int | None = None
    succeeded_at: datetime | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class Prepaid:
    """``client_params`` go to the mini-program as they are (``wx.requestPayment``, ``my.tradePay``).
    ``fact`` is set where the channel pays on the spot (balance)."""

    channel: Channel
    prepay_id: str
    client_params: Mapping[str, str]
    fact: PaymentFact | None = None


@dataclass(frozen=True, kw_only=True)
class PaymentNotice:
    notify_id: str
    event_type: str
    created_at: datetime | None
    fact: PaymentFact
    key_id: str = ""  # serial or id of the key that signed it
    plaintext: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class RefundNotice:
    notify_id: str
    event_type: str
    created_at: datetime | None
    fact: RefundFact
    merchant_ref: str = ""
    key_id: str = ""
    plaintext: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class NotifyAnswer:
    """The HTTP answer to a notify."""

    status: int
    body: bytes = b""
    content_type: str = ""


class BillKind(StrEnum):
    TRADE = "trade"
    REFUND = "refund"
    FUNDFLOW = "fundflow"


class BillState(StrEnum):
    AVAILABLE = "AVAILABLE"
    EMPTY = "EMPTY"  # the channel says that day has no rows
    CREATING = "CREATING"  # not there yet: ask again later


@dataclass(frozen=True, kw_only=True)
class BillFile:
    """One downloaded bill. ``raw`` is what ``sha1`` is over: the ungzipped text as bytes (Alipay: the zip as
    it came, the hash ours). ``raw`` is empty unless AVAILABLE."""

    channel: Channel
    kind: BillKind
    bill_on: date
    state: BillState
    raw: bytes = field(default=b"", repr=False)
    sha1: str = ""


class BillRowKind(StrEnum):
    PAYMENT = "payment"
    REFUND = "refund"
    REVOKED = "revoked"
    FLOW = "flow"


@dataclass(frozen=True, kw_only=True)
class BillRow:
    """One row of a bill, channel-neutral. Amounts are positive fen; the row's kind says the direction.

    PAYMENT  ``amount_fen`` = order amount, ``payer_fen`` = what the payer settled after vouchers.
    REFUND   ``amount_fen`` = applied for (申请退款金额), ``payer_fen`` = what reached the payer (退款金额).
    FLOW     ``amount_fen`` = the movement, ``is_income`` its direction, ``balance_fen`` the account after it.
    ``refund_state`` is the state *on the day the refund was accepted*; the channel never updates it later.
    ``fee_yuan`` has up to five decimals at the channel, so it is a Decimal of yuan. ``row_no`` starts at 1.
    """

    row_no: int
    kind: BillRowKind
    occurred_at: datetime
    out_trade_no: str = ""
    trade_no: str = ""
    refund_no: str = ""
    refund_id: str = ""
    amount_fen: int
    payer_fen: int | None = None
    voucher_fen: int | None = None
    trade_state: str = ""
    refund_state: str = ""
    refund_applied_at: datetime | None = None
    refund_succeeded_at: datetime | None = None
    fee_yuan: Decimal | None = None
    is_income: bool | None = None
    balance_fen: int | None = None
    reference: str = ""  # fund flow: 业务凭证号 (our refund or order number)
    raw: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)


class AbnormalRefundTo(StrEnum):
    USER_BANK_CARD = "USER_BANK_CARD"
    MERCHANT_BANK_CARD = "MERCHANT_BANK_CARD"


@runtime_checkable
class Gateway(Protocol):
    """One merchant account at one channel."""

    channel: Channel

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
        """Place the payment. ``payer_ref`` is the openid (WeChat), buyer id (Alipay), wallet owner (balance).
        Calling again with the same fields is safe. ``ChannelRefused('ORDERPAID')`` means: query."""

    def query_payment(self, *, out_trade_no: str, now: datetime) -> PaymentFact: ...

    def query_payment_by_trade_no(self, *, trade_no: str, out_trade_no: str, now: datetime) -> PaymentFact:
        """For a second charge: the same order number may have been paid under another trade number."""

    def close_payment(self, *, out_trade_no: str, now: datetime) -> None:
        """No more payment shall be accepted. Returns for an unknown number too, and never says whether it was
        paid: ``query_payment`` after every close, whether it returned or raised."""

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
        """Ask for a refund of ``amount_fen`` of a payment of ``total_fen``. A return means *accepted*; the
        state says whether it is done. ``trade_no``, where given, names the charge instead of the order (for a
        second charge)."""

    def query_refund(self, *, refund_no: str, out_trade_no: str, now: datetime) -> RefundFact: ...

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
        """Send an ABNORMAL refund on, number unchanged. A channel without it: ``ChannelRefused(501, …)``."""

    def download_bill(self, *, kind: BillKind, bill_on: date, now: datetime) -> BillFile:
        """The day's bill, its hash checked. An empty day and a bill not made yet are states, not errors."""

    def parse_bill(self, bill: BillFile) -> Iterator[BillRow]:
        """Stream the rows. Columns are found by name. The summary is checked against the rows at the end, so
        exhaust the iterator before you believe it: ``ChannelUnknown(CORRUPT_BILL)``."""

    def parse_notify(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> PaymentNotice | RefundNotice:
        """Verify and decrypt whatever came. Alipay sends both kinds to the payment's address.

        ``NotifyRejected`` when it must not be believed; ``ChannelUnknown`` when the keys to judge it by
        cannot be had just now: answer ``nack`` and let it come again."""

    def parse_payment_notify(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> PaymentNotice:
        """As ``parse_notify``; a notice of another kind is MALFORMED."""

    def parse_refund_notify(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> RefundNotice: ...

    def ack(self) -> NotifyAnswer:
        """Answer once the notify is durable: the channel then stops sending it."""

    def nack(self, message: str) -> NotifyAnswer:
        """Answer that makes the channel send it again."""
