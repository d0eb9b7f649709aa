"""The status stream: a pure ASGI application that serves `GET /api/v1/orders/status/{token}/events` as Server-Sent
Events, in a process of its own.

A stream listens first and reads the present status second, so no change falls between; it drops duplicates and
regressions by version, ends at a terminal status or when the token is revoked, and says every 15 seconds that it is
alive. One Valkey connection per process serves all streams. The database is read by a few threads, each with one
connection, for the length of one query: a thousand open streams hold no more connections than ten.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

import redis.asyncio as aioredis
import structlog
from django.conf import settings
from django.db import close_old_connections, connection

from kernel import valkey
from orders import status_board

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

PATH = re.compile(r"/api/v1/orders/status/([0-9A-Za-z_-]{43})/events")
HEARTBEAT_SECONDS = 15.0
RETRY_MS = 3000
DATABASE_THREADS = 4
MOST_STREAMS = 10_000
QUEUE_LIMIT = 32
RECONNECT_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)

LOOK_AGAIN = "look"
END = "end"

log = structlog.get_logger(__name__)
_database = ThreadPoolExecutor(DATABASE_THREADS, thread_name_prefix="stream-db")


class Hub:
    """Hears every order's frames on one connection and hands each to the streams that watch that order."""

    def __init__(self) -> None:
        self.watchers: dict[UUID, set[asyncio.Queue[str]]] = {}
        self.count = 0
        self.closing = False
        self._task: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()

    async def ready(self) -> None:
        """Listen, once per process. When Valkey is away the streams live on by looking at every heartbeat."""
        if self._task is None:
            self._task = asyncio.create_task(self._listen())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._listening.wait(), 2.0)

    @asynccontextmanager
    async def watch(self, order_id: UUID) -> AsyncIterator["asyncio.Queue[str]"]:
        """A queue that receives the frames of an order from now on."""
        queue: asyncio.Queue[str] = asyncio.Queue(QUEUE_LIMIT)
        self.watchers.setdefault(order_id, set()).add(queue)
        self.count += 1
        try:
            yield queue
        finally:
            self.count -= 1
            watching = self.watchers[order_id]
            watching.discard(queue)
            if not watching:
                del self.watchers[order_id]

    def tell(self, text: str, order_id: UUID | None = None) -> None:
        """Hand a message to the streams of one order, or to all. A stream that lags behind looks again instead."""
        chosen = [self.watchers.get(order_id, set())] if order_id else list(self.watchers.values())
        for queues in chosen:
            for queue in queues:
                if queue.full():
                    queue.get_nowait()
                    text_for_it = LOOK_AGAIN if text != END else END
                else:
                    text_for_it = text
                queue.put_nowait(text_for_it)

    async def close(self) -> None:
        """End every stream, and the listening."""
        self.closing = True
        self.tell(END)
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _listen(self) -> None:
        tries = 0
        while not self.closing:
            try:
                await self._hear()
                tries = 0
            except valkey.Away as error:
                log.warning("stream.valkey_away", error=str(error))
            self._listening.clear()
            await asyncio.sleep(RECONNECT_SECONDS[min(tries, len(RECONNECT_SECONDS) - 1)])
            tries += 1

    async def _hear(self) -> None:
        client = aioredis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=1, health_check_interval=15)
        async with client, client.pubsub() as pubsub:
            await pubsub.psubscribe(status_board.channel_of("*"))
            self._listening.set()
            self.tell(LOOK_AGAIN)  # whatever was said while nobody listened
            prefix = len(status_board.channel_of(""))
            async for message in pubsub.listen():
                if message["type"] == "pmessage":
                    self.tell(message["data"].decode(), UUID(message["channel"].decode()[prefix:]))


_hubs: dict[asyncio.AbstractEventLoop, Hub] = {}


