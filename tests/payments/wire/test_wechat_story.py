"""The main road: place, pay, notify, query, refund, notify, query, close."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from payments.channels.wechat import WechatConfig, WechatGateway
from payments.gateway import (
    AbnormalRefundTo,
    ChannelRefused,
    ChannelUnknown,
    FollowUp,
    Gateway,
    PaymentNotice,
    PaymentState,
    RefundNotice,
    RefundState,
)
from payments.simulator import crypto
from payments.simulator.client import SimulatorClient, SimulatorError
from tests.payments.wire.conftest import Inbox, Shop, new_no, now


def test_the_driver_is_a_gateway(gateway: WechatGateway) -> None:
    assert isinstance(gateway, Gateway)


def test_prepay_gives_signed_parameters_for_the_mini_program(
    gateway: WechatGateway, config: WechatConfig, keys: dict, inbox: Inbox
) -> None:
    prepaid = gateway.prepay(
        out_trade_no=new_no(),
        amount_fen=26000,
        description="坚果与茶",
        payer_ref="openid",
        notify_url=f"{inbox.base_url}/pay",
        expires_at=now() + timedelta(minutes=30),
        now=now(),
    )
    params = prepaid.client_params
    assert set(params) == {"appId", "timeStamp", "nonceStr", "package", "signType", "paySign"}
    assert params["package"] == f"prepay_id={prepaid.prepay_id}"
    text = "".join(f"{params[name]}\n" for name in ("appId", "timeStamp", "nonceStr", "package"))
    assert params["appId"] == config.app_id
    assert crypto.fits(keys["wechat"]["accounts"][0]["public_key"], text.encode(), params["paySign"])


def test_from_unpaid_to_paid_by_notify_and_query(shop: Shop, inbox: Inbox, sim: SimulatorClient) -> None:
    out_trade_no = shop.order()
    unpaid = shop.gateway.query_payment(out_trade_no=out_trade_no, now=now())
    assert (unpaid.state, unpaid.trade_no, unpaid.paid_at) == (PaymentState.NOTPAY, "", None)

    charge = sim.pay(out_trade_no)["charge"]
    notify = sim.wait_for_notify(out_trade_no=out_trade_no)

    assert notify["state"] == "ACKED"
    [notice] = inbox.notices
    assert isinstance(notice, PaymentNotice)
    assert notice.notify_id == notify["id"]
    assert notice.fact.state is PaymentState.SUCCESS
    assert notice.fact.amount_fen == notice.fact.payer_paid_fen == 26000
    assert notice.fact.out_trade_no == out_trade_no
    assert notice.fact.trade_no == charge["trade_no"]
    assert abs((notice.fact.paid_at - now()).total_seconds()) < 60
    queried = shop.gateway.query_payment(out_trade_no=out_trade_no, now=now())
    assert queried == notice.fact


def test_a_refund_is_accepted_then_succeeds(shop: Shop, inbox: Inbox, sim: SimulatorClient) -> None:
    out_trade_no = shop.paid()
    accepted = shop.refund(out_trade_no, 17167, refund_no=f"{out_trade_no}-1")
    assert (accepted.state, accepted.amount_fen, accepted.total_fen) == (RefundState.PROCESSING, 17167, 26000)

    sim.wait_for_notify(refund_no=accepted.refund_no)
    [notice] = inbox.notices
    assert isinstance(notice, RefundNotice)
    assert notice.event_type == "REFUND.SUCCESS"
    assert notice.fact.state is RefundState.SUCCESS
    assert (notice.fact.amount_fen, notice.fact.payer_refund_fen) == (17167, 17167)
    assert notice.fact.refund_id == accepted.refund_id
    queried = shop.gateway.query_refund(refund_no=accepted.refund_no, out_trade_no=out_trade_no, now=now())
    assert queried.state is RefundState.SUCCESS
    assert isinstance(queried.succeeded_at, datetime)
    after = shop.gateway.query_payment(out_trade_no=out_trade_no, now=now())
    assert after.state is PaymentState.REFUND
    assert after.state.is_paid


def test_the_same_refund_number_answers_what_is_there(shop: Shop, sim: SimulatorClient) -> None:
    out_trade_no = shop.paid()
    first = shop.refund(out_trade_no, 8833, refund_no=f"{out_trade_no}-1")
    sim.wait_for_notify(refund_no=first.refund_no)
    second = shop.refund(out_trade_no, 8833, refund_no=f"{out_trade_no}-1")
    assert second.refund_id == first.refund_id
    assert second.state is RefundState.SUCCESS
    assert len(sim.order(out_trade_no)["refunds"]) == 1


def test_the_same_refund_number_with_other_fields_is_refused(shop: Shop) -> None:
    out_trade_no = shop.paid()
    shop.refund(out_trade_no, 8833, refund_no=f"{out_trade_no}-1")
    with pytest.raises(ChannelRefused) as refused:
        shop.refund(out_trade_no, 8834, refund_no=f"{out_trade_no}-1")
    assert refused.value.code == "INVALID_REQUEST"
    assert refused.value.follow_up is FollowUp.ASK_AND_ALERT


def test_refunds_never_exceed_the_payment_nor_fifty(shop: Shop, sim: SimulatorClient) -> None:
    out_trade_no = shop.paid(100)
    for _ in range(50):
        shop.refund(out_trade_no, 1, 100)
    with pytest.raises(ChannelRefused):
        shop.refund(out_trade_no, 1, 100)
    other = shop.paid(100)
    shop.refund(other, 60, 100)
    with pytest.raises(ChannelRefused):
        shop.refund(other, 41, 100)
    with pytest.raises(ChannelRefused):
        shop.refund(other, 40, 99)
    assert sum(row["amount_fen"] for row in sim.order(other)["refunds"]) == 60


def test_an_abnormal_refund_goes_on_under_its_own_number(shop: Shop, inbox: Inbox, sim: SimulatorClient) -> None:
    sim.settings(refund_outcome="ABNORMAL")
    out_trade_no = shop.paid()
    accepted = shop.refund(out_trade_no, 17167)
    sim.wait_for_notify(refund_no=accepted.refund_no)
    assert inbox.notices[0].fact.state is RefundState.ABNORMAL

    resumed = shop.gateway.apply_abnormal_refund(
        refund_no=accepted.refund_no,
        refund_id=accepted.refund_id,
        to=AbnormalRefundTo.USER_BANK_CARD,
        bank_type="ICBC_DEBIT",
        bank_account="6222020200112233",
        real_name="张三",
        now=now(),
    )
    assert resumed.state is RefundState.PROCESSING
    sim.wait_for_notify(refund_no=accepted.refund_no, count=2)
    assert inbox.notices[1].fact.state is RefundState.SUCCESS
    done = shop.gateway.query_refund(refund_no=accepted.refund_no, out_trade_no=out_trade_no, now=now())
    assert done.state is RefundState.SUCCESS
    assert sim.refund(accepted.refund_no)["refunds"][0]["received_by"] == "ICBC_DEBIT 2233 张*"


def test_a_closed_refund_is_final_and_a_new_number_is_needed(shop: Shop, inbox: Inbox, sim: SimulatorClient) -> None:
    sim.settings(refund_outcome="CLOSED")
    out_trade_no = shop.paid()
    accepted = shop.refund(out_trade_no, 26000)
    sim.wait_for_notify(refund_no=accepted.refund_no)
    assert inbox.notices[0].fact.state is RefundState.CLOSED
    sim.settings(refund_outcome="SUCCESS")
    again = shop.refund(out_trade_no, 26000)
    sim.wait_for_notify(refund_no=again.refund_no)
    assert inbox.notices[1].fact.state is RefundState.SUCCESS


def test_close_then_query(shop: Shop, sim: SimulatorClient) -> None:
    out_trade_no = shop.order()
    shop.gateway.close_payment(out_trade_no=out_trade_no, now=now())
    fact = shop.gateway.query_payment(out_trade_no=out_trade_no, now=now())
    assert fact.state is PaymentState.CLOSED
    with pytest.raises(ChannelRefused) as refused:
        shop.order(out_trade_no=out_trade_no)
    assert refused.value.code == "ORDER_CLOSED"


def test_close_of_an_unknown_number_returns_and_of_a_paid_one_is_refused(shop: Shop) -> None:
    shop.gateway.close_payment(out_trade_no=new_no(), now=now())
    out_trade_no = shop.paid()
    with pytest.raises(ChannelRefused):
        shop.gateway.close_payment(out_trade_no=out_trade_no, now=now())
    assert shop.gateway.query_payment(out_trade_no=out_trade_no, now=now()).state is PaymentState.SUCCESS


def test_what_nobody_knows_is_a_fact(shop: Shop) -> None:
    number = new_no()
    payment = shop.gateway.query_payment(out_trade_no=number, now=now())
    assert (payment.state, payment.amount_fen) == (PaymentState.NOT_FOUND, None)
    refund = shop.gateway.query_refund(refund_no=number, out_trade_no=number, now=now())
    assert (refund.state, refund.amount_fen) == (RefundState.NOT_FOUND, None)
    with pytest.raises(ChannelRefused) as refused:
        shop.refund(number, 1, 1)
    assert refused.value.status == 404


def test_a_second_charge_is_found_and_refunded_by_its_trade_number(shop: Shop, sim: SimulatorClient) -> None:
    out_trade_no = shop.paid(5000)
    second = sim.pay(out_trade_no, again=True, notify=False)["charge"]
    first = shop.gateway.query_payment(out_trade_no=out_trade_no, now=now())
    assert first.trade_no != second["trade_no"]
    found = shop.gateway.query_payment_by_trade_no(trade_no=second["trade_no"], out_trade_no=out_trade_no, now=now())
    assert (found.state, found.trade_no) == (PaymentState.SUCCESS, second["trade_no"])
    refund = shop.refund(out_trade_no, 5000, 5000, trade_no=second["trade_no"])
    assert refund.trade_no == second["trade_no"]
    assert shop.gateway.query_payment(out_trade_no=out_trade_no, now=now()).state is PaymentState.SUCCESS


def test_vouchers_do_not_change_the_amount_to_compare(shop: Shop, inbox: Inbox, sim: SimulatorClient) -> None:
    out_trade_no = shop.order(1990)
    sim.pay(out_trade_no, voucher_fen=167)
    sim.wait_for_notify(out_trade_no=out_trade_no)
    fact = inbox.notices[0].fact
    assert (fact.amount_fen, fact.payer_paid_fen) == (1990, 1823)
    refund = shop.refund(out_trade_no, 1990, 1990)
    assert (refund.amount_fen, refund.payer_refund_fen) == (1990, 1823)


def test_after_its_window_a_payment_is_not_taken(shop: Shop, sim: SimulatorClient) -> None:
    """Over when both clocks are past its end: moving the business day does not close what was just placed."""
    late = shop.order(expires_at=now() - timedelta(seconds=1))
    with pytest.raises(SimulatorError) as refused:
        sim.pay(late)
    assert refused.value.body["error"] == "expired"
    sim.clock(advance_seconds=86400)
    sim.pay(shop.order(expires_at=now() + timedelta(minutes=30)), notify=False)
    sim.clock(to=(now() - timedelta(days=3)).isoformat())
    sim.pay(shop.order(expires_at=now() - timedelta(days=2)), notify=False)
    sim.pay(late, force=True, notify=False)
    assert shop.gateway.query_payment(out_trade_no=late, now=now()).state is PaymentState.SUCCESS


@pytest.mark.parametrize("state", ["USERPAYING", "PAYERROR", "REVOKED"])
def test_every_state_of_the_channel_is_read(shop: Shop, sim: SimulatorClient, state: str) -> None:
    out_trade_no = shop.order()
    sim.post("trade-state", out_trade_no=out_trade_no, state=state)
    fact = shop.gateway.query_payment(out_trade_no=out_trade_no, now=now())
    assert fact.state is PaymentState(state)
    assert not fact.state.is_paid


def test_placing_again_is_safe_and_placing_differently_is_refused(shop: Shop) -> None:
    out_trade_no = shop.order(100)
    assert shop.order(100, out_trade_no=out_trade_no) == out_trade_no
    with pytest.raises(ChannelRefused):
        shop.order(101, out_trade_no=out_trade_no)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("out_trade_no", "short"),
        ("out_trade_no", "x" * 33),
        ("out_trade_no", "pipe|0001"),
        ("out_trade_no", "../../x"),
        ("out_trade_no", "zeilen\nende"),
        ("amount_fen", 0),
        ("amount_fen", -1),
        ("amount_fen", 1.5),
        ("amount_fen", True),
        ("notify_url", "http://shop.example/pay"),
        ("notify_url", "https://shop.example/pay?order=1"),
    ],
)
def test_what_the_channel_must_refuse_is_not_sent(
    gateway: WechatGateway, sim: SimulatorClient, field: str, value: object
) -> None:
    before = len(sim.get("log")["calls"])
    fields = {
        "out_trade_no": new_no(),
        "amount_fen": 100,
        "description": "x",
        "payer_ref": "openid",
        "notify_url": "https://shop.example/pay",
        "expires_at": None,
        "now": now(),
    }
    with pytest.raises(ChannelRefused) as refused:
        gateway.prepay(**fields | {field: value})
    assert refused.value.status == 0
    assert len(sim.get("log")["calls"]) == before


def test_an_answer_about_another_order_is_not_believed(shop: Shop, sim: SimulatorClient) -> None:
    out_trade_no = shop.paid()
    sim.fault("wechat.query", "wrong_order")
    with pytest.raises(ChannelUnknown):
        shop.gateway.query_payment(out_trade_no=out_trade_no, now=now())
    sim.fault("wechat.refund", "wrong_order")
    with pytest.raises(ChannelUnknown):
        shop.refund(out_trade_no, 1)
