"""kill -9 loses nothing that was accepted, and what is still owed is sent after the restart."""

from __future__ import annotations

import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from payments.channels.wechat import WechatGateway
from payments.gateway import ChannelUnknown, PaymentState, RefundState
from payments.simulator.client import SimulatorClient
from payments.simulator.keys import ensure_keys
from tests.payments.wire.conftest import ROOT, Inbox, Running, Shop, config_from, now


@pytest.fixture
def state(tmp_path: Path, simulator_process: Running) -> Path:
    """A memory of its own; the keys are another's, because making them takes seconds."""
    made = tmp_path / "state with spaces"
    made.mkdir()
    shutil.copy(simulator_process.state / "keys.json", made)
    return made


@pytest.fixture
def own(state: Path) -> Iterator[Running]:
    running = Running(state)
    running.start()
    yield running
    running.kill(signal.SIGTERM)


def shop_at(running: Running, inbox: Inbox) -> Shop:
    gateway = WechatGateway(config_from(ensure_keys(running.state), running.base_url))
    inbox.parse = lambda headers, body: gateway.parse_notify(headers=headers, body=body, now=now())
    return Shop(gateway, SimulatorClient(running.base_url), f"{inbox.base_url}/pay", f"{inbox.base_url}/refund")


def test_killed_in_the_middle_it_goes_on_where_it_was(own: Running, inbox: Inbox) -> None:
    shop = shop_at(own, inbox)
    shop.sim.settings(auto_settle=True, refund_delay_seconds=0.5)
    inbox.refuse_next = 1_000_000
    unpaid, paid = shop.order(), shop.order()
    shop.sim.pay(paid)
    refund = shop.refund(paid, 17167)
    shop.sim.fault("wechat.query", "not_enough", times=3)
    own.kill()
    with pytest.raises(ChannelUnknown):
        shop.gateway.query_payment(out_trade_no=paid, now=now())
    own.start()

    inbox.refuse_next = 0
    shop.sim.clear_faults()
    assert shop.gateway.query_payment(out_trade_no=unpaid, now=now()).state is PaymentState.NOTPAY
    assert shop.gateway.query_payment(out_trade_no=paid, now=now()).state is PaymentState.REFUND
    shop.sim.wait_for_notify(refund_no=refund.refund_no)
    assert shop.sim.order(paid)["notifies"][0]["state"] == "ACKED"
    settled = shop.gateway.query_refund(refund_no=refund.refund_no, out_trade_no=paid, now=now())
    assert settled.state is RefundState.SUCCESS


def test_killed_again_and_again_under_refunds_nothing_is_lost_or_doubled(own: Running, inbox: Inbox) -> None:
    """Whatever the answer was, the same number again ends with exactly one refund of that amount."""
    shop = shop_at(own, inbox)
    out_trade_no = shop.paid(10000)
    lost = 0
    for number in range(6):
        refund_no = f"{out_trade_no}-{number}"
        shop.sim.fault("wechat.refund", "timeout_after" if number % 2 else "reset_after", seconds=5)
        try:
            if number % 3 == 0:
                own.kill()
                own.start()
            shop.refund(out_trade_no, 100, 10000, refund_no=refund_no, gateway=hasty_of(own))
        except ChannelUnknown:
            lost += 1
        shop.sim.clear_faults()
        shop.refund(out_trade_no, 100, 10000, refund_no=refund_no)
    refunds = shop.sim.order(out_trade_no)["refunds"]
    assert lost == 6
    assert len(refunds) == 6
    assert sum(row["amount_fen"] for row in refunds) == 600


def hasty_of(running: Running) -> WechatGateway:
    return WechatGateway(config_from(ensure_keys(running.state), running.base_url, timeouts={"read": 0.2}))


def test_keys_are_made_once_and_are_private(tmp_path: Path) -> None:
    state = tmp_path / "state"
    command = [sys.executable, "-m", "payments.simulator", "--state", str(state), "--keys-only"]
    makers = [subprocess.Popen(command, cwd=ROOT) for _ in range(2)]
    assert [maker.wait(60) for maker in makers] == [0, 0]
    path = state / "keys.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ensure_keys(state) == ensure_keys(state)
    assert [each.name for each in state.iterdir()] == ["keys.json"]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_when_told(state: Path, how: signal.Signals) -> None:
    running = Running(state)
    running.start()
    started = time.monotonic()
    assert running.kill(how) == 0
    assert time.monotonic() - started < 3


def test_a_port_or_a_memory_in_use_is_said(own: Running, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "payments.simulator", "--state"]
    for arguments, says in (
        ([str(tmp_path / "x"), "--port", str(own.port)], str(own.port)),
        ([str(own.state), "--port", "0"], "temporarily unavailable"),
    ):
        done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert says in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "x").exists()
