"""Bills over the wire: made by the simulator in the channel's format, hash checked, read by column name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pytest

from kernel import money
from payments.channels import wechat_bill
from payments.channels.wechat import WechatGateway
from payments.gateway import (
    BillFile,
    BillKind,
    BillRowKind,
    BillState,
    Channel,
    ChannelRefused,
    ChannelUnknown,
    Doubt,
)
from payments.simulator.client import SimulatorClient
from tests.payments.wire.conftest import Inbox, Shop, config_from, now

CHINA = wechat_bill.CHINA


@pytest.fixture
def second(keys: dict, sim: SimulatorClient, inbox: Inbox) -> Iterator[Shop]:
    """The second merchant's shop, on a day of its own, so that its bills hold only what the test did."""
    gateway = WechatGateway(config_from(keys, sim.base_url, 1))
    second.day_offset += 86400 * 3
    sim.clock(to=f"{date(2031, 1, 1) + timedelta(seconds=second.day_offset)}T12:00:00+08:00")
    inbox.parse = lambda headers, body: gateway.parse_notify(headers=headers, body=body, now=now())
    yield Shop(gateway, sim, f"{inbox.base_url}/pay", f"{inbox.base_url}/refund")
    gateway.close()


second.day_offset = 0


def business_day(sim: SimulatorClient) -> date:
    return datetime.fromisoformat(sim.get("clock")["business"]).astimezone(CHINA).date()


def next_morning(sim: SimulatorClient, day: date, at: str = "10:00:01") -> None:
    sim.clock(to=f"{day + timedelta(days=1)}T{at}+08:00")


def download(shop: Shop, kind: BillKind, day: date) -> BillFile:
    return shop.gateway.download_bill(kind=kind, bill_on=day, now=now())


@pytest.mark.parametrize(("text", "fen"), [("0.03", 3), ("1.67", 167), ("19.90", 1990), ("260.00", 26000)])
def test_money_strings(second: Shop, sim: SimulatorClient, text: str, fen: int) -> None:
    """A23: no float on the way from fen to the bill's yuan and back."""
    assert money.yuan_to_fen(text) == fen
    assert money.fen_to_yuan(fen) == text
    day = business_day(sim)
    out_trade_no = second.paid(fen)
    second.refund(out_trade_no, fen, fen)
    next_morning(sim, day)
    payments = download(second, BillKind.TRADE, day)
    assert f"`{text}".encode() in payments.raw
    [paid] = second.gateway.parse_bill(payments)
    [refunded] = second.gateway.parse_bill(download(second, BillKind.REFUND, day))
    assert (paid.amount_fen, refunded.amount_fen) == (fen, fen)


def test_a_day_of_payments_and_refunds(second: Shop, sim: SimulatorClient) -> None:
    day = business_day(sim)
    plain, vouchered = second.paid(26000), second.paid(1990, voucher_fen=167)
    tea = second.refund(plain, 17167, refund_no=f"{plain}-1")
    sim.wait_for_notify(refund_no=tea.refund_no)
    half = second.refund(vouchered, 995, 1990, refund_no=f"{vouchered}-1")
    sim.wait_for_notify(refund_no=half.refund_no)
    next_morning(sim, day)

    bill = download(second, BillKind.TRADE, day)
    assert (bill.state, bill.channel) == (BillState.AVAILABLE, Channel.WECHAT)
    assert bill.sha1 == hashlib.sha1(bill.raw).hexdigest()
    rows = list(second.gateway.parse_bill(bill))
    assert [(row.kind, row.out_trade_no, row.amount_fen, row.payer_fen, row.voucher_fen) for row in rows] == [
        (BillRowKind.PAYMENT, plain, 26000, 26000, 0),
        (BillRowKind.PAYMENT, vouchered, 1990, 1823, 167),
    ]
    assert rows[0].refund_no == rows[0].refund_id == ""
    assert rows[0].occurred_at.astimezone(CHINA).date() == day
    assert rows[0].fee_yuan == Decimal("0.00000")

    rows = list(second.gateway.parse_bill(download(second, BillKind.REFUND, day)))
    assert [(row.kind, row.refund_no, row.amount_fen, row.payer_fen, row.voucher_fen) for row in rows] == [
        (BillRowKind.REFUND, f"{plain}-1", 17167, 17167, 0),
        (BillRowKind.REFUND, f"{vouchered}-1", 995, 911, 84),
    ]
    assert (rows[0].refund_id, rows[0].out_trade_no, rows[0].trade_no) == (tea.refund_id, plain, tea.trade_no)
    assert rows[0].refund_state == "SUCCESS"
    assert rows[0].refund_applied_at is not None
    assert rows[0].refund_succeeded_at is not None

    flow = list(second.gateway.parse_bill(download(second, BillKind.FUNDFLOW, day)))
    assert [(row.is_income, row.amount_fen, row.reference) for row in flow] == [
        (True, 26000, plain),
        (True, 1823, vouchered),
        (False, 17167, f"{plain}-1"),
        (False, 911, f"{vouchered}-1"),
    ]
    assert [b.balance_fen - a.balance_fen for a, b in pairwise(flow)] == [1823, -17167, -911]


