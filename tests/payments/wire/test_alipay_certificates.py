"""Certificate mode: the same road, keys that count only below the root, and a new certificate found by its name."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from payments.channels.alipay import AlipayGateway
from payments.channels.alipay_certificates import Untrusted, own_sn, root_sn, trusted
from payments.channels.wechat_wire import wall_clock
from payments.gateway import ChannelUnknown, Doubt, NotifyRejected, PaymentState, RefundState, Verdict
from payments.simulator.client import SimulatorClient
from payments.simulator.keys import alipay_certificate_settings, make_authority, make_leaf, pair
from tests.payments.wire.conftest import Inbox, new_no, now
from tests.payments.wire.test_alipay import AlipayShop, alipay_config


def looks(sim: SimulatorClient) -> int:
    return sum(call["operation"] == "alipay.open.app.alipaycert.download" for call in sim.get("log")["calls"])


@pytest.fixture
def certified(keys: dict[str, Any], sim: SimulatorClient) -> Iterator[AlipayGateway]:
    """A driver in certificate mode that starts without any certificate of Alipay but the root."""
    settings = {**alipay_certificate_settings(keys, 0), "alipay_certificates": []}
    made = AlipayGateway(alipay_config(keys, sim.base_url, **settings))
    yield made
    made.close()


def test_the_main_road(certified: AlipayGateway, sim: SimulatorClient, inbox: Inbox) -> None:
    before = looks(sim)
    shop = AlipayShop(certified, sim, inbox)
    out_trade_no = shop.paid(1990)
    assert certified.query_payment(out_trade_no=out_trade_no, now=now()).state is PaymentState.SUCCESS
    assert shop.refund(out_trade_no, 990, 1990).state is RefundState.SUCCESS
    assert certified.query_payment(out_trade_no=new_no(), now=now()).state is PaymentState.NOT_FOUND
    assert looks(sim) == before + 1, "the certificate is looked for once"


def test_a_new_certificate_is_found_by_its_name_in_answers_and_notifies(
    certified: AlipayGateway, sim: SimulatorClient, inbox: Inbox
) -> None:
    moment = wall_clock()
    certified._wall = lambda: moment
    shop = AlipayShop(certified, sim, inbox)
    shop.paid()
    serial = sim.post("rotate-certificate", channel="alipay")["serial"]
    with pytest.raises(ChannelUnknown) as unknown:
        certified.query_payment(out_trade_no=new_no(), now=now())
    assert unknown.value.reason is Doubt.FORGED, "looked for a moment ago: not again within a minute"
    moment += timedelta(seconds=61)
    sim.settings(notify_key="certificate")
    out_trade_no = shop.paid(notify=True)
    assert sim.wait_for_notify(out_trade_no=out_trade_no)["state"] == "ACKED"
    assert serial in certified._certified
    assert certified.query_payment(out_trade_no=out_trade_no, now=now()).state is PaymentState.SUCCESS


def test_a_certificate_of_another_root_is_not_believed(
    certified: AlipayGateway, sim: SimulatorClient, keys: dict[str, Any]
) -> None:
    """Its root even bears the same name as ours."""
    sim.post("rotate-certificate", channel="alipay", forged=True)
    try:
        with pytest.raises(ChannelUnknown) as unknown:
            certified.query_payment(out_trade_no=new_no(), now=now())
        assert unknown.value.reason is Doubt.FORGED
        assert certified._certified == {}
    finally:
        sim.post("rotate-certificate", channel="alipay")


@pytest.mark.parametrize("lie", ["forged", "unsigned", "altered_body", "garbage", "unknown_serial"])
def test_answers_that_lie(certified: AlipayGateway, sim: SimulatorClient, lie: str) -> None:
    certified.query_payment(out_trade_no=new_no(), now=now())
    sim.fault("alipay.trade.query", lie)
    with pytest.raises(ChannelUnknown):
        certified.query_payment(out_trade_no=new_no(), now=now())


def test_made_up_names_make_one_call_a_minute(certified: AlipayGateway, sim: SimulatorClient) -> None:
    before = looks(sim)
    for number in range(5):
        body = f"alipay_cert_sn={number:032x}&notify_time=x&sign=AAAA&sign_type=RSA2".encode()
        with pytest.raises(NotifyRejected) as rejected:
            certified.parse_notify(headers={}, body=body, now=now())
        assert rejected.value.verdict is Verdict.FORGED
    assert looks(sim) == before + 1


def test_a_wrong_application_certificate_is_our_own_mistake(keys: dict[str, Any], sim: SimulatorClient) -> None:
    settings = alipay_certificate_settings(keys, 0)
    settings["app_certificate"] = keys["alipay"]["accounts"][1]["certificate"]
    gateway = AlipayGateway(alipay_config(keys, sim.base_url, **settings))
    with pytest.raises(ChannelUnknown) as unknown:
        gateway.query_payment(out_trade_no=new_no(), now=now())
    assert unknown.value.reason is Doubt.UNAUTHENTICATED
    gateway.close()


def test_chains(keys: dict[str, Any]) -> None:
    root, at = make_authority("Root"), wall_clock()
    issuer = make_authority("Issuer", issuer=root)
    leaf = make_leaf("Leaf", pair()["private_key"], issuer)
    alone = leaf["certificate"].split("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----\n"
    assert trusted(leaf["certificate"], root=root["certificate"], at=at).sn == own_sn(leaf["certificate"])
    assert "_" in root_sn(root["certificate"] + make_authority("Other")["certificate"])
    below_leaf = make_leaf("Below", pair()["private_key"], {**leaf, "certificate": alone})
    for bundle, moment in (
        ("", at),
        (alone, at),
        (leaf["certificate"], at + timedelta(days=6 * 365)),
        (leaf["certificate"], at - timedelta(days=2)),
        (root["certificate"], at),
        (below_leaf["certificate"] + issuer["certificate"], at),
    ):
        with pytest.raises(Untrusted):
            trusted(bundle, root=root["certificate"], at=moment)
    with pytest.raises(Untrusted):
        trusted(leaf["certificate"], root=make_authority("Root")["certificate"], at=at)
    with pytest.raises(ValueError, match="certificate"):
        own_sn("")
    with pytest.raises(ValueError, match="certificate"):
        root_sn("nothing")
