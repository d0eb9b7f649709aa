"""Key rotation: several platform keys at once, certificate mode, and no call that a forger could make us
make."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from payments.channels import wechat
from payments.channels.wechat import WechatGateway
from payments.channels.wechat_wire import wall_clock
from payments.gateway import ChannelUnknown, NotifyRejected, PaymentNotice, PaymentState, Verdict
from payments.registry import build_gateway
from payments.simulator.client import SimulatorClient
from tests.payments.wire.conftest import Inbox, Running, Shop, config_from, new_no, now

CERTIFICATE_MODE = {
    "platform_keys": [],
    "public_key_id": "",
    "platform_serials": [],
    "certificate_mode": True,
}


def fetches(sim: SimulatorClient) -> int:
    return sum(call["operation"] == "wechat.certificates" for call in sim.get("log")["calls"])


@pytest.fixture
def certified(keys: dict, sim: SimulatorClient) -> Iterator[WechatGateway]:
    """A driver that knows no key but fetches the platform's certificates."""
    made = WechatGateway(config_from(keys, sim.base_url, **CERTIFICATE_MODE))
    yield made
    made.close()


def test_certificates_are_fetched_once_and_used_for_answers(certified: WechatGateway, sim: SimulatorClient) -> None:
    before = fetches(sim)
    for _ in range(3):
        assert certified.query_payment(out_trade_no=new_no(), now=now()).state is PaymentState.NOT_FOUND
    assert fetches(sim) == before + 1


@pytest.mark.parametrize("lie", ["forged", "unsigned", "stale", "altered_body", "garbage", "unknown_serial"])
def test_certificates_that_lie_are_not_taken(certified: WechatGateway, sim: SimulatorClient, lie: str) -> None:
    sim.fault("wechat.certificates", lie)
    with pytest.raises(ChannelUnknown):
        certified.query_payment(out_trade_no=new_no(), now=now())
    assert certified._fetched == ()


def test_after_a_failed_fetch_the_next_is_a_minute_away(keys: dict, sim: SimulatorClient) -> None:
    """However many notifies come, real or forged: one look a minute."""
    moment = wall_clock()
    gateway = WechatGateway(config_from(keys, sim.base_url, **CERTIFICATE_MODE), wall=lambda: moment)
    sim.fault("wechat.certificates", "server_error", times=1)
    before = fetches(sim)
    for _ in range(5):
        with pytest.raises(ChannelUnknown):
            gateway.parse_notify(headers={"Wechatpay-Serial": "AB"}, body=b"{}", now=now())
    assert fetches(sim) == before + 1
    moment += timedelta(seconds=61)
    with pytest.raises(NotifyRejected):
        gateway.parse_notify(headers={"Wechatpay-Serial": "AB"}, body=b"{}", now=now())
    assert fetches(sim) == before + 2
    gateway.close()


def test_an_unknown_serial_makes_no_call(certified: WechatGateway, sim: SimulatorClient) -> None:
    certified.refresh_certificates()
    before = fetches(sim)
    for number in range(20):
        headers = {
            "Wechatpay-Serial": f"{number:040X}",
            "Wechatpay-Nonce": "n",
            "Wechatpay-Timestamp": "1",
            "Wechatpay-Signature": "AAAA",
        }
        with pytest.raises(NotifyRejected) as rejected:
            certified.parse_notify(headers=headers, body=b"{}", now=now())
        assert rejected.value.verdict is Verdict.FORGED
    assert fetches(sim) == before


def test_old_certificates_are_looked_at_again_after_half_a_day(keys: dict, sim: SimulatorClient) -> None:
    shift = timedelta()
    gateway = WechatGateway(config_from(keys, sim.base_url, **CERTIFICATE_MODE), wall=lambda: wall_clock() + shift)
    gateway.refresh_certificates()
    before = fetches(sim)
    gateway._verifier()
    assert fetches(sim) == before
    gateway._fetched_at -= wechat.CERTIFICATE_MAX_AGE + timedelta(seconds=1)
    gateway._tried_at = gateway._fetched_at
    gateway._verifier()
    assert fetches(sim) == before + 1
    gateway.close()


