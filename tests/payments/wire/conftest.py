"""The real driver against the simulator's real wire: the simulator runs as its own process, notifies come
over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from payments.channels.transport import Timeouts
from payments.channels.wechat import WechatConfig, WechatGateway
from payments.gateway import NotifyRejected
from payments.registry import build_gateway, config_of
from payments.simulator.client import SimulatorClient
from payments.simulator.keys import wechat_account

ROOT = Path(__file__).parents[3]


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Running:
    """A simulator process. ``kill`` is kill -9; ``start`` brings it back on the same port with the same
    memory."""

    state: Path
    port: int = 0
    process: subprocess.Popen[str] | None = None
    base_url: str = ""

    def start(self) -> None:
        command = [sys.executable, "-m", "payments.simulator", "--state", str(self.state)]
        command += ["--port", str(self.port), "--set", "notify_speed=200"]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "QUITS_ENV"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("channel simulator: "), line
        self.base_url = line.removeprefix("channel simulator: ").strip().rstrip("/")
        self.port = int(self.base_url.rsplit(":", 1)[1])

    def kill(self, how: signal.Signals = signal.SIGKILL) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(10)


@pytest.fixture(scope="session")
def simulator_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("simulator"))
    running.start()
    yield running
    running.kill(signal.SIGTERM)


@pytest.fixture(scope="session")
def hands(simulator_process: Running) -> Iterator[SimulatorClient]:
    client = SimulatorClient(simulator_process.base_url)
    yield client
    client.close()


@pytest.fixture
def sim(hands: SimulatorClient) -> SimulatorClient:
    """The payer's and the channel's hands, everything back in its place."""
    client = hands
    client.clear_faults()
    client.settings(
        auto_settle=True,
        refund_delay_seconds=0.05,
        refund_outcome="SUCCESS",
        refund_spacing_seconds=0.0,
        notify_speed=200.0,
        notify_key="public_key",
        answer_key="as_asked",
        bills_always_ready=False,
        offset_seconds=0.0,
    )
    return client


@pytest.fixture
def keys(simulator_process: Running) -> dict[str, Any]:
    return json.loads((simulator_process.state / "keys.json").read_text())


def config_from(keys: dict[str, Any], base_url: str, number: int = 0, **settings: Any) -> WechatConfig:
    row = wechat_account(keys, number, base_url)
    account = SimpleNamespace(
        channel="wechat", mchid=row["mchid"], app_id=row["app_id"], settings=row["settings"] | settings
    )
    config = config_of(account, row["secrets"])
    assert isinstance(config, WechatConfig)
    return config


@pytest.fixture
def config(keys: dict[str, Any], sim: SimulatorClient) -> WechatConfig:
    return config_from(keys, sim.base_url)


@pytest.fixture
def gateway(config: WechatConfig) -> WechatGateway:
    made = build_gateway("wechat", config)
    assert isinstance(made, WechatGateway)
    return made


@pytest.fixture
def hasty(keys: dict[str, Any], sim: SimulatorClient) -> Iterator[WechatGateway]:
    """A driver that waits half a second only."""
    made = WechatGateway(config_from(keys, sim.base_url, timeouts={"read": 0.5}))
    assert made._config.timeouts == Timeouts(read=0.5)
    yield made
    made.close()


def new_no(prefix: str = "T") -> str:
    return f"{prefix}{uuid4().hex[:20]}"


@dataclass
class Shop:
    """One unpaid or paid order at the channel, and the few words tests need about it."""

    gateway: WechatGateway
    sim: SimulatorClient
    notify_url: str
    refund_url: str

    def order(self, amount_fen: int = 26000, **fields: Any) -> str:
        out_trade_no = fields.pop("out_trade_no", None) or new_no()
        self.gateway.prepay(
            out_trade_no=out_trade_no,
            amount_fen=amount_fen,
            description=fields.pop("description", "坚果与茶"),
            payer_ref="oUpF8uMuAJO_M2pxb1Q9zNjWeS6o",
            notify_url=fields.pop("notify_url", self.notify_url),
            expires_at=fields.pop("expires_at", None),
            now=now(),
        )
        assert not fields
        return out_trade_no

    def paid(self, amount_fen: int = 26000, **options: Any) -> str:
        out_trade_no = self.order(amount_fen)
        self.sim.pay(out_trade_no, **({"notify": False} | options))
        return out_trade_no

    def refund(self, out_trade_no: str, amount_fen: int, total_fen: int = 26000, **fields: Any) -> Any:
        gateway = fields.pop("gateway", self.gateway)
        return gateway.refund(
            refund_no=fields.pop("refund_no", None) or new_no("AS"),
            out_trade_no=out_trade_no,
            amount_fen=amount_fen,
            total_fen=total_fen,
            reason="商品破损",
            notify_url=self.refund_url,
            now=now(),
            **fields,
        )


@dataclass
class Inbox:
    """A receiver of notifies: parses each with the driver, answers as the driver says, keeps what came."""

    base_url: str = ""
    parse: Callable[[dict[str, str], bytes], Any] | None = None
    notices: list[Any] = field(default_factory=list)
    rejected: list[NotifyRejected] = field(default_factory=list)
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    refuse_next: int = 0
    good: tuple[int, bytes] = (204, b"")
    lock: threading.Lock = field(default_factory=threading.Lock)

    def receive(self, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        with self.lock:
            self.requests.append((headers, body))
            if self.refuse_next:
                self.refuse_next -= 1
                return 500, b""
        assert self.parse is not None
        try:
            notice = self.parse(headers, body)
        except NotifyRejected as rejection:
            with self.lock:
                self.rejected.append(rejection)
            return 401, b""
        with self.lock:
            self.notices.append(notice)
        return self.good


@pytest.fixture
def inbox(gateway: WechatGateway) -> Iterator[Inbox]:
    box = Inbox(parse=lambda headers, body: gateway.parse_notify(headers=headers, body=body, now=now()))

    class Receiver(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = box.receive(dict(self.headers.items()), body)
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    box.base_url = f"http://127.0.0.1:{server.server_address[1]}"
    yield box
    server.shutdown()
    server.server_close()


@pytest.fixture
def shop(gateway: WechatGateway, sim: SimulatorClient, inbox: Inbox) -> Shop:
    return Shop(gateway, sim, f"{inbox.base_url}/pay", f"{inbox.base_url}/refund")
