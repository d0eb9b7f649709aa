"""Orders on committed rows, against the simulator's real wire."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from payments.simulator.client import SimulatorClient
from tests.orders.factories import Shop, open_shop
from tests.payments.wire.conftest import Running, keys, simulator_process

__all__ = ["keys", "simulator_process"]


@pytest.fixture
def now() -> datetime:
    """The real instant: the simulator and the drivers judge signatures and expiry by the machine's clock."""
    return datetime.now(UTC)


@pytest.fixture
def simulator(simulator_process: Running) -> Iterator[SimulatorClient]:
    """The simulator, healthy and with nothing in its memory."""
    client = SimulatorClient(simulator_process.base_url)
    client.clear_faults()
    client.reset()
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
    yield client
    client.close()


@pytest.fixture
def shop(transactional_db: None, now, simulator_process: Running, simulator: SimulatorClient, keys: dict) -> Shop:
    """A merchant with a WeChat account at the simulator, a coupon template of 50 off from 300, and some stock."""
    return open_shop(now=now, keys=keys, simulator=simulator)
