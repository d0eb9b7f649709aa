"""The wallet as a channel: the adapter between a ledger of wallets and the gateway's facts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest

from payments import registry
from payments.channels.balance import BalanceGateway, WalletEntry, WalletRefused
from payments.gateway import (
    AbnormalRefundTo,
    BillKind,
    BillState,
    ChannelRefused,
    ChannelUnknown,
    FollowUp,
    Gateway,
    NotifyRejected,
    PaymentState,
    RefundState,
)

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


@dataclass
class BookOfWallets:
    """A ledger of wallets in memory, with the rules that the protocol asks for."""

    balances: dict[str, int] = field(default_factory=lambda: {"alice": 30000})
    charges: dict[str, WalletEntry] = field(default_factory=dict)
    credits: dict[str, WalletEntry] = field(default_factory=dict)
    forbidden: set[str] = field(default_factory=set)
    broken: bool = False

    def charge(self, *, number: str, owner: str, amount_fen: int, now: datetime) -> WalletEntry:
        if self.broken:
            raise RuntimeError("the database went away")
        known = self.charges.get(number)
        if known is not None:
            if (known.owner, known.amount_fen) != (owner, amount_fen):
                raise WalletRefused("DIFFERS")
            return known
        if number in self.forbidden:
            raise WalletRefused("CLOSED")
        if owner not in self.balances:
            raise WalletRefused("NO_WALLET")
        if self.balances[owner] < amount_fen:
            raise WalletRefused("NOT_ENOUGH_BALANCE", f"{self.balances[owner]} fen")
        self.balances[owner] -= amount_fen
        self.charges[number] = WalletEntry(
            number=number, entry_no=f"W{len(self.charges)}", owner=owner, amount_fen=amount_fen, posted_at=now
        )
        return self.charges[number]

    def credit(
        self, *, number: str, charge_no: str, amount_fen: int, total_fen: int, reason: str, now: datetime
    ) -> WalletEntry:
        known = self.credits.get(number)
        if known is not None:
            if (known.charge_no, known.amount_fen) != (charge_no, amount_fen):
                raise WalletRefused("DIFFERS")
            return known
        charge = self.charges[charge_no]
        if charge.refunded_fen + amount_fen > charge.amount_fen:
            raise WalletRefused("TOO_MUCH")
        self.charges[charge_no] = replace(charge, refunded_fen=charge.refunded_fen + amount_fen)
        self.balances[charge.owner] += amount_fen
        self.credits[number] = WalletEntry(
            number=number,
            entry_no=f"C{len(self.credits)}",
            owner=charge.owner,
            amount_fen=amount_fen,
            posted_at=now,
            charge_no=charge_no,
            total_fen=total_fen,
        )
        return self.credits[number]

    def find_charge(self, *, number: str) -> WalletEntry | None:
        return self.charges.get(number)

    def find_credit(self, *, number: str) -> WalletEntry | None:
        return self.credits.get(number)

    def forbid(self, *, number: str, now: datetime) -> bool:
        if number in self.charges:
            return False
        self.forbidden.add(number)
        return True

    def is_forbidden(self, *, number: str) -> bool:
        return number in self.forbidden


@pytest.fixture
def book() -> BookOfWallets:
    return BookOfWallets()


@pytest.fixture
def gateway(book: BookOfWallets) -> BalanceGateway:
    return BalanceGateway(book)


def prepay(gateway: BalanceGateway, number: str = "Q1", amount_fen: int = 26000, **fields: object) -> object:
    known = {
        "out_trade_no": number,
        "amount_fen": amount_fen,
        "description": "x",
        "payer_ref": "alice",
        "notify_url": "",
        "expires_at": None,
        "now": NOW,
    }
    return gateway.prepay(**known | fields)


def refund(gateway: BalanceGateway, number: str, amount_fen: int, **fields: object) -> object:
    known = {
        "refund_no": number,
        "out_trade_no": "Q1",
        "amount_fen": amount_fen,
        "total_fen": 26000,
        "reason": "",
        "notify_url": "",
        "now": NOW,
    }
    return gateway.refund(**known | fields)


def test_paid_on_the_spot_and_refunded_on_the_spot(gateway: BalanceGateway, book: BookOfWallets) -> None:
    assert isinstance(gateway, Gateway)
    paid = prepay(gateway).fact
    assert (paid.state, paid.amount_fen, paid.trade_no, paid.paid_at) == (PaymentState.SUCCESS, 26000, "W0", NOW)
    assert prepay(gateway).fact == paid, "the same number charges once"
    assert book.balances == {"alice": 4000}
    tea = refund(gateway, "AS1-1", 17167)
    assert (tea.state, tea.amount_fen, tea.total_fen) == (RefundState.SUCCESS, 17167, 26000)
    assert refund(gateway, "AS1-1", 17167) == tea
    assert gateway.query_refund(refund_no="AS1-1", out_trade_no="Q1", now=NOW) == tea
    assert gateway.query_payment(out_trade_no="Q1", now=NOW).state is PaymentState.REFUND
    refund(gateway, "AS2-1", 8833)
    assert book.balances == {"alice": 30000}


@pytest.mark.parametrize(
    ("fields", "code", "follow_up"),
    [
        ({"amount_fen": 30001}, "NOT_ENOUGH_BALANCE", FollowUp.FINAL),
        ({"payer_ref": "nobody"}, "NO_WALLET", FollowUp.OTHER_MEANS),
        ({"amount_fen": 0}, "NOT_SENT", FollowUp.FINAL),
        ({"expires_at": NOW - timedelta(seconds=1)}, "NOT_SENT", FollowUp.FINAL),
    ],
)
def test_refusals(gateway: BalanceGateway, book: BookOfWallets, fields: dict, code: str, follow_up: FollowUp) -> None:
    with pytest.raises(ChannelRefused) as refused:
        prepay(gateway, **fields)
    assert (refused.value.code, refused.value.follow_up) == (code, follow_up)
    assert (book.charges, book.balances) == ({}, {"alice": 30000})


def test_a_number_keeps_its_fields(gateway: BalanceGateway) -> None:
    prepay(gateway)
    with pytest.raises(ChannelRefused) as refused:
        prepay(gateway, amount_fen=1)
    assert refused.value.follow_up is FollowUp.ASK_AND_ALERT
    refund(gateway, "AS1-1", 100)
    for number, amount in (("AS1-1", 101), ("AS2-1", 26000), ("AS3-1", 26001)):
        with pytest.raises(ChannelRefused):
            refund(gateway, number, amount)


def test_closed_is_never_charged_and_charged_is_never_closed(gateway: BalanceGateway) -> None:
    assert gateway.query_payment(out_trade_no="Q1", now=NOW).state is PaymentState.NOT_FOUND
    gateway.close_payment(out_trade_no="Q1", now=NOW)
    assert gateway.query_payment(out_trade_no="Q1", now=NOW).state is PaymentState.CLOSED
    with pytest.raises(ChannelRefused):
        prepay(gateway)
    prepay(gateway, "Q2", 100)
    with pytest.raises(ChannelRefused):
        gateway.close_payment(out_trade_no="Q2", now=NOW)
    found = gateway.query_payment_by_trade_no(trade_no="W0", out_trade_no="Q2", now=NOW)
    assert found.state is PaymentState.SUCCESS
    other = gateway.query_payment_by_trade_no(trade_no="W9", out_trade_no="Q2", now=NOW)
    assert other.state is PaymentState.NOT_FOUND


def test_a_stumbling_wallet_is_unknown(gateway: BalanceGateway, book: BookOfWallets) -> None:
    book.broken = True
    with pytest.raises(ChannelUnknown):
        prepay(gateway)


def test_no_wire_no_bills_no_notifies(gateway: BalanceGateway) -> None:
    assert gateway.query_refund(refund_no="A", out_trade_no="Q", now=NOW).state is RefundState.NOT_FOUND
    bill = gateway.download_bill(kind=BillKind.REFUND, bill_on=NOW.date(), now=NOW)
    assert (bill.state, list(gateway.parse_bill(bill))) == (BillState.EMPTY, [])
    for parse in (gateway.parse_notify, gateway.parse_payment_notify, gateway.parse_refund_notify):
        with pytest.raises(NotifyRejected):
            parse(headers={}, body=b"", now=NOW)
    with pytest.raises(ChannelRefused):
        gateway.apply_abnormal_refund(refund_no="A", refund_id="B", to=AbnormalRefundTo.MERCHANT_BANK_CARD, now=NOW)
    assert (gateway.ack().status, gateway.nack("").status) == (204, 404)


def test_through_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_wallets", None)
    account = SimpleNamespace(channel="balance", merchant_id=uuid4(), mchid="", app_id="", settings={})
    config = registry.config_of(account, {})
    with pytest.raises(ValueError, match="no wallet"):
        registry.build_gateway("balance", config)
    books: dict[UUID, BookOfWallets] = {}
    registry.register_wallet(lambda merchant_id: books.setdefault(merchant_id, BookOfWallets()))
    assert isinstance(registry.build_gateway("balance", config), BalanceGateway)
    assert list(books) == [account.merchant_id]
