"""A thousand open status streams on one process: a bounded number of database connections, and a change reaches all."""

import asyncio
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.conf import settings
from django.db import connection

from tests.orders.factories import CARD, Shop, drain

pytestmark = pytest.mark.slow

STREAMS = 1000
ORDERS = 20
MOST_CONNECTIONS = 6
ROOT = Path(__file__).parents[2]


@pytest.fixture
def stream_process(transactional_db: None) -> Iterator[int]:
    """The status stream as it is deployed, on the database of the tests. Its port."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, max(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = urlsplit(os.environ["DATABASE_OWNER_URL"])
    database = urlunsplit(address._replace(path="/" + connection.settings_dict["NAME"]))
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "granian", "--interface", "asgi", "--host", "127.0.0.1", "--port", str(port)),
            *("--workers", "1", "--backpressure", "4096", "--workers-kill-timeout", "3", "--no-ws"),
            "config.asgi:application",
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "DATABASE_URL": database,
            "DATABASE_OWNER_URL": database,
            "REDIS_URL": settings.REDIS_URL,
            "QUITS_PROCESS": "stream",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    yield port
    process.terminate()
    process.wait(20)


def database_connections() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'quits-stream' AND datname = %s",
            [connection.settings_dict["NAME"]],
        )
        return cursor.fetchone()[0]


async def watch(port: int, token: str, opened: asyncio.Event, counts: dict[str, int]) -> float:
    """Open one stream and read until the order is cancelled. When the last frame arrived."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    path = f"/api/v1/orders/status/{token}/events"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode())
    await writer.drain()
    status = (await reader.readline()).split()[1]
    assert status == b"200", status
    while True:
        line = await reader.readline()
        assert line, "the stream ended before the order did"
        if line.startswith(b"data: {") and len(line) > 20:
            frame = json.loads(line[6:])
            if frame["version"] == 1:
                counts["open"] += 1
                if counts["open"] == STREAMS:
                    opened.set()
            else:
                assert frame["status_name"] == "CANCELLED"
                writer.close()
                return time.time()


def test_a_thousand_streams_hear_a_change(shop: Shop, stream_process: int) -> None:
    orders = [shop.order(CARD, address={"street": str(number)}) for number in range(ORDERS)]
    measured: dict[str, object] = {}

    def change() -> float:
        try:
            measured["connections"] = database_connections()
            for ordered in orders:
                shop.cancel(ordered)
            began = time.time()
            drain()
            measured["published"] = time.time() - began
            return began
        finally:
            connection.close()

    async def play() -> list[float]:
        opened, counts = asyncio.Event(), {"open": 0}
        began = time.time()
        watchers = [
            asyncio.create_task(watch(stream_process, orders[number % ORDERS].order_token, opened, counts))
            for number in range(STREAMS)
        ]
        gate = asyncio.create_task(opened.wait())
        done, _ = await asyncio.wait({gate, *watchers}, timeout=120, return_when=asyncio.FIRST_COMPLETED)
        assert gate in done, (counts, [task.exception() for task in watchers if task.done()][:3])
        measured["opening"] = time.time() - began
        changed = await asyncio.to_thread(change)
        return [arrived - changed for arrived in await asyncio.wait_for(asyncio.gather(*watchers), 60)]

    with ThreadPoolExecutor(max_workers=1) as outside:  # a browser of another test keeps a loop running in this thread
        delays = sorted(outside.submit(asyncio.run, play()).result())
    p50, p95 = statistics.median(delays), delays[int(len(delays) * 0.95)]
    print(
        f"\nstreams: {len(delays)} of {STREAMS} heard it; opened in {measured['opening']:.1f} s;"
        f" {measured['connections']} database connections; from the relay's start to the client"
        f" p50 {p50 * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms ({ORDERS} orders relayed in"
        f" {measured['published'] * 1000:.0f} ms)"
    )
    assert len(delays) == STREAMS
    assert measured["connections"] <= MOST_CONNECTIONS
