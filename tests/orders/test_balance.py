"""The balance channel end to end over the API: topped up, paid on the spot, refunded; never another's money."""

from functools import partial
from typing import Any

import pytest

from aftersales.commands.approve_after_sales import approve_after_sales
from ledgers import checks
from ledgers.commands.charge_wallet import charge_wallet
from ledgers.commands.top_up_wallet import top_up_wallet
from ledgers.models import JournalLine, WalletAccount, WalletEntry
from orders.commands.check_order import check_order
from orders.commands.close_order import close_order
from orders.models import Anomaly, Order
from orders.wallets import LedgerWallet
from payments.channels.balance import WalletRefused
from payments.commands.approve_offline_refund import approve_offline_refund
from payments.commands.begin_prepay import begin_prepay
from payments.commands.enter_voucher import enter_voucher
from payments.commands.open_payment import open_payment
from payments.commands.probe_account import probe_account
from payments.commands.record_refund_fact import record_refund_fact
from payments.commands.refund_to_balance import (
    VoucherEnteredAlready,
    WalletRefusedRefund,
    refund_to_balance,
)
from payments.commands.request_refund import request_refund
from payments.commands.save_account import save_account
from payments.gateway import Channel, RefundFact, RefundState
from payments.models import Payment, RefundRequest
from tests.aftersales.backend import Backend
from tests.aftersales.build import MERCHANT
from tests.orders.factories import ADDRESS, Shop, drain, order_of, payment_of, race, stock_of
from tests.orders.test_api import LINES, refusal
from tests.orders.test_chaos import send_refunds


@pytest.fixture
def rich(shop: Shop) -> Shop:
    """The shop takes balance too, and its user has 300.00."""
    save_account(merchant_id=shop.id, channel="balance", mchid="", app_id="", now=shop.now)
    top_up_wallet(merchant_id=shop.id, user_id="user-1", amount_fen=30000, reference="bank-1", now=shop.now)
    return shop


@pytest.fixture
def backend(rich: Shop) -> Backend:
    return Backend(rich.merchant)


def balance(user_id: str = "user-1") -> int:
    return WalletAccount.objects.get(user_id=user_id).balance_fen


def ordered_by(backend: Backend, shop: Shop, **quote: Any) -> str:
    asked = {"user_id": "user-1", "lines": LINES, "freight_fen": 1000, "address": ADDRESS, **quote}
    quoted = backend.post("/quotes", asked)
    assert quoted.status_code == 201, quoted.content
    ordered = backend.post("/orders", {"quote_id": quoted.json()["quote_id"], "pay_method": "balance"})
    assert ordered.status_code == 201, ordered.content
    return ordered.json()["order_no"]


def test_over_the_api_from_the_quote_to_the_refund(backend: Backend, rich: Shop) -> None:
    number = ordered_by(backend, rich, coupon_id=str(rich.coupon()))
    paid = backend.post(f"/orders/{number}/pay", {"user_id": "user-1"}, key="pay-1")
    assert (paid.status_code, paid.json()["status"], paid.json()["amount_fen"]) == (201, 10, 26000)
    again = backend.post(f"/orders/{number}/pay", {"user_id": "user-1"}, key="pay-1")
    assert again["Idempotency-Replayed"] == "true"
    assert backend.get("/wallets/user-1").json()["balance_fen"] == 4000
    assert backend.get(f"/orders/{number}").json()["coupon_state"] == "redeemed"

    item = {"line_no": 2, "type": 1, "qty": 1, "reason_code": "changed_mind"}
    applied = backend.post("/after-sales", {"user_id": "user-1", "order_no": number, "items": [item]})
    assert applied.status_code == 201, applied.content
    [claim] = applied.json()["after_sales"]
    approve_after_sales(
        merchant_id=rich.id,
        after_sales_no=claim["after_sales_no"],
        expected_version=claim["version"],
        by=MERCHANT,
        key=rich.key(),
        now=rich.now,
    )
    drain()
    send_refunds()
    drain()
    refunded = RefundRequest.objects.get()
    assert (refunded.status, refunded.route, refunded.amount_fen) == ("SUCCEEDED", "channel", 17167)
    assert backend.get(f"/after-sales/{claim['after_sales_no']}").json()["status"] == "REFUND_SUCCESS"
    wallet = backend.get("/wallets/user-1").json()
    assert wallet["balance_fen"] == 21167
    assert [(entry["kind"], entry["delta_fen"]) for entry in wallet["entries"]] == [
        ("credit", 17167),
        ("charge", -26000),
        ("top_up", 30000),
    ]
    booked = JournalLine.objects.filter(account="channel_clearing:balance").values_list("amount_fen", flat=True)
    assert sum(booked) == -21167, "what the wallets hold is what the channel owes"
    assert checks.wallets_that_differ() == []