def test_a_refund_over_midnight_stays_on_the_day_it_was_accepted(second: Shop, sim: SimulatorClient) -> None:
    day = business_day(sim)
    sim.settings(auto_settle=False)
    sim.clock(to=f"{day}T23:59:50+08:00")
    out_trade_no = second.paid()
    refund = second.refund(out_trade_no, 100)
    sim.clock(to=f"{day + timedelta(days=1)}T00:00:10+08:00")
    sim.settle(refund.refund_no)
    next_morning(sim, day)
    [row] = second.gateway.parse_bill(download(second, BillKind.REFUND, day))
    assert (row.refund_no, row.refund_state, row.refund_succeeded_at) == (refund.refund_no, "PROCESSING", None)
    next_morning(sim, day + timedelta(days=1))
    assert download(second, BillKind.REFUND, day + timedelta(days=1)).state is BillState.EMPTY


def test_not_before_ten_o_clock_of_the_next_day(second: Shop, sim: SimulatorClient) -> None:
    day = business_day(sim)
    second.paid()
    next_morning(sim, day, "09:59:50")
    bill = download(second, BillKind.TRADE, day)
    assert (bill.state, bill.raw, bill.sha1) == (BillState.CREATING, b"", "")
    assert list(second.gateway.parse_bill(bill)) == []
    next_morning(sim, day)
    assert download(second, BillKind.TRADE, day).state is BillState.AVAILABLE


def test_an_empty_day_is_a_state_and_an_impossible_one_a_refusal(second: Shop, sim: SimulatorClient) -> None:
    day = business_day(sim)
    next_morning(sim, day)
    for kind in BillKind:
        assert download(second, kind, day - timedelta(days=1)).state in (BillState.EMPTY, BillState.AVAILABLE)
    assert download(second, BillKind.REFUND, day).state is BillState.EMPTY
    for impossible in (day + timedelta(days=5), day - timedelta(days=100)):
        with pytest.raises(ChannelRefused):
            download(second, BillKind.TRADE, impossible)


def test_a_corrupt_bill_is_unknown_and_the_next_try_is_good(second: Shop, sim: SimulatorClient) -> None:
    day = business_day(sim)
    second.paid()
    next_morning(sim, day)
    sim.fault("wechat.billdownload", "corrupt_bill")
    with pytest.raises(ChannelUnknown) as unknown:
        download(second, BillKind.TRADE, day)
    assert unknown.value.reason is Doubt.CORRUPT_BILL
    for fault in ("server_error_after", "reset_after"):
        sim.fault("wechat.billdownload", fault)
        with pytest.raises(ChannelUnknown):
            download(second, BillKind.TRADE, day)
    assert download(second, BillKind.TRADE, day).state is BillState.AVAILABLE


def test_the_links_of_a_bill_are_signed_and_a_forged_one_is_not_followed(second: Shop, sim: SimulatorClient) -> None:
    day = business_day(sim)
    second.paid()
    next_morning(sim, day)
    for lie in ("forged", "unsigned", "altered_body"):
        sim.fault("wechat.tradebill", lie)
        with pytest.raises(ChannelUnknown):
            download(second, BillKind.TRADE, day)


def test_a_good_bill_that_says_something_else(second: Shop, sim: SimulatorClient) -> None:
    """What reconciliation is there to find: the hash fits, a row is missing, doubled or of another amount."""
    day = business_day(sim)
    out_trade_no = second.paid()
    kept = second.refund(out_trade_no, 100).refund_no
    odd = second.refund(out_trade_no, 200).refund_no
    next_morning(sim, day)

    def amounts() -> list[tuple[str, int]]:
        rows = second.gateway.parse_bill(download(second, BillKind.REFUND, day))
        return [(row.refund_no, row.amount_fen) for row in rows]

    sim.fault("wechat.tradebill", "bill_omit", number=odd)
    assert amounts() == [(kept, 100)]
    sim.fault("wechat.tradebill", "bill_amount", number=odd, amount_fen=201)
    assert amounts() == [(kept, 100), (odd, 201)]
    sim.fault("wechat.tradebill", "bill_twice", number=odd)
    assert amounts() == [(kept, 100), (odd, 200), (odd, 200)]
    assert amounts() == [(kept, 100), (odd, 200)]


def test_today_s_bill_on_demand(second: Shop, sim: SimulatorClient) -> None:
    sim.settings(bills_always_ready=True)
    out_trade_no = second.paid()
    [row] = second.gateway.parse_bill(download(second, BillKind.TRADE, business_day(sim)))
    assert row.out_trade_no == out_trade_no


# -- the parser alone
# -------------------------------------------------------------------------------------------

HEADER = (
    "交易时间,公众账号ID,商户号,特约商户号,设备号,微信订单号,商户订单号,用户标识,交易类型,交易状态,付款银行,货币种类,"
    "应结订单金额,代金券金额,退款申请时间,退款成功时间,微信退款单号,商户退款单号,退款金额,充值券退款金额,退款类型,退款状态,"
    "商品名称,商户数据包,手续费,费率,订单金额,申请退款金额,费率备注"
)
SUMMARY = "总交易单数,应结订单总金额,退款总金额,充值券退款总金额,手续费总金额,订单总金额,申请退款总金额"


