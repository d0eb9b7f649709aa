"""The Alipay driver over gateway.do: the main road, what lies, what stays away, notifies and bills."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest

from payments.channels.alipay import AlipayConfig, AlipayGateway
from payments.channels.alipay_wire import Malformed, load_public_key, members, sign, sorted_text
from payments.channels.wechat_wire import load_private_key
from payments.gateway import (
    AbnormalRefundTo,
    BillFile,
    BillKind,
    BillRowKind,
    BillState,
    Channel,
    ChannelRefused,
    ChannelUnknown,
    Doubt,
    FollowUp,
    Gateway,
    NotifyRejected,
    PaymentNotice,
    PaymentState,
    RefundNotice,
    RefundState,
    Verdict,
)
from payments.registry import build_gateway, config_of
from payments.simulator.client import SimulatorClient
from payments.simulator.keys import alipay_account
from tests.payments.wire.conftest import Inbox, new_no, now


def alipay_config(keys: dict, base_url: str, number: int = 0, **settings: Any) -> AlipayConfig:
    row = alipay_account(keys, number, base_url)
    account = SimpleNamespace(
        channel="alipay", mchid=row["mchid"], app_id=row["app_id"], settings=row["settings"] | settings
    )
    config = config_of(account, row["secrets"])
    assert isinstance(config, AlipayConfig)
    return config


class AlipayShop:
    def __init__(self, gateway: AlipayGateway, sim: SimulatorClient, inbox: Inbox) -> None:
        self.gateway, self.sim, self.url = gateway, sim, f"{inbox.base_url}/pay"
        inbox.parse = lambda headers, body: gateway.parse_notify(headers=headers, body=body, now=now())
        inbox.good = (200, b"success")

    def order(self, amount_fen: int = 26000, **fields: Any) -> str:
        out_trade_no = fields.pop("out_trade_no", None) or new_no()
        self.gateway.prepay(
            out_trade_no=out_trade_no,
            amount_fen=amount_fen,
            description=fields.pop("description", '坚果&茶=}{"x"'),
            payer_ref="2088000000000999",
            notify_url=self.url,
            expires_at=now() + timedelta(minutes=30),
            now=now(),
        )
        return out_trade_no

    def paid(self, amount_fen: int = 26000, **options: Any) -> str:
        out_trade_no = self.order(amount_fen)
        self.sim.pay(out_trade_no, **({"channel": "alipay", "notify": False} | options))
        return out_trade_no

    def refund(self, out_trade_no: str, amount_fen: int, total_fen: int = 26000, **fields: Any) -> Any:
        gateway = fields.pop("gateway", self.gateway)
        return gateway.refund(
            refund_no=fields.pop("refund_no", None) or new_no("AS"),
            out_trade_no=out_trade_no,
            amount_fen=amount_fen,
            total_fen=total_fen,
            reason="商品破损",
            notify_url=self.url,
            now=now(),
            **fields,
        )

    def query(self, out_trade_no: str) -> Any:
        return self.gateway.query_payment(out_trade_no=out_trade_no, now=now())

    def query_refund(self, refund_no: str, out_trade_no: str) -> Any:
        return self.gateway.query_refund(refund_no=refund_no, out_trade_no=out_trade_no, now=now())


@pytest.fixture
def ali(keys: dict, sim: SimulatorClient, inbox: Inbox) -> AlipayShop:
    gateway = build_gateway("alipay", alipay_config(keys, sim.base_url))
    assert isinstance(gateway, AlipayGateway)
    return AlipayShop(gateway, sim, inbox)


@pytest.fixture
def hasty_ali(keys: dict, sim: SimulatorClient) -> Iterator[AlipayGateway]:
    made = AlipayGateway(alipay_config(keys, sim.base_url, timeouts={"read": 0.5}))
    yield made
    made.close()


# -- the main road
# ------------------------------------------------------------------------------------------------


def test_from_placing_to_the_last_refund(ali: AlipayShop, inbox: Inbox, sim: SimulatorClient) -> None:
    assert isinstance(ali.gateway, Gateway)
    out_trade_no = ali.order()
    unpaid = ali.query(out_trade_no)
    assert (unpaid.state, unpaid.amount_fen, unpaid.paid_at) == (PaymentState.NOTPAY, 26000, None)

    sim.pay(out_trade_no, channel="alipay")
    assert sim.wait_for_notify(out_trade_no=out_trade_no)["state"] == "ACKED"
    [notice] = inbox.notices
    assert isinstance(notice, PaymentNotice)
    config = ali.gateway._config
    assert (notice.fact.state, notice.fact.amount_fen) == (PaymentState.SUCCESS, 26000)
    assert (notice.fact.app_id, notice.fact.merchant_ref) == (config.app_id, config.seller_id)
    paid = ali.query(out_trade_no)
    assert (paid.state, paid.trade_no, paid.paid_at) == (
        PaymentState.SUCCESS,
        notice.fact.trade_no,
        notice.fact.paid_at,
    )

    tea = ali.refund(out_trade_no, 17167, refund_no=f"{out_trade_no}-1")
    assert (tea.state, tea.amount_fen) == (RefundState.SUCCESS, 17167)
    queried = ali.query_refund(f"{out_trade_no}-1", out_trade_no)
    assert (queried.state, queried.amount_fen, queried.total_fen) == (RefundState.SUCCESS, 17167, 26000)
    assert queried.succeeded_at == tea.succeeded_at
    assert ali.query(out_trade_no).state is PaymentState.SUCCESS

    nut = ali.refund(out_trade_no, 8833, refund_no=f"{out_trade_no}-2")
    assert nut.state is RefundState.SUCCESS
    fact = ali.query(out_trade_no)
    assert fact.state is PaymentState.REFUND, "TRADE_CLOSED with a time of payment is refunded, not unpaid"
    assert fact.state.is_paid


def test_a_refund_s_notify_is_a_reason_to_ask(ali: AlipayShop, inbox: Inbox, sim: SimulatorClient) -> None:
    """It carries the trade's cumulative refund, never this refund's amount."""
    out_trade_no = ali.paid()
    ali.refund(out_trade_no, 100, refund_no=f"{out_trade_no}-1")
    ali.refund(out_trade_no, 200, refund_no=f"{out_trade_no}-2")
    for number in (1, 2):
        assert sim.wait_for_notify(refund_no=f"{out_trade_no}-{number}")["state"] == "ACKED"
    assert {notice.plaintext["refund_fee"] for notice in inbox.notices} == {"1.00", "3.00"}
    for notice in inbox.notices:
        assert isinstance(notice, RefundNotice)
        assert (notice.fact.state, notice.fact.amount_fen) == (RefundState.PROCESSING, None)
        assert notice.merchant_ref == ali.gateway._config.seller_id
        assert ali.query_refund(notice.fact.refund_no, out_trade_no).state is RefundState.SUCCESS


def test_the_same_refund_number_is_paid_once(ali: AlipayShop, sim: SimulatorClient) -> None:
    out_trade_no = ali.paid()
    ali.refund(out_trade_no, 100, refund_no=f"{out_trade_no}-1")
    again = ali.refund(out_trade_no, 100, refund_no=f"{out_trade_no}-1")
    assert again.state is RefundState.PROCESSING, "fund_change=N says nothing: ask"
    assert ali.query_refund(f"{out_trade_no}-1", out_trade_no).state is RefundState.SUCCESS
    assert len(sim.order(out_trade_no)["refunds"]) == 1
    with pytest.raises(ChannelRefused) as refused:
        ali.refund(out_trade_no, 101, refund_no=f"{out_trade_no}-1")
    assert (refused.value.code, refused.value.follow_up) == (
        "ACQ.DISCORDANT_REPEAT_REQUEST",
        FollowUp.ASK_AND_ALERT,
    )


def test_a_refund_that_is_not_done_is_not_found(ali: AlipayShop, sim: SimulatorClient) -> None:
    sim.settings(auto_settle=False)
    out_trade_no = ali.paid()
    accepted = ali.refund(out_trade_no, 100, refund_no=f"{out_trade_no}-1")
    assert accepted.state is RefundState.PROCESSING
    assert ali.query_refund(f"{out_trade_no}-1", out_trade_no).state is RefundState.NOT_FOUND
    sim.settle(f"{out_trade_no}-1", channel="alipay")
    assert ali.query_refund(f"{out_trade_no}-1", out_trade_no).state is RefundState.SUCCESS


def test_refused_and_unknown_numbers(ali: AlipayShop) -> None:
    number = new_no()
    assert ali.query(number).state is PaymentState.NOT_FOUND
    assert ali.query_refund(number, number).state is RefundState.NOT_FOUND
    ali.gateway.close_payment(out_trade_no=number, now=now())
    with pytest.raises(ChannelRefused) as refused:
        ali.refund(number, 1, 1)
    assert refused.value.code == "ACQ.TRADE_NOT_EXIST"
    out_trade_no = ali.paid(100)
    with pytest.raises(ChannelRefused):
        ali.gateway.close_payment(out_trade_no=out_trade_no, now=now())
    ali.refund(out_trade_no, 60, 100)
    with pytest.raises(ChannelRefused) as refused:
        ali.refund(out_trade_no, 41, 100)
    assert refused.value.code == "ACQ.REFUND_AMT_NOT_EQUAL_TOTAL"
    with pytest.raises(ChannelRefused):
        ali.gateway.apply_abnormal_refund(refund_no="A", refund_id="B", to=AbnormalRefundTo.USER_BANK_CARD, now=now())


def test_closed_and_placed_again(ali: AlipayShop) -> None:
    out_trade_no = ali.order(100)
    assert ali.order(100, out_trade_no=out_trade_no) == out_trade_no
    with pytest.raises(ChannelRefused):
        ali.order(101, out_trade_no=out_trade_no)
    ali.gateway.close_payment(out_trade_no=out_trade_no, now=now())
    assert ali.query(out_trade_no).state is PaymentState.CLOSED
    with pytest.raises(ChannelRefused):
        ali.order(100, out_trade_no=out_trade_no)


def test_a_second_charge_by_its_trade_number(ali: AlipayShop, sim: SimulatorClient) -> None:
    out_trade_no = ali.paid(5000)
    second = sim.pay(out_trade_no, channel="alipay", again=True, notify=False)["charge"]
    found = ali.gateway.query_payment_by_trade_no(trade_no=second["trade_no"], out_trade_no=out_trade_no, now=now())
    assert (found.state, found.trade_no) == (PaymentState.SUCCESS, second["trade_no"])
    refund = ali.refund(out_trade_no, 5000, 5000, trade_no=second["trade_no"])
    assert refund.trade_no == second["trade_no"]


@pytest.mark.parametrize(("text", "fen"), [("0.03", 3), ("1.67", 167), ("19.90", 1990)])
def test_money_strings_on_the_wire(ali: AlipayShop, inbox: Inbox, sim: SimulatorClient, text: str, fen: int) -> None:
    """A23: no float on the way."""
    out_trade_no = ali.order(fen)
    sim.pay(out_trade_no, channel="alipay")
    sim.wait_for_notify(out_trade_no=out_trade_no)
    assert inbox.notices[0].plaintext["total_amount"] == text
    assert inbox.notices[0].fact.amount_fen == ali.query(out_trade_no).amount_fen == fen
    assert ali.refund(out_trade_no, fen, fen, refund_no=f"{out_trade_no}-1").amount_fen == fen
    assert ali.query_refund(f"{out_trade_no}-1", out_trade_no).amount_fen == fen


# -- lies and silence
# ---------------------------------------------------------------------------------------------

LIES = {
    "forged": Doubt.FORGED,
    "altered_body": Doubt.FORGED,
    "unsigned": Doubt.UNSIGNED,
    "garbage": Doubt.MALFORMED,
    "wrong_order": Doubt.MALFORMED,
}


@pytest.mark.parametrize(("lie", "doubt"), LIES.items())
def test_an_answer_that_lies_is_unknown(ali: AlipayShop, sim: SimulatorClient, lie: str, doubt: Doubt) -> None:
    out_trade_no = ali.paid()
    sim.fault("alipay.trade.query", lie)
    with pytest.raises(ChannelUnknown) as unknown:
        ali.query(out_trade_no)
    assert unknown.value.reason is doubt


@pytest.mark.parametrize("lie", ["forged", "altered_body", "unsigned"])
def test_a_refusal_that_lies_is_unknown(ali: AlipayShop, sim: SimulatorClient, lie: str) -> None:
    sim.fault("alipay.*", lie, times=2)
    with pytest.raises(ChannelUnknown):
        ali.query(new_no())
    with pytest.raises(ChannelUnknown):
        ali.refund(new_no(), 1, 1)


@pytest.mark.parametrize(
    ("kind", "code", "follow_up"),
    [
        ("not_enough", "ACQ.SELLER_BALANCE_NOT_ENOUGH", FollowUp.SAME_NUMBER_LATER),
        ("rate_limited", "isv.app-call-limited", FollowUp.SAME_NUMBER_LATER),
        ("user_abnormal", "ACQ.BUYER_ERROR", FollowUp.OTHER_MEANS),
    ],
)
def test_a_signed_refusal_says_what_may_follow(
    ali: AlipayShop, sim: SimulatorClient, kind: str, code: str, follow_up: FollowUp
) -> None:
    out_trade_no = ali.paid()
    sim.fault("alipay.trade.refund", kind)
    with pytest.raises(ChannelRefused) as refused:
        ali.refund(out_trade_no, 100)
    assert (refused.value.code, refused.value.follow_up) == (code, follow_up)
    assert sim.order(out_trade_no)["refunds"] == []


@pytest.mark.parametrize(
    ("kind", "doubt", "accepted"),
    [
        ("server_error", Doubt.SYSTEM_BUSY, False),
        ("reset", Doubt.CONNECTION, False),
        ("timeout", Doubt.TIMEOUT, False),
        ("server_error_after", Doubt.SERVER_ERROR, True),
        ("reset_after", Doubt.CONNECTION, True),
        ("timeout_after", Doubt.TIMEOUT, True),
    ],
)
def test_a_refund_without_an_answer_is_settled_by_the_same_number(
    ali: AlipayShop, hasty_ali: AlipayGateway, sim: SimulatorClient, kind: str, doubt: Doubt, accepted: bool
) -> None:
    out_trade_no = ali.paid()
    sim.fault("alipay.trade.refund", kind, seconds=5)
    with pytest.raises(ChannelUnknown) as unknown:
        ali.refund(out_trade_no, 17167, refund_no=f"{out_trade_no}-1", gateway=hasty_ali)
    assert unknown.value.reason is doubt
    assert len(sim.order(out_trade_no)["refunds"]) == int(accepted)
    ali.refund(out_trade_no, 17167, refund_no=f"{out_trade_no}-1")
    assert ali.query_refund(f"{out_trade_no}-1", out_trade_no).amount_fen == 17167
    assert len(sim.order(out_trade_no)["refunds"]) == 1


def test_our_own_bad_signature_is_unknown(keys: dict, sim: SimulatorClient) -> None:
    config = alipay_config(keys, sim.base_url)
    for change in ({"app_private_key": keys["forger"]["private_key"]}, {"app_id": "2021000000000000"}):
        stranger = AlipayGateway(replace(config, **change))
        with pytest.raises(ChannelUnknown) as unknown:
            stranger.query_payment(out_trade_no=new_no(), now=now())
        assert unknown.value.reason is Doubt.UNAUTHENTICATED
        stranger.close()


def test_a_request_with_an_old_time_is_not_accepted(keys: dict, sim: SimulatorClient) -> None:
    late = AlipayGateway(alipay_config(keys, sim.base_url), wall=lambda: datetime.now(UTC) - timedelta(minutes=20))
    with pytest.raises(ChannelRefused) as refused:
        late.query_payment(out_trade_no=new_no(), now=now())
    assert refused.value.code == "isv.invalid-timestamp"
    late.close()


def test_over_a_rotation_both_of_alipay_s_keys_are_good(keys: dict, sim: SimulatorClient) -> None:
    old = keys["forger"]["public_key"]
    gateway = AlipayGateway(alipay_config(keys, sim.base_url, alipay_public_keys=[old, keys["alipay"]["public_key"]]))
    assert gateway.query_payment(out_trade_no=new_no(), now=now()).state is PaymentState.NOT_FOUND
    gateway.close()
    only_old = AlipayGateway(alipay_config(keys, sim.base_url, alipay_public_keys=[old]))
    with pytest.raises(ChannelUnknown):
        only_old.query_payment(out_trade_no=new_no(), now=now())
    only_old.close()


# -- notifies
# -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        ("forged", Verdict.FORGED),
        ("altered_body", Verdict.FORGED),
        ("stale", Verdict.STALE),
        ("malformed", Verdict.MALFORMED),
    ],
)
def test_a_bad_sending_is_refused_and_the_retry_is_good(
    ali: AlipayShop, inbox: Inbox, sim: SimulatorClient, fault: str, verdict: Verdict
) -> None:
    sim.settings(notify_speed=5000.0)
    out_trade_no = ali.order()
    sim.fault("notify.payment", fault)
    sim.pay(out_trade_no, channel="alipay")
    assert sim.wait_for_notify(out_trade_no=out_trade_no)["state"] == "ACKED"
    assert [rejection.verdict for rejection in inbox.rejected] == [verdict]
    assert len(inbox.notices) == 1


def test_every_field_is_under_the_signature(ali: AlipayShop, inbox: Inbox, sim: SimulatorClient) -> None:
    out_trade_no = ali.order()
    sim.pay(out_trade_no, channel="alipay")
    sim.wait_for_notify(out_trade_no=out_trade_no)
    _, body = inbox.requests[0]
    pairs = parse_qsl(body.decode(), keep_blank_values=True)

    def verdict_of(changed: list[tuple[str, str]]) -> Verdict:
        with pytest.raises(NotifyRejected) as rejected:
            ali.gateway.parse_notify(headers={}, body=urlencode(changed).encode(), now=now())
        return rejected.value.verdict

    for index, (name, value) in enumerate(pairs):
        changed = [*pairs[:index], (name, value + "1"), *pairs[index + 1 :]]
        assert verdict_of(changed) in (Verdict.FORGED, Verdict.MALFORMED), name
        assert verdict_of([*pairs[:index], *pairs[index + 1 :]]) in (Verdict.FORGED, Verdict.MALFORMED), name
        assert verdict_of([*pairs, (name, value)]) is Verdict.MALFORMED, "a field twice"
    assert verdict_of([*pairs, ("extra", "1")]) is Verdict.FORGED
    for body in (b"", b"no form", b"\xff", b"sign=AAAA&sign_type=RSA2", b"sign=%%&sign_type=RSA2&a=1"):
        with pytest.raises(NotifyRejected):
            ali.gateway.parse_notify(headers={}, body=body, now=now())


def test_a_notify_repeated_for_a_day_is_still_good(ali: AlipayShop, inbox: Inbox, sim: SimulatorClient) -> None:
    out_trade_no = ali.order()
    sim.pay(out_trade_no, channel="alipay")
    sim.wait_for_notify(out_trade_no=out_trade_no)
    headers, body = inbox.requests[0]
    parse = ali.gateway.parse_payment_notify
    assert parse(headers=headers, body=body, now=now() + timedelta(hours=25)).fact.amount_fen == 26000
    for hours in (27, -1):
        with pytest.raises(NotifyRejected) as rejected:
            parse(headers=headers, body=body, now=now() + timedelta(hours=hours))
        assert rejected.value.verdict is Verdict.STALE
    with pytest.raises(NotifyRejected):
        ali.gateway.parse_refund_notify(headers=headers, body=body, now=now())


def test_acknowledging_and_asking_again(ali: AlipayShop, inbox: Inbox, sim: SimulatorClient) -> None:
    assert (ali.gateway.ack().status, ali.gateway.ack().body) == (200, b"success")
    assert ali.gateway.nack("later").body == b"fail"
    sim.settings(notify_speed=5000.0)
    inbox.good = (200, b"ok, but not the word")
    out_trade_no = ali.order()
    sim.pay(out_trade_no, channel="alipay")
    for _ in range(300):
        if len(inbox.notices) >= 2:
            break
        sim.get("health")
    inbox.good = (200, b"success")
    assert sim.wait_for_notify(out_trade_no=out_trade_no)["state"] == "ACKED"
    assert len(inbox.notices) >= 3


# -- bills
# --------------------------------------------------------------------------------------------------------


def download(shop: AlipayShop, kind: BillKind, day: date, at: datetime) -> BillFile:
    return shop.gateway.download_bill(kind=kind, bill_on=day, now=at)


def test_a_day_s_bill(keys: dict, sim: SimulatorClient, inbox: Inbox) -> None:
    gateway = AlipayGateway(alipay_config(keys, sim.base_url, 1))
    shop = AlipayShop(gateway, sim, inbox)
    day = date(2032, 3, 1)
    sim.clock(to=f"{day}T12:00:00+08:00")
    plain, vouchered = shop.paid(26000), shop.paid(1990, voucher_fen=167)
    shop.refund(plain, 17167, refund_no=f"{plain}-1")
    at = datetime(2032, 3, 2, 12, 5, tzinfo=UTC)
    assert download(shop, BillKind.TRADE, day, datetime(2032, 3, 1, 12, tzinfo=UTC)).state is BillState.CREATING
    sim.clock(to="2032-03-02T10:05:00+08:00")

    bill = download(shop, BillKind.TRADE, day, at)
    assert (bill.state, bill.raw[:2]) == (BillState.AVAILABLE, b"PK")
    rows = list(gateway.parse_bill(bill))
    assert [(row.kind, row.out_trade_no, row.amount_fen) for row in rows] == [
        (BillRowKind.PAYMENT, plain, 26000),
        (BillRowKind.PAYMENT, vouchered, 1990),
    ]
    [refund] = gateway.parse_bill(download(shop, BillKind.REFUND, day, at))
    assert (refund.kind, refund.refund_no, refund.amount_fen) == (BillRowKind.REFUND, f"{plain}-1", 17167)
    assert refund.trade_no == rows[0].trade_no
    flow = list(gateway.parse_bill(download(shop, BillKind.FUNDFLOW, day, at)))
    assert [(row.is_income, row.amount_fen, row.reference) for row in flow] == [
        (True, 26000, plain),
        (True, 1990, vouchered),
        (False, 17167, f"{plain}-1"),
    ]
    assert [later.balance_fen - sooner.balance_fen for sooner, later in pairwise(flow)] == [1990, -17167]
    assert download(shop, BillKind.TRADE, day - timedelta(days=1), at).state is BillState.EMPTY

    sim.fault("alipay.billdownload", "corrupt_bill")
    with pytest.raises(ChannelUnknown) as unknown:
        list(gateway.parse_bill(download(shop, BillKind.TRADE, day, at)))
    assert unknown.value.reason is Doubt.CORRUPT_BILL
    gateway.close()


def zipped(text: str, name: str = "20880000_20191109_业务明细.csv") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, text.encode("gb18030"))
        archive.writestr("20880000_20191109_业务明细(汇总).csv", "#")
    return out.getvalue()


PUBLISHED = (
    "#支付宝业务明细查询\r\n#账号：[20880211096256330156]\r\n"
    "#起始日期：[2019年09月16日 00:00:00]   终止日期：[2019年09月17日 00:00:00]\r\n"
    "#-----------------------------------------业务明细列表----------------------------------------\r\n"
    "支付宝交易号,商户订单号,业务类型,商品名称,创建时间,完成时间,门店编号,门店名称,操作员,终端号,对方账户,订单金额（元）,"
    "商家实收（元）,支付宝红包（元）,集分宝（元）,支付宝优惠（元）,商家优惠（元）,券核销金额（元）,券名称,商家红包消费金额（元）,"
    "卡消费金额（元）,退款批次号/请求号,服务费（元）,分润（元）,备注\r\n"
    "2019091622001458860515315453\t,service_1568601259302\t,交易\t,下单测试,2019-09-16 10:55:16,2019-09-16 10:55:23,"
    "s\t,s\t,a\t,\t,*津水(602***@qq.com)\t,0.01,0.01,0.00,0.00,0.00,0.00,0.00,,0.00\t,0.00,\t,0.00,0.00,下单测试\r\n"
    "2019091622001458860515315453\t,service_1568601259302\t,退款\t,下单测试,2019-09-16 10:55:16,2019-09-16 10:56:48,"
    "s\t,s\t,a\t,\t,*津水(602***@qq.com)\t,-0.01,-0.01,0.00,0.00,0.00,0.00,0.00,,0.00\t,0.00,re_test_1568602607356\t,"
    "0.00,0.00,下单测试\r\n"
    "#-----------------------------------------业务明细列表结束------------------------------------\r\n"
    "#交易合计：1笔，商家实收共0.01元，商家优惠共0.00元\r\n"
    "#退款合计：1笔，商家实收退款共-0.01元，商家优惠退款共0.00元\r\n"
    "#导出时间：[2019年09月17日 08:00:00]\r\n"
)


def bill_of(raw: bytes, kind: BillKind) -> BillFile:
    return BillFile(channel=Channel.ALIPAY, kind=kind, bill_on=date(2019, 9, 16), state=BillState.AVAILABLE, raw=raw)


def test_the_published_shape_is_read(ali: AlipayShop) -> None:
    """The shape of a real bill as it stands in public parsers' tests."""
    [paid] = ali.gateway.parse_bill(bill_of(zipped(PUBLISHED), BillKind.TRADE))
    [refund] = ali.gateway.parse_bill(bill_of(zipped(PUBLISHED), BillKind.REFUND))
    assert (paid.out_trade_no, paid.amount_fen) == ("service_1568601259302", 1)
    assert (refund.refund_no, refund.amount_fen, refund.payer_fen) == ("re_test_1568602607356", 1, 1)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"PK but no zip",
        zipped(PUBLISHED)[:200],
        zipped(PUBLISHED.replace("#交易合计：1笔", "#交易合计：2笔")),
        zipped(PUBLISHED.replace("退款共-0.01元", "退款共-0.02元")),
        zipped(PUBLISHED[: PUBLISHED.index("#交易合计")]),
        zipped(PUBLISHED.replace(",-0.01,-0.01", ",-0.01,-0.011")),
        zipped(PUBLISHED.replace("退款\t", "别的\t")),
        zipped(PUBLISHED, "20880000_20191110_汇总.csv"),
        zipped("#nothing\r\n"),
    ],
)
def test_what_is_wrong_in_a_bill_is_found(ali: AlipayShop, raw: bytes) -> None:
    with pytest.raises(ChannelUnknown) as unknown:
        list(ali.gateway.parse_bill(bill_of(raw, BillKind.REFUND)))
    assert unknown.value.reason is Doubt.CORRUPT_BILL


