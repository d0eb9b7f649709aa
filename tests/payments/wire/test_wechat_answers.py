"""Every way an answer can lie or stay away, and what the driver makes of it: never a fact, never a
refusal."""

from __future__ import annotations

import pytest

from payments.channels.wechat import WechatGateway
from payments.gateway import (
    ChannelRefused,
    ChannelUnknown,
    Doubt,
    FollowUp,
    PaymentState,
    RefundState,
)
from payments.simulator.client import SimulatorClient
from tests.payments.wire.conftest import Shop, config_from, new_no, now

LIES = {
    "forged": Doubt.FORGED,
    "unsigned": Doubt.UNSIGNED,
    "stale": Doubt.STALE,
    "unknown_serial": Doubt.FORGED,
    "altered_body": Doubt.FORGED,
    "signtest": Doubt.FORGED,
    "garbage": Doubt.MALFORMED,
}


@pytest.mark.parametrize(("lie", "doubt"), LIES.items())
def test_a_2xx_that_lies_is_unknown(shop: Shop, sim: SimulatorClient, lie: str, doubt: Doubt) -> None:
    out_trade_no = shop.paid()
    sim.fault("wechat.query", lie)
    with pytest.raises(ChannelUnknown) as unknown:
        shop.gateway.query_payment(out_trade_no=out_trade_no, now=now())
    assert (unknown.value.reason, unknown.value.status) == (doubt, 200)
    assert shop.gateway.query_payment(out_trade_no=out_trade_no, now=now()).state is PaymentState.SUCCESS


@pytest.mark.parametrize(("lie", "doubt"), [pair for pair in LIES.items() if pair[0] != "garbage"])
def test_a_404_that_lies_is_no_proof_of_absence(shop: Shop, sim: SimulatorClient, lie: str, doubt: Doubt) -> None:
    number = new_no()
    sim.fault("wechat.query", lie)
    with pytest.raises(ChannelUnknown) as unknown:
        shop.gateway.query_payment(out_trade_no=number, now=now())
    assert (unknown.value.reason, unknown.value.status) == (doubt, 404)
    sim.fault("wechat.query_refund", lie)
    with pytest.raises(ChannelUnknown):
        shop.gateway.query_refund(refund_no=number, out_trade_no=number, now=now())


@pytest.mark.parametrize(("lie", "doubt"), [pair for pair in LIES.items() if pair[0] != "garbage"])
def test_a_4xx_that_lies_is_no_refusal(shop: Shop, sim: SimulatorClient, lie: str, doubt: Doubt) -> None:
    out_trade_no = shop.paid(100)
    sim.fault("wechat.refund", lie)
    with pytest.raises(ChannelUnknown) as unknown:
        shop.refund(out_trade_no, 101, 100)
    assert (unknown.value.reason, unknown.value.status) == (doubt, 400)


@pytest.mark.parametrize("lie", ["forged", "unsigned", "stale"])
def test_a_204_that_lies_is_unknown(shop: Shop, sim: SimulatorClient, lie: str) -> None:
    out_trade_no = shop.order()
    sim.fault("wechat.close", lie)
    with pytest.raises(ChannelUnknown):
        shop.gateway.close_payment(out_trade_no=out_trade_no, now=now())


def test_an_answer_signed_with_the_platform_s_other_key_is_good(shop: Shop, sim: SimulatorClient) -> None:
    out_trade_no = shop.paid()
    sim.fault("wechat.query", "key_mix")
    assert shop.gateway.query_payment(out_trade_no=out_trade_no, now=now()).amount_fen == 26000


@pytest.mark.parametrize(
    ("kind", "status", "code", "follow_up"),
    [
        ("not_enough", 403, "NOT_ENOUGH", FollowUp.SAME_NUMBER_LATER),
        ("rate_limited", 429, "FREQUENCY_LIMITED", FollowUp.SAME_NUMBER_LATER),
        ("user_abnormal", 403, "USER_ACCOUNT_ABNORMAL", FollowUp.OTHER_MEANS),
    ],
)
def test_a_signed_refusal_says_what_may_follow(
    shop: Shop, sim: SimulatorClient, kind: str, status: int, code: str, follow_up: FollowUp
) -> None:
    out_trade_no = shop.paid()
    sim.fault("wechat.refund", kind)
    with pytest.raises(ChannelRefused) as refused:
        shop.refund(out_trade_no, 100, refund_no=f"{out_trade_no}-1")
    assert (refused.value.status, refused.value.code) == (status, code)
    assert refused.value.follow_up is follow_up
    assert sim.order(out_trade_no)["refunds"] == []
    assert shop.refund(out_trade_no, 100, refund_no=f"{out_trade_no}-1").state is RefundState.PROCESSING