def test_a_stranger_reads_no_wallet(backend: Backend, rich: Shop) -> None:
    from tests.merchants.factories import a_merchant

    stranger = Backend(a_merchant(now=rich.now, code="stranger"))
    assert stranger.get("/wallets/user-1").json() == {"user_id": "user-1", "balance_fen": 0, "entries": []}


def test_nobody_pays_with_another_wallet(backend: Backend, rich: Shop) -> None:
    top_up_wallet(merchant_id=rich.id, user_id="rich", amount_fen=99999, reference="bank-2", now=rich.now)
    number = ordered_by(backend, rich)
    answer = backend.post(f"/orders/{number}/pay", {"user_id": "user-1", "payer_ref": "rich"})
    assert refusal(answer) == (400, "INVALID_INPUT")
    assert (balance("rich"), Payment.objects.count()) == (99999, 0)


def test_too_little_leaves_the_order_payable(backend: Backend, rich: Shop) -> None:
    number = ordered_by(backend, rich)
    asked = {"user_id": "user-1"}
    assert refusal(backend.post(f"/orders/{number}/pay", asked)) == (422, "NOT_ENOUGH_BALANCE")
    assert (Payment.objects.get().status, balance()) == ("PREPAYING", 30000)
    top_up_wallet(merchant_id=rich.id, user_id="user-1", amount_fen=1000, reference="bank-2", now=rich.now)
    assert backend.post(f"/orders/{number}/pay", asked).json()["status"] == 10
    assert balance() == 0


def test_too_little_leaves_the_order_free_to_end_at_once(backend: Backend, rich: Shop) -> None:
    """Our wallet's number is closed for good, so nothing has to be waited for; what comes later is refused there."""
    number = ordered_by(backend, rich)
    assert refusal(backend.post(f"/orders/{number}/pay", {"user_id": "user-1"})) == (422, "NOT_ENOUGH_BALANCE")
    order = Order.objects.get(order_no=number)

    assert close_order(order_id=order.pk, reason="timeout", now=rich.now).ending == "ended"

    payment = Payment.objects.get()
    assert (payment.status, Anomaly.objects.count()) == ("CLOSED", 0)
    top_up_wallet(merchant_id=rich.id, user_id="user-1", amount_fen=1000, reference="bank-2", now=rich.now)
    with pytest.raises(WalletRefused, match="CLOSED"):
        LedgerWallet(rich.id).charge(number=payment.out_trade_no, owner="user-1", amount_fen=31000, now=rich.now)
    assert balance() == 31000


@pytest.mark.parametrize("is_enough", [False, True])
def test_paying_and_cancelling_at_once(rich: Shop, is_enough: bool) -> None:
    """No channel is in between, so nobody is told to come back: the order is paid or cancelled, by who asked for it."""
    for number in range(4):
        if is_enough:
            top_up_wallet(
                merchant_id=rich.id, user_id="user-1", amount_fen=31000, reference=f"more-{number}", now=rich.now
            )
        ordered = rich.order(pay_method="balance")
        pays = [partial(rich.pay, ordered, payer_ref="") for _ in range(4)]
        cancels = [partial(rich.cancel, ordered) for _ in range(4)]
        before = balance()

        results = race(*pays, *cancels)

        paid, cancelled = results[:4], results[4:]
        order = order_of(ordered)
        assert order.status in ((10, 50) if is_enough else (50,)), (order.status, order.closed_reason, results)
        said = {getattr(result, "code", "ok") for result in cancelled}
        assert said == ({"ORDER_ALREADY_PAID"} if order.status == 10 else {"ok"}), results
        allowed = {"ok", "ORDER_ALREADY_PAID"} if order.status == 10 else {"NOT_ENOUGH_BALANCE", "ORDER_NOT_PAYABLE"}
        assert {getattr(result, "code", "ok") for result in paid} <= allowed, results
        assert before - balance() == (order.payable_fen if order.status == 10 else 0)


def test_other_channels_need_a_payer(backend: Backend, rich: Shop) -> None:
    ordered = rich.order()
    answer = backend.post(f"/orders/{ordered.order_no}/pay", {"user_id": "user-1"})
    assert refusal(answer) == (400, "INVALID_INPUT")
    assert Payment.objects.count() == 0