# -- the wire alone
# -----------------------------------------------------------------------------------------------


def test_signing_agrees_with_an_independent_implementation(keys: dict) -> None:
    """python-alipay-sdk, which Quits does not use, signs and verifies the same."""
    from alipay import AliPay

    account = keys["alipay"]["accounts"][0]
    other = AliPay(
        appid=account["app_id"],
        app_private_key_string=account["private_key"],
        alipay_public_key_string=account["public_key"],
        sign_type="RSA2",
    )
    fields = {"b": "2", "a": "1", "biz_content": json.dumps({"subject": "坚果=&茶"}, ensure_ascii=False)}
    ours = sign(load_private_key(account["private_key"]), sorted_text(fields))
    assert other.verify(dict(fields), ours)
    assert other._sign(sorted_text(fields)) == ours


def test_public_keys_come_bare_or_in_pem(keys: dict) -> None:
    pem = keys["alipay"]["public_key"]
    bare = "".join(pem.strip().splitlines()[1:-1])
    assert load_public_key(bare).public_numbers() == load_public_key(pem).public_numbers()


def test_the_signed_text_is_the_exact_text() -> None:
    text = '{ "x_response" : {"a":"}\\"{", "b": [1, {"c":"，"}]} , "sign":"S" }'
    found = members(text)
    assert found["x_response"] == ({"a": '}"{', "b": [1, {"c": "，"}]}, '{"a":"}\\"{", "b": [1, {"c":"，"}]}')
    assert found["sign"][0] == "S"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}x",
        '{"a":1',
        '{"a":1,}',
        '{"a":1,"a":2}',
        '{"a":1} {"b":2}',
        '{"a"}',
        "{1:2}",
        "[" * 100_000,
        '{"a":' + "[" * 100_000,
    ],
)
def test_what_is_no_answer_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        members(text)
