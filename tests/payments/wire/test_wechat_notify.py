"""Notifies as the channel sends them: doubled, late, out of order, forged, stale, mixed in keys, and until
acknowledged."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from payments.channels.wechat import WechatGateway
from payments.gateway import NotifyRejected, PaymentNotice, PaymentState, RefundNotice, Verdict
from payments.simulator.client import SimulatorClient
from tests.payments.wire.conftest import Inbox, Shop, config_from, now


def received(inbox: Inbox, number: int = 0) -> tuple[dict[str, str], bytes]:
    return inbox.requests[number]


@pytest.fixture
def delivered(shop: Shop, inbox: Inbox, sim: SimulatorClient) -> tuple[dict[str, str], bytes]:
    """A good notify: its headers and body as they came."""
    out_trade_no = shop.order()
    sim.pay(out_trade_no)
    sim.wait_for_notify(out_trade_no=out_trade_no)
    return received(inbox)


def test_header_names_in_any_case(gateway: WechatGateway, delivered: tuple[dict[str, str], bytes]) -> None:
    headers, body = delivered
    for change in (str.lower, str.upper, str.title):
        changed = {change(name): value for name, value in headers.items()}
        assert isinstance(gateway.parse_notify(headers=changed, body=body, now=now()), PaymentNotice)


def test_freshness_is_judged_by_the_now_that_is_passed(
    gateway: WechatGateway, delivered: tuple[dict[str, str], bytes]
) -> None:
    headers, body = delivered
    for seconds in (310, -310):
        with pytest.raises(NotifyRejected) as rejected:
            gateway.parse_notify(headers=headers, body=body, now=now() + timedelta(seconds=seconds))
        assert rejected.value.verdict is Verdict.STALE


@pytest.mark.parametrize(
    "change",
    [
        lambda headers, body: (headers, body.replace(b"SUCCESS", b"SUCCESSS")),
        lambda headers, body: (headers, body + b"\n"),
        lambda headers, body: (headers, b""),
        lambda headers, body: (headers, b"\xff\xfe"),
        lambda headers, body: (headers | {"Wechatpay-Nonce": "0" * 32}, body),
        lambda headers, body: (headers | {"Wechatpay-Serial": "PUB_KEY_ID_0"}, body),
        lambda headers, body: (headers | {"Wechatpay-Serial": "zz|zz"}, body),
        lambda headers, body: (headers | {"Wechatpay-Signature": "WECHATPAY/SIGNTEST/abc"}, body),
        lambda headers, body: (headers | {"Wechatpay-Signature": "%%%"}, body),
        lambda headers, body: (headers | {"Wechatpay-Timestamp": "9" * 40}, body),
        lambda headers, body: (headers | {"Wechatpay-Timestamp": "٣"}, body),
        lambda headers, body: ({}, body),
    ],
)
def test_anything_changed_is_forged(
    gateway: WechatGateway, delivered: tuple[dict[str, str], bytes], change: object
) -> None:
    headers, body = change(*delivered)
    with pytest.raises(NotifyRejected) as rejected:
        gateway.parse_notify(headers=headers, body=body, now=now())
    assert rejected.value.verdict is Verdict.FORGED


def test_another_merchant_s_notify_does_not_open(
    keys: dict, sim: SimulatorClient, delivered: tuple[dict[str, str], bytes]
) -> None:
    """The platform signs for every merchant alike; our API v3 key is what makes it ours."""
    other = WechatGateway(config_from(keys, sim.base_url, 1))
    headers, body = delivered
    with pytest.raises(NotifyRejected) as rejected:
        other.parse_notify(headers=headers, body=body, now=now())
    assert rejected.value.verdict is Verdict.MALFORMED
    other.close()


def test_each_kind_only_at_its_own_address(
    gateway: WechatGateway, shop: Shop, inbox: Inbox, sim: SimulatorClient
) -> None:
    out_trade_no = shop.order()
    sim.pay(out_trade_no)
    sim.wait_for_notify(out_trade_no=out_trade_no)
    refund = shop.refund(out_trade_no, 100)
    sim.wait_for_notify(refund_no=refund.refund_no)
    payment, refunded = received(inbox, 0), received(inbox, 1)
    good = {"now": now()}
    assert isinstance(gateway.parse_payment_notify(headers=payment[0], body=payment[1], **good), PaymentNotice)
    assert isinstance(gateway.parse_refund_notify(headers=refunded[0], body=refunded[1], **good), RefundNotice)
    for parse, (headers, body) in (
        (gateway.parse_payment_notify, refunded),
        (gateway.parse_refund_notify, payment),
    ):
        with pytest.raises(NotifyRejected) as rejected:
            parse(headers=headers, body=body, **good)
        assert rejected.value.verdict is Verdict.MALFORMED


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        ("forged", Verdict.FORGED),
        ("unknown_serial", Verdict.FORGED),
        ("altered_body", Verdict.FORGED),
        ("signtest", Verdict.FORGED),
        ("stale", Verdict.STALE),
        ("malformed", Verdict.MALFORMED),
    ],
)
def test_a_bad_sending_is_refused_and_the_retry_is_good(
    shop: Shop, inbox: Inbox, sim: SimulatorClient, fault: str, verdict: Verdict
) -> None:
    out_trade_no = shop.order()
    sim.fault("notify.payment", fault)
    sim.pay(out_trade_no)
    notify = sim.wait_for_notify(out_trade_no=out_trade_no)
    assert [rejection.verdict for rejection in inbox.rejected] == [verdict]
    assert [notice.fact.state for notice in inbox.notices] == [PaymentState.SUCCESS]
    assert [delivery["status"] for delivery in notify["deliveries"]] == [401, 204]


@pytest.mark.parametrize("setting", ["public_key", "certificate"])
def test_both_kinds_of_platform_key_are_accepted(
    shop: Shop, inbox: Inbox, sim: SimulatorClient, keys: dict, setting: str
) -> None:
    sim.settings(notify_key=setting)
    out_trade_no = shop.order()
    sim.pay(out_trade_no)
    sim.wait_for_notify(out_trade_no=out_trade_no)
    expected = keys["wechat"]["platform"]["public_key_id"]
    if setting == "certificate":
        expected = keys["wechat"]["certificates"][-1]["serial"]
    assert inbox.notices[0].key_id == expected


def test_key_mix_fault_is_good(shop: Shop, inbox: Inbox, sim: SimulatorClient) -> None:
    out_trade_no = shop.order()
    sim.fault("notify.payment", "key_mix")
    sim.pay(out_trade_no)
    assert sim.wait_for_notify(out_trade_no=out_trade_no)["state"] == "ACKED"
    assert inbox.rejected == []


def test_a_duplicate_comes_n_times_in_parallel(shop: Shop, inbox: Inbox, sim: SimulatorClient) -> None:
    out_trade_no = shop.order()
    sim.fault("notify.payment", "duplicate", copies=5)
    sim.pay(out_trade_no)
    notify = sim.wait_for_notify(out_trade_no=out_trade_no)
    assert len(inbox.notices) == len(notify["deliveries"]) == 5
    assert len({notice.notify_id for notice in inbox.notices}) == 1
    assert len({json.dumps(dict(notice.plaintext), sort_keys=True) for notice in inbox.notices}) == 1


def test_redelivered_by_hand_with_a_forged_one(shop: Shop, inbox: Inbox, sim: SimulatorClient) -> None:
    out_trade_no = shop.order()
    sim.pay(out_trade_no)
    sim.wait_for_notify(out_trade_no=out_trade_no)
    good = sim.redeliver(out_trade_no=out_trade_no, times=4, parallel=True)
    bad = sim.redeliver(out_trade_no=out_trade_no, times=1, faults=["forged"])
    assert [delivery["status"] for delivery in good + bad] == [204] * 4 + [401]
    assert (len(inbox.notices), len(inbox.rejected)) == (5, 1)


def test_silent_is_never_sent(shop: Shop, inbox: Inbox, sim: SimulatorClient) -> None:
    out_trade_no = shop.order()
    sim.fault("notify.payment", "silent")
    sim.pay(out_trade_no)
    notify = sim.wait_for_notify(out_trade_no=out_trade_no)
    assert (notify["state"], notify["deliveries"], inbox.requests) == ("SILENCED", [], [])
    assert shop.gateway.query_payment(out_trade_no=out_trade_no, now=now()).state is PaymentState.SUCCESS


def test_delay_and_out_of_order(shop: Shop, inbox: Inbox, sim: SimulatorClient) -> None:
    first, second, third = shop.order(), shop.order(), shop.order()
    sim.fault("notify.payment", "out_of_order", seconds=10, match={"out_trade_no": first})
    sim.fault("notify.payment", "delay", seconds=0.6, match={"out_trade_no": third})
    sim.pay(third)
    sim.pay(first)
    sim.pay(second)
    for each in (first, second, third):
        assert sim.wait_for_notify(out_trade_no=each)["state"] == "ACKED"
    assert [notice.fact.out_trade_no for notice in inbox.notices] == [second, first, third]


def test_not_acknowledged_comes_again_until_it_is(shop: Shop, inbox: Inbox, sim: SimulatorClient) -> None:
    inbox.refuse_next = 3
    out_trade_no = shop.order()
    sim.pay(out_trade_no)
    notify = sim.wait_for_notify(out_trade_no=out_trade_no)
    assert [delivery["status"] for delivery in notify["deliveries"]] == [500, 500, 500, 204]
    pauses = [
        later["at"] - earlier["at"]
        for earlier, later in zip(notify["deliveries"], notify["deliveries"][1:], strict=False)
    ]
    assert pauses[0] >= 15 / 200
    assert pauses[2] >= 30 / 200


def test_a_validly_signed_wrong_amount_reaches_the_caller(shop: Shop, inbox: Inbox, sim: SimulatorClient) -> None:
    out_trade_no = shop.order(26000)
    sim.fault("notify.payment", "wrong_amount", amount_fen=1)
    sim.pay(out_trade_no)
    sim.wait_for_notify(out_trade_no=out_trade_no)
    assert inbox.notices[0].fact.amount_fen == 1


@pytest.mark.parametrize(("fault", "field"), [("wrong_account", "merchant_ref"), ("wrong_app", "app_id")])
def test_a_validly_signed_notify_for_someone_else_is_named_so(
    shop: Shop, inbox: Inbox, sim: SimulatorClient, fault: str, field: str
) -> None:
    out_trade_no = shop.order()
    sim.fault("notify.payment", fault)
    sim.pay(out_trade_no)
    sim.wait_for_notify(out_trade_no=out_trade_no)
    ours = {"merchant_ref": shop.gateway._config.mchid, "app_id": shop.gateway._config.app_id}
    assert getattr(inbox.notices[0].fact, field) not in ("", ours[field])


def test_a_forgery_about_an_unpaid_order(shop: Shop, inbox: Inbox, sim: SimulatorClient) -> None:
    out_trade_no = shop.order()
    for how in ("forged", "stale", "unknown_serial", "altered_body", "signtest", "malformed"):
        [delivery] = sim.forge(out_trade_no, how=how, amount_fen=26000)
        assert delivery["status"] == 401
    assert inbox.notices == []
    assert shop.gateway.query_payment(out_trade_no=out_trade_no, now=now()).state is PaymentState.NOTPAY


def test_acknowledging_and_asking_again(gateway: WechatGateway) -> None:
    assert (gateway.ack().status, gateway.ack().body) == (204, b"")
    answer = gateway.nack("数据库不可用")
    assert answer.status == 500
    assert json.loads(answer.body) == {"code": "FAIL", "message": "数据库不可用"}