def test_closing_closes_the_number_at_the_wallet(rich: Shop) -> None:
    top_up_wallet(merchant_id=rich.id, user_id="user-1", amount_fen=5000, reference="bank-2", now=rich.now)
    ordered = rich.order(pay_method="balance")
    opened = open_payment(
        merchant_id=rich.id, order_no=ordered.order_no, channel="balance", amount_fen=31000, now=rich.now
    )
    begin_prepay(payment_id=opened.payment_id, now=rich.now)
    later = rich.later(minutes=31)
    assert close_order(order_id=ordered.order_id, reason="timeout", now=later.now).ending == "ended"
    assert (order_of(ordered).status, stock_of(rich, "NUT")) == (40, (10, 0))
    wallet = LedgerWallet(rich.id)
    assert wallet.is_forbidden(number=opened.out_trade_no)


def test_a_charge_whose_answer_was_lost_is_found_by_asking(rich: Shop) -> None:
    top_up_wallet(merchant_id=rich.id, user_id="user-1", amount_fen=5000, reference="bank-2", now=rich.now)
    ordered = rich.order(pay_method="balance")
    opened = open_payment(
        merchant_id=rich.id, order_no=ordered.order_no, channel="balance", amount_fen=31000, now=rich.now
    )
    begin_prepay(payment_id=opened.payment_id, now=rich.now)
    charge_wallet(merchant_id=rich.id, user_id="user-1", number=opened.out_trade_no, amount_fen=31000, now=rich.now)
    assert check_order(order_id=ordered.order_id, now=rich.now).outcome == "paid"
    assert (order_of(ordered).status, balance()) == (10, 4000)


def dead_refund(shop: Shop) -> RefundRequest:
    """A refund of a WeChat payment that the channel has closed."""
    ordered = shop.paid()
    payment = payment_of(ordered)
    asked = request_refund(
        merchant_id=shop.id, payment_id=payment.id, owner_kind="order_payment", owner_no="WAY-1", amount_fen=1234,
        now=shop.now,
    )  # fmt: skip
    record_refund_fact(
        merchant_id=shop.id,
        said=RefundFact(channel=Channel.WECHAT, state=RefundState.CLOSED, refund_no=asked.refund_no, amount_fen=1234),
        source="query",
        now=shop.now,
    )
    return RefundRequest.objects.get(id=asked.refund_request_id)


def test_a_refund_that_its_channel_closed_goes_to_the_balance(rich: Shop) -> None:
    refund = dead_refund(rich)
    done = refund_to_balance(merchant_id=rich.id, refund_request_id=refund.id, now=rich.now)
    assert (done.refund_no, done.amount_fen) == ("WAY-1-balance", 1234)
    assert refund_to_balance(merchant_id=rich.id, refund_request_id=refund.id, now=rich.now).replayed
    refund.refresh_from_db()
    assert (refund.status, refund.route, refund.route_reason) == ("SUCCEEDED", "balance", "CHANNEL_CLOSED")
    assert (balance(), Payment.objects.get().refunded_fen) == (31234, 1234)
    drain()
    assert sum(JournalLine.objects.filter(account="channel_clearing:balance").values_list("amount_fen", flat=True)) == (
        -31234
    )
    with pytest.raises(Exception, match="REFUND_NOT_DEAD"):
        enter_voucher(merchant_id=rich.id, refund_request_id=refund.id, voucher="bank", person="fen", now=rich.now)


def test_not_both_offline_and_to_the_balance(rich: Shop) -> None:
    refund = dead_refund(rich)
    enter_voucher(merchant_id=rich.id, refund_request_id=refund.id, voucher="bank 7", person="fen", now=rich.now)
    with pytest.raises(VoucherEnteredAlready):
        refund_to_balance(merchant_id=rich.id, refund_request_id=refund.id, now=rich.now)
    assert balance() == 30000
    approve_offline_refund(merchant_id=rich.id, refund_request_id=refund.id, person="lan", now=rich.now)


def test_a_wallet_that_refuses_leaves_the_refund_as_it_was(rich: Shop) -> None:
    refund = dead_refund(rich)
    Payment.objects.update(order_no="NOBODYS")
    with pytest.raises(WalletRefusedRefund) as refused:
        refund_to_balance(merchant_id=rich.id, refund_request_id=refund.id, now=rich.now)
    assert refused.value.data == {"wallet_code": "NO_WALLET"}
    refund.refresh_from_db()
    assert (refund.status, WalletEntry.objects.filter(kind="credit").count()) == ("FAILED", 0)


def test_the_connection_test_works_without_a_wire(rich: Shop) -> None:
    saved = save_account(merchant_id=rich.id, channel="balance", mchid="", app_id="", name="余额", now=rich.now)
    assert not saved.created
    assert probe_account(merchant_id=rich.id, account_id=saved.account_id, now=rich.now).works
