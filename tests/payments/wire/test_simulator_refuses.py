"""The simulator believes nobody: an altered body, path, serial or time is a 401, and nothing is accepted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from payments.channels.wechat import WechatConfig
from payments.channels.wechat_wire import Signer, load_private_key
from payments.simulator.client import SimulatorClient, SimulatorError
from tests.payments.wire.conftest import ROOT, new_no


@dataclass(frozen=True)
class Sent:
    """A request as it goes out, after it was signed: what a man in the middle could change."""

    target: str
    body: bytes
    headers: dict[str, str]

    def header(self, old: str, new: str) -> Sent:
        changed = self.headers["Authorization"].replace(old, new)
        assert changed != self.headers["Authorization"]
        return replace(self, headers=self.headers | {"Authorization": changed})


def prepay(config: WechatConfig, **fields: Any) -> dict[str, Any]:
    return {
        "appid": config.app_id,
        "mchid": config.mchid,
        "description": "坚果",
        "out_trade_no": new_no(),
        "notify_url": "https://shop.example/pay",
        "amount": {"total": 100, "currency": "CNY"},
        "payer": {"openid": "openid"},
    } | fields


def signed(config: WechatConfig, target: str, content: Any, *, age: int = 0, **other: str) -> Sent:
    signer = Signer(
        other.get("mchid", config.mchid),
        other.get("serial", config.merchant_serial),
        load_private_key(other.get("key", config.private_key)),
    )
    body = json.dumps(content, ensure_ascii=False).encode() if content is not None else b""
    authorization = signer.authorization(
        method="POST", target=target, body=body, timestamp=int(time.time()) - age, nonce="N" * 32
    )
    headers = {"Authorization": authorization, "Content-Type": "application/json", "Accept": "application/json"}
    return Sent(target, body, headers)


def send(sim: SimulatorClient, sent: Sent) -> httpx.Response:
    return httpx.post(sim.base_url + sent.target, content=sent.body, headers=sent.headers, trust_env=False)


JSAPI = "/v3/pay/transactions/jsapi"

TAMPERED: dict[str, Callable[[Sent], Sent]] = {
    "body": lambda sent: replace(sent, body=sent.body.replace(b'"total": 100', b'"total": 1')),
    "body, one blank more": lambda sent: replace(sent, body=sent.body + b" "),
    "path": lambda sent: replace(sent, target=f"{JSAPI}/"),
    "query": lambda sent: replace(sent, target=f"{JSAPI}?a=1"),
    "serial": lambda sent: sent.header('serial_no="', 'serial_no="0'),
    "time": lambda sent: sent.header('timestamp="1', 'timestamp="2'),
    "nonce": lambda sent: sent.header("NNNN", "NNNM"),
    "merchant": lambda sent: sent.header('mchid="1900000101"', 'mchid="1900000102"'),
    "scheme": lambda sent: sent.header("SHA256-RSA2048", "SM2-WITH-SM3"),
    "signature": lambda sent: sent.header('signature="', 'signature="A'),
    "no signature": lambda sent: replace(sent, headers={"Content-Type": "application/json"}),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_tampered_request_is_401_and_nothing_is_accepted(
    sim: SimulatorClient, config: WechatConfig, what: str
) -> None:
    content = prepay(config)
    sent = signed(config, JSAPI, content)
    refused = send(sim, TAMPERED[what](sent))
    assert (refused.status_code, refused.json()["code"]) == (401, "SIGN_ERROR")
    assert "wechatpay-signature" not in refused.headers
    assert sim.order(content["out_trade_no"])["orders"] == []
    assert send(sim, sent).status_code == 200, "the same request untouched is good"


@pytest.mark.parametrize(("age", "status"), [(290, 200), (-290, 200), (310, 401), (-310, 401)])
def test_five_minutes_either_way(sim: SimulatorClient, config: WechatConfig, age: int, status: int) -> None:
    assert send(sim, signed(config, JSAPI, prepay(config), age=age)).status_code == status


def test_the_business_clock_does_not_touch_the_five_minutes(sim: SimulatorClient, config: WechatConfig) -> None:
    sim.clock(advance_seconds=86400)
    assert send(sim, signed(config, JSAPI, prepay(config))).status_code == 200


def test_another_merchant_s_key_or_a_forger_s_is_401(
    sim: SimulatorClient, config: WechatConfig, keys: dict[str, Any]
) -> None:
    for key in (keys["wechat"]["accounts"][1]["private_key"], keys["forger"]["private_key"]):
        assert send(sim, signed(config, JSAPI, prepay(config), key=key)).status_code == 401


def test_a_merchant_cannot_act_for_another(sim: SimulatorClient, config: WechatConfig, keys: dict[str, Any]) -> None:
    other = keys["wechat"]["accounts"][1]
    answer = send(sim, signed(config, JSAPI, prepay(config, mchid=other["mchid"])))
    assert (answer.status_code, answer.json()["code"]) == (400, "MCH_NOT_EXISTS")
    answer = send(sim, signed(config, JSAPI, prepay(config, appid=other["app_id"])))
    assert (answer.status_code, answer.json()["code"]) == (400, "APPID_MCHID_NOT_MATCH")


@pytest.mark.parametrize(
    "fields",
    [
        {"amount": {"total": 100.0, "currency": "CNY"}},
        {"amount": {"total": "100", "currency": "CNY"}},
        {"amount": {"total": True, "currency": "CNY"}},
        {"amount": {"total": 0, "currency": "CNY"}},
        {"amount": {"total": -5, "currency": "CNY"}},
        {"amount": {"total": 100, "currency": "USD"}},
        {"amount": 100},
        {"out_trade_no": "short"},
        {"out_trade_no": "with space 1"},
        {"out_trade_no": 1234567},
        {"notify_url": "http://shop.example/pay"},
        {"notify_url": "https://shop.example/pay?x=1"},
        {"payer": {}},
        {"description": "x" * 128},
        {"time_expire": "tomorrow"},
    ],
)
def test_fields_that_do_not_fit_are_400_and_signed(
    sim: SimulatorClient, config: WechatConfig, fields: dict[str, Any]
) -> None:
    answer = send(sim, signed(config, JSAPI, prepay(config, **fields)))
    assert (answer.status_code, answer.json()["code"]) == (400, "PARAM_ERROR")
    assert answer.headers["wechatpay-signature"]


def test_control_is_not_for_foreign_pages(sim: SimulatorClient) -> None:
    answer = httpx.post(
        f"{sim.base_url}/control/reset", json={}, headers={"Origin": "https://evil.example"}, trust_env=False
    )
    assert answer.status_code == 403


def test_control_says_what_is_wrong(sim: SimulatorClient) -> None:
    for path, body, status in [
        ("pay", {"out_trade_no": "unknown-1"}, 409),
        ("pay", {}, 400),
        ("faults", {"operation": "wechat.refund", "kind": "nonsense"}, 400),
        ("settings", {"nonsense": 1}, 400),
        ("settings", {"auto_settle": "yes"}, 400),
        ("nonsense", {}, 404),
    ]:
        with pytest.raises(SimulatorError) as refused:
            sim.post(path, **body)
        assert refused.value.status == status


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (["--host", "127.0.0.1"], {"QUITS_ENV": "production"}, "production"),
        (["--host", "0.0.0.0"], {}, "not this machine alone"),
        (["--host", "10.1.2.3"], {}, "not this machine alone"),
        (["--host", "pay.example"], {}, "not this machine alone"),
    ],
)
def test_it_refuses_production_and_every_address_but_loopback(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], says: str
) -> None:
    state = tmp_path / "state"
    done = subprocess.run(
        [sys.executable, "-m", "payments.simulator", "--port", "0", "--state", str(state), *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2
    assert says in done.stderr
    assert not state.exists()