def test_over_a_rotation_old_and_new_certificates_are_both_good(
    certified: WechatGateway, shop: Shop, inbox: Inbox, sim: SimulatorClient, simulator_process: Running
) -> None:
    inbox.parse = lambda headers, body: certified.parse_notify(headers=headers, body=body, now=now())
    sim.settings(notify_key="certificate")
    certified.refresh_certificates()
    fresh = sim.post("rotate-certificate")["serial"]
    out_trade_no = shop.order()
    sim.fault("notify.payment", "stale")  # something to retry, so that the refusal below is retried as well
    sim.pay(out_trade_no)
    assert fresh in certified.refresh_certificates()
    notify = sim.wait_for_notify(out_trade_no=out_trade_no)
    assert notify["state"] == "ACKED"
    assert inbox.notices[0].key_id == fresh
    stored = json.loads((simulator_process.state / "keys.json").read_text())
    assert fresh == stored["wechat"]["certificates"][-1]["serial"]
    assert len(certified._fetched) == len(stored["wechat"]["certificates"])


def test_while_two_keys_are_mixed_everything_is_accepted(
    shop: Shop, inbox: Inbox, sim: SimulatorClient, keys: dict
) -> None:
    """Public-key mode with the certificate still known: the switch-over WeChat Pay describes."""
    sim.settings(notify_key="mix")
    numbers = [shop.order() for _ in range(12)]
    gateway = build_gateway("wechat", config_from(keys, sim.base_url))
    inbox.parse = lambda headers, body: gateway.parse_notify(headers=headers, body=body, now=now())
    for number in numbers:
        sim.pay(number)
    for number in numbers:
        assert sim.wait_for_notify(out_trade_no=number)["state"] == "ACKED"
    assert inbox.rejected == []
    assert all(isinstance(notice, PaymentNotice) for notice in inbox.notices)


def test_a_key_that_is_not_configured_is_forged(keys: dict, shop: Shop, inbox: Inbox, sim: SimulatorClient) -> None:
    """Only the public key is known: a notify signed with the certificate is refused until somebody adds
    it."""
    platform = keys["wechat"]["platform"]
    only = [{"id": platform["public_key_id"], "pem": platform["public_key"]}]
    gateway = build_gateway("wechat", config_from(keys, sim.base_url, platform_keys=only))
    inbox.parse = lambda headers, body: gateway.parse_notify(headers=headers, body=body, now=now())
    sim.fault("notify.payment", "key_mix", times=1)
    out_trade_no = shop.order()
    notify_id = sim.pay(out_trade_no)["notify_id"]
    for _ in range(100):
        if inbox.rejected:
            break
        sim.get("health")
    assert inbox.rejected[0].verdict is Verdict.FORGED
    assert sim.redeliver(notify_id=notify_id)[0]["status"] == 204


def test_gateways_are_kept_per_account(keys: dict, sim: SimulatorClient) -> None:
    one = build_gateway("wechat", config_from(keys, sim.base_url))
    assert build_gateway("wechat", config_from(keys, sim.base_url)) is one
    assert build_gateway("wechat", config_from(keys, sim.base_url, 1)) is not one
    assert build_gateway("wechat", config_from(keys, sim.base_url, timeouts={"read": 3})) is not one


@pytest.mark.parametrize(
    "change",
    [
        {"api_v3_key": "short"},
        {"private_key": "no pem"},
    ],
)
def test_a_configuration_that_cannot_work_is_a_value_error(
    keys: dict, sim: SimulatorClient, change: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match=r".+"):
        WechatGateway(replace(config_from(keys, sim.base_url), **change))


def test_secrets_do_not_show_in_representations(keys: dict, sim: SimulatorClient) -> None:
    text = repr(config_from(keys, sim.base_url))
    assert "PRIVATE KEY" not in text
    assert keys["wechat"]["accounts"][0]["api_v3_key"] not in text