def hub() -> Hub:
    """The hub of this event loop."""
    return _hubs.setdefault(asyncio.get_running_loop(), Hub())


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI entry: the event stream of an order token, and whether the process answers; nothing else is here."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
        return
    if scope["type"] != "http":
        return
    if scope["path"] == "/healthz":
        await _answer(send, 200, {"status": "ok"}, "application/json")
        return
    found = PATH.fullmatch(scope["path"])
    if scope["method"] != "GET" or found is None:
        await _refuse(send, 405 if found else 404, "METHOD_NOT_ALLOWED" if found else "NOT_FOUND")
        return
    if hub().closing or hub().count >= MOST_STREAMS:
        await _refuse(send, 503, "SERVICE_AWAY")
        return
    await _serve(found.group(1), receive, send)


async def _serve(token: str, receive: Receive, send: Send) -> None:
    order_id = await _in_database(_order_of, token)
    if order_id is None:
        await _refuse(send, 404, "NOT_FOUND")
        return
    await hub().ready()
    async with hub().watch(order_id) as queue:
        frame = await _in_database(status_board.read_status, token)
        if frame is None:
            await _refuse(send, 404, "NOT_FOUND")
            return
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        gone = asyncio.create_task(_until_gone(receive))
        try:
            await _stream(token, frame, queue, gone, send)
        finally:
            gone.cancel()


HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


async def _stream(
    token: str, frame: dict[str, Any], queue: "asyncio.Queue[str]", gone: "asyncio.Task[None]", send: Send
) -> None:
    """Send the first frame, then whatever is newer, until the end."""
    version = await _say(send, frame, head=f"retry: {RETRY_MS}\n")
    while not frame["terminal"]:
        told = asyncio.create_task(queue.get())
        done, _pending = await asyncio.wait({told, gone}, timeout=HEARTBEAT_SECONDS, return_when="FIRST_COMPLETED")
        if gone in done:
            told.cancel()
            return
        text = told.result() if told in done else ""
        if not told.done():
            told.cancel()
            await _body(send, ": alive\n\n")
        if text == END:
            break
        seen = await _next_frame(token, text)
        if seen is None:
            await _body(send, "event: revoked\ndata: {}\n\n")
            break
        if seen["version"] > version:
            frame, version = seen, await _say(send, seen)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _next_frame(token: str, text: str) -> dict[str, Any] | None:
    """The frame that was told. At a heartbeat, after a gap and at a revocation the database is asked: a message may
    have been lost, and a token may have gone. None: the token is no longer good."""
    if text in ("", LOOK_AGAIN, status_board.REVOKED):
        return await _in_database(status_board.read_status, token)
    told: dict[str, Any] = json.loads(text)
    return told


async def _say(send: Send, frame: dict[str, Any], *, head: str = "") -> int:
    text = json.dumps(frame, ensure_ascii=False, separators=(",", ":"))
    await _body(send, f"{head}id: {frame['version']}\nevent: status\ndata: {text}\n\n")
    return int(frame["version"])


async def _body(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _refuse(send: Send, status: int, code: str) -> None:
    body = {"type": f"urn:quits:problem:{code.lower()}", "status": status, "code": code}
    await _answer(send, status, body, "application/problem+json")


async def _answer(send: Send, status: int, body: dict[str, Any], media_type: str) -> None:
    headers = [(b"content-type", media_type.encode()), (b"cache-control", b"no-store")]
    if status == 503:
        headers.append((b"retry-after", b"3"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode(), "more_body": False})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await hub().close()
            await send({"type": "lifespan.shutdown.complete"})
            return


def _order_of(token: str) -> UUID | None:
    found = status_board.find_by_token(token)
    return found[0] if found else None


async def _in_database(read: Callable[[str], Any], token: str) -> Any:
    """Run one read on one of the few database threads; each keeps one connection and gives a broken one back."""

    def run() -> Any:
        close_old_connections()
        try:
            return read(token)
        finally:
            if connection.in_atomic_block is False and connection.settings_dict["CONN_MAX_AGE"] == 0:
                connection.close()

    return await asyncio.get_running_loop().run_in_executor(_database, run)