def refund_line(**changes: str) -> str:
    values = {
        "交易时间": "2026-11-29 05:01:46",
        "公众账号ID": "wx1",
        "商户号": "1900000101",
        "特约商户号": "0",
        "微信订单号": "4200000263201902167700134212",
        "商户订单号": "Q1",
        "交易类型": "JSAPI",
        "交易状态": "REFUND",
        "应结订单金额": "0.00",
        "代金券金额": "0.00",
        "退款申请时间": "2026-11-29 05:01:40",
        "退款成功时间": "2026-11-29 05:01:46",
        "微信退款单号": "50000709672026",
        "商户退款单号": "AS1-1",
        "退款金额": "1.67",
        "充值券退款金额": "0.00",
        "退款状态": "SUCCESS",
        "手续费": "-0.01000",
        "订单金额": "0.00",
        "申请退款金额": "1.67",
    } | changes
    return ",".join(f"`{values.get(name, '')}" for name in HEADER.split(","))


def bill_of(text: str, kind: BillKind = BillKind.REFUND) -> BillFile:
    raw = text.encode()
    return BillFile(
        channel=Channel.WECHAT,
        kind=kind,
        bill_on=date(2026, 11, 29),
        state=BillState.AVAILABLE,
        raw=raw,
        sha1=hashlib.sha1(raw).hexdigest(),
    )


GOOD = f"\ufeff{HEADER}\r\n{refund_line()}\r\n{SUMMARY}\r\n`1.0,`0.00,`1.67,`0.0,`-0.01,`0.00,`1.67\r\n"


def test_the_published_shape_is_read() -> None:
    """Byte order mark, counts with a decimal, sums with one or two, as in wechatpay-php's
    tests/fixtures/bill.ALL.csv."""
    [row] = wechat_bill.rows(bill_of(GOOD))
    assert (row.row_no, row.refund_no, row.amount_fen, row.fee_yuan) == (1, "AS1-1", 167, Decimal("-0.01"))
    assert row.refund_applied_at == datetime(2026, 11, 29, 5, 1, 40, tzinfo=CHINA)


def test_a_comma_in_a_name_and_another_order_of_columns_do_no_harm() -> None:
    names = HEADER.split(",")
    turned = ",".join([names[-1], *names[:-1]])
    line = refund_line(商品名称="茶, 坚果").split(",`")
    swapped = ",`".join(["`" + line[-1], line[0].removeprefix("`"), *line[1:-1]])
    text = GOOD.replace(HEADER, turned).replace(refund_line(), swapped)
    [row] = wechat_bill.rows(bill_of(text))
    assert (row.raw["商品名称"], row.refund_no) == ("茶, 坚果", "AS1-1")


def test_an_unknown_column_more_is_kept() -> None:
    text = GOOD.replace(HEADER, f"{HEADER},新列").replace(refund_line(), f"{refund_line()},`x")
    [row] = wechat_bill.rows(bill_of(text))
    assert row.raw["新列"] == "x"


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("cut off before the summary", GOOD[: GOOD.index(SUMMARY)]),
        ("cut off in the summary", GOOD[: GOOD.index("`1.0")]),
        ("a row too many", GOOD.replace(refund_line(), f"{refund_line()}\r\n{refund_line()}")),
        ("a row too few", GOOD.replace(f"{refund_line()}\r\n", "")),
        ("another amount in a row", GOOD.replace(refund_line(), refund_line(申请退款金额="1.68"))),
        ("an amount with three decimals", GOOD.replace(refund_line(), refund_line(申请退款金额="1.670"))),
        ("an amount that is none", GOOD.replace(refund_line(), refund_line(申请退款金额="1,67"))),
        ("a field too few", GOOD.replace(refund_line(), refund_line().rsplit(",", 1)[0])),
        ("no time", GOOD.replace(refund_line(), refund_line(交易时间=""))),
        ("an unknown state", GOOD.replace(refund_line(), refund_line(交易状态="MAYBE"))),
        ("a column missing", GOOD.replace("商户订单号", "别的")),
        ("nothing", ""),
        ("a page of html", "<html>\n<body>502</body>\n</html>\n"),
    ],
)
def test_what_is_wrong_in_a_bill_is_found(what: str, text: str) -> None:
    with pytest.raises(ChannelUnknown) as unknown:
        list(wechat_bill.rows(bill_of(text)))
    assert unknown.value.reason is Doubt.CORRUPT_BILL, what


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(ChannelUnknown):
        list(wechat_bill.rows(replace(bill_of(GOOD), raw=b"\xff\xfe\x00")))


def test_rows_are_streamed() -> None:
    """The first row is there before the last one is looked at; a wrong summary is found at the end."""
    text = GOOD.replace(refund_line(), "\r\n".join([refund_line()] * 1000))
    rows = wechat_bill.rows(bill_of(text))
    assert next(rows).row_no == 1
    with pytest.raises(ChannelUnknown):
        list(rows)
