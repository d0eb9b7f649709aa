import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from payments.simulator.client import SimulatorClient
from tests.payments.channel import Trader
from tests.payments.factories import Shop, a_shop
from tests.payments.wire.conftest import Running


@pytest.fixture
def shop(transactional_db, now) -> Shop:
    """Committed rows: commands open durable transactions of their own."""
    return a_shop(now)


@pytest.fixture(scope="session")
def channel_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The simulator as a process of its own; the wire tests have another one."""
    running = Running(Path(tmp_path_factory.mktemp("channel")))
    running.start()
    yield running
    running.kill()


@pytest.fixture
def channel(channel_process: Running) -> Iterator[SimulatorClient]:
    """The simulator, empty and without faults; refunds settle only when told, callbacks reach no one."""
    client = SimulatorClient(channel_process.base_url)
    client.reset()
    client.clear_faults()
    client.settings(
        auto_settle=False,
        refund_delay_seconds=0.0,
        refund_outcome="SUCCESS",
        refund_spacing_seconds=0.0,
        notify_speed=200.0,
        notify_key="public_key",
        answer_key="as_asked",
        bills_always_ready=True,
        offset_seconds=0.0,
    )
    yield client
    client.close()


@pytest.fixture
def channel_keys(channel_process: Running) -> dict[str, Any]:
    return json.loads((channel_process.state / "keys.json").read_text())


@pytest.fixture
def trader(transactional_db, channel: SimulatorClient, channel_keys: dict[str, Any]) -> Trader:
    """A merchant with a WeChat account at the running simulator."""
    return Trader.open(channel, channel_keys)
