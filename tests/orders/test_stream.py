"""The status stream, driven as ASGI: first frame, order of frames, endings, revocation, heartbeats."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
from django.db import connection

from kernel import numbers, valkey
from orders import status_board, stream
from orders.commands.cancel_order import cancel_order
from orders.commands.confirm_paid import confirm_paid
from orders.commands.revoke_order_token import revoke_order_token
from tests.orders.factories import CARD, Shop, drain, order_of, paid_fact, payment_of


@pytest.fixture(autouse=True)
def _no_connection_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.2)
    yield
    wait([stream._database.submit(connection.close) for _ in range(stream.DATABASE_THREADS * 3)])


class Client:
    """One open stream: what was sent, as it comes."""

    def __init__(self, token: str, path: str = "/api/v1/orders/status/{}/events", method: str = "GET") -> None:
        self.scope = {"type": "http", "method": method, "path": path.format(token)}
        self.gone = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        self.fresh = asyncio.Event()

    async def run(self) -> None:
        await stream.application(self.scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(dict(message))
        self.fresh.set()

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.sent).decode()

    @property
    def frames(self) -> list[dict[str, Any]]:
        lines = [line for line in self.text.splitlines() if line.startswith("data: {")]
        return [json.loads(line.removeprefix("data: ")) for line in lines if len(line) > 8]

    async def until(self, wanted: Any, seconds: float = 5.0) -> None:
        async with asyncio.timeout(seconds):
            while not wanted(self):
                self.fresh.clear()
                await self.fresh.wait()


async def in_thread(function: Any, **kwargs: Any) -> Any:
    def call() -> Any:
        try:
            return function(**kwargs)
        finally:
            connection.close()

    return await asyncio.to_thread(call)


def stream_of(token: str, story: Any, **options: Any) -> Client:
    """Open a stream, let the story happen, and end."""

    async def play() -> Client:
        client = Client(token, **options)
        task = asyncio.create_task(client.run())
        try:
            await story(client, task)
        finally:
            client.gone.set()
            await asyncio.wait_for(task, 5)
            await stream.hub().close()
        return client

    # In a thread of its own: a browser of another test keeps a loop running in this one.
    with ThreadPoolExecutor(max_workers=1) as outside:
        return outside.submit(asyncio.run, play()).result()


def test_first_frame_then_changes_then_the_end(shop: Shop) -> None:
    ordered = shop.order()

    async def story(client: Client, task: asyncio.Task) -> None:
        await client.until(lambda c: c.frames)
        await in_thread(
            cancel_order,
            merchant_id=shop.id,
            order_no=ordered.order_no,
            user_id="user-1",
            key=shop.key(),
            now=shop.now,
        )
        await in_thread(drain)
        await asyncio.wait_for(task, 5)

    client = stream_of(ordered.order_token, story)
    assert client.status == 200
    assert [(frame["status_name"], frame["version"]) for frame in client.frames] == [("PENDING", 1), ("CANCELLED", 2)]
    assert client.text.startswith("retry: 3000\nid: 1\nevent: status\n")


def test_duplicates_and_regressions_are_dropped(shop: Shop) -> None:
    ordered = shop.order(CARD)
    shop.pay(ordered)
    payment = payment_of(ordered)
    confirm_paid(order_id=ordered.order_id, payment_id=payment.id, fact=paid_fact(payment), now=shop.now)
    old = status_board.frame_of(order_of(ordered)).to_json().replace('"version":2', '"version":1')

    async def story(client: Client, task: asyncio.Task) -> None:
        await client.until(lambda c: c.frames)
        for text in (old, status_board.frame_of(await in_thread(order_of, ordered=ordered)).to_json()):
            valkey.client().publish(status_board.channel_of(ordered.order_id), text)
        await client.until(lambda c: c.text.count(": alive") >= 2)

    client = stream_of(ordered.order_token, story)
    assert [frame["version"] for frame in client.frames] == [2]


def test_a_message_that_was_lost_is_found_at_the_next_heartbeat(shop: Shop) -> None:
    ordered = shop.order()

    async def story(client: Client, task: asyncio.Task) -> None:
        await client.until(lambda c: c.frames)
        await in_thread(
            cancel_order,
            merchant_id=shop.id,
            order_no=ordered.order_no,
            user_id="user-1",
            key=shop.key(),
            now=shop.now,
        )
        await asyncio.wait_for(task, 5)  # nothing was relayed, so nothing was published

    client = stream_of(ordered.order_token, story)
    assert client.frames[-1]["status_name"] == "CANCELLED"


def test_a_revoked_token_ends_its_stream_and_opens_no_other(shop: Shop) -> None:
    ordered = shop.order()

    async def story(client: Client, task: asyncio.Task) -> None:
        await client.until(lambda c: c.frames)
        await in_thread(
            revoke_order_token,
            merchant_id=shop.id,
            order_no=ordered.order_no,
            renew=True,
            key=shop.key(),
            now=shop.now,
        )
        await asyncio.wait_for(task, 5)

    client = stream_of(ordered.order_token, story)
    assert client.text.endswith("event: revoked\ndata: {}\n\n")
    assert refused(ordered.order_token).status == 404


def refused(token: str, **options: Any) -> Client:
    async def story(client: Client, task: asyncio.Task) -> None:
        await asyncio.wait_for(task, 5)

    return stream_of(token, story, **options)


def test_what_is_no_stream_is_refused(shop: Shop) -> None:
    ordered = shop.order()
    assert refused(numbers.new_token()).status == 404
    assert refused("short").status == 404
    assert refused(ordered.order_token, path="/api/v1/orders/status/{}").status == 404
    assert refused(ordered.order_token, method="POST").status == 405


def test_a_terminal_order_gets_one_frame_and_the_end(shop: Shop) -> None:
    ordered = shop.order()
    cancel_order(merchant_id=shop.id, order_no=ordered.order_no, user_id="user-1", key=shop.key(), now=shop.now)
    client = refused(ordered.order_token)
    assert [frame["terminal"] for frame in client.frames] == [True]
    assert client.sent[-1]["more_body"] is False


def test_the_process_ends_its_streams_when_it_ends(shop: Shop) -> None:
    ordered = shop.order()

    async def story(client: Client, task: asyncio.Task) -> None:
        await client.until(lambda c: c.frames)
        messages = iter(["lifespan.startup", "lifespan.shutdown"])
        said: list[str] = []

        async def receive() -> dict[str, str]:
            return {"type": next(messages)}

        async def send(message: Any) -> None:
            said.append(message["type"])

        await stream.application({"type": "lifespan"}, receive, send)
        assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        await asyncio.wait_for(task, 5)

    stream_of(ordered.order_token, story)