def test_a_wrong_request_signature_is_unknown_not_refused(shop: Shop, sim: SimulatorClient, keys: dict) -> None:
    """The 401 that answers it is unsigned: it proves nothing about a refund sent before."""
    stranger = WechatGateway(config_from(keys, sim.base_url, merchant_serial="0" * 40))
    with pytest.raises(ChannelUnknown) as unknown:
        stranger.query_payment(out_trade_no=new_no(), now=now())
    assert (unknown.value.reason, unknown.value.status) == (Doubt.UNAUTHENTICATED, 401)
    assert "SIGN_ERROR" in unknown.value.detail
    stranger.close()


@pytest.mark.parametrize(
    ("kind", "doubt", "accepted"),
    [
        ("server_error", Doubt.SERVER_ERROR, False),
        ("reset", Doubt.CONNECTION, False),
        ("timeout", Doubt.TIMEOUT, False),
        ("server_error_after", Doubt.SERVER_ERROR, True),
        ("reset_after", Doubt.CONNECTION, True),
        ("timeout_after", Doubt.TIMEOUT, True),
    ],
)
def test_a_refund_without_an_answer_is_unknown_and_the_same_number_settles_it(
    shop: Shop, hasty: WechatGateway, sim: SimulatorClient, kind: str, doubt: Doubt, accepted: bool
) -> None:
    out_trade_no = shop.paid()
    sim.fault("wechat.refund", kind, seconds=5)
    with pytest.raises(ChannelUnknown) as unknown:
        shop.refund(out_trade_no, 17167, refund_no=f"{out_trade_no}-1", gateway=hasty)
    assert unknown.value.reason is doubt
    assert len(sim.order(out_trade_no)["refunds"]) == int(accepted)

    again = shop.refund(out_trade_no, 17167, refund_no=f"{out_trade_no}-1", gateway=hasty)
    assert again.amount_fen == 17167
    assert len(sim.order(out_trade_no)["refunds"]) == 1


@pytest.mark.parametrize("operation", ["prepay", "close", "query"])
def test_the_other_calls_end_unknown_too(
    shop: Shop, hasty: WechatGateway, sim: SimulatorClient, operation: str
) -> None:
    out_trade_no = shop.order(100)
    slow = Shop(hasty, sim, shop.notify_url, shop.refund_url)
    calls = {
        "prepay": lambda: slow.order(100, out_trade_no=out_trade_no),
        "close": lambda: hasty.close_payment(out_trade_no=out_trade_no, now=now()),
        "query": lambda: hasty.query_payment(out_trade_no=out_trade_no, now=now()),
    }
    for kind in ("timeout_after", "reset_after", "server_error_after"):
        sim.fault(f"wechat.{operation}", kind, seconds=3)
        with pytest.raises(ChannelUnknown):
            calls[operation]()


def test_nobody_there_is_unknown(keys: dict) -> None:
    gateway = WechatGateway(config_from(keys, "http://127.0.0.1:9"))
    with pytest.raises(ChannelUnknown) as unknown:
        gateway.query_payment(out_trade_no=new_no(), now=now())
    assert unknown.value.reason is Doubt.CONNECTION
    gateway.close()


def test_a_slow_answer_within_the_time_is_an_answer(shop: Shop, sim: SimulatorClient) -> None:
    out_trade_no = shop.paid()
    sim.fault("wechat.query", "delay", seconds=0.3)
    assert shop.gateway.query_payment(out_trade_no=out_trade_no, now=now()).state is PaymentState.SUCCESS


def test_a_validly_signed_wrong_amount_is_reported_as_it_is(shop: Shop, sim: SimulatorClient) -> None:
    """The driver does not know the order: comparing is its caller's business, so it must not hide the
    figure."""
    out_trade_no = shop.paid(26000)
    sim.fault("wechat.query", "wrong_amount", amount_fen=1)
    assert shop.gateway.query_payment(out_trade_no=out_trade_no, now=now()).amount_fen == 1


def test_connections_are_reused(shop: Shop) -> None:
    out_trade_no = shop.order()
    pool = shop.gateway._http._client._transport._pool
    for _ in range(5):
        shop.gateway.query_payment(out_trade_no=out_trade_no, now=now())
    assert len(pool.connections) == 1


def test_the_environment_s_proxy_is_not_used(monkeypatch: pytest.MonkeyPatch, keys: dict, sim: SimulatorClient) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    gateway = WechatGateway(config_from(keys, sim.base_url))
    assert gateway.query_payment(out_trade_no=new_no(), now=now()).state is PaymentState.NOT_FOUND
    gateway.close()
