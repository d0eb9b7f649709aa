"""Reading the event stream: each worker takes a batch, hands it to the consumers, acknowledges it."""

import os
import socket
from datetime import datetime
from typing import Any

import redis
from django.db import connection

from kernel import inbox, valkey
from kernel.outbox import STREAM

GROUP = "quits"
ABANDONED_AFTER_MS = 30_000


def reader_name() -> str:
    """This process's name in the consumer group."""
    return f"{socket.gethostname()}-{os.getpid()}"


def consume(*, now: datetime, limit: int = 20) -> int:
    """Deliver up to `limit` pages (entries) from the stream, first those another reader took and abandoned. Returns how
    many events they held. Pages of one event name are handed on together.

    A page is acknowledged once every consumer has either taken effect or has its failure on record in PostgreSQL.
    """
    client = valkey.client()
    try:
        entries = _abandoned(client, limit) or _fresh(client, limit)
    except redis.exceptions.ResponseError as error:
        if not str(error).startswith("NOGROUP"):
            raise
        _make_group(client)
        entries = _fresh(client, limit)
    pages: dict[str, bytes] = {}
    for _entry_id, fields in entries:
        if fields:  # an entry that fell out of the stream while it was claimed has none
            name = fields[b"name"].decode()
            pages[name] = pages.get(name, b"") + fields[b"ids"]
    for name, packed in pages.items():
        inbox.deliver_page(name, packed, now=now)
    if entries:
        client.xack(STREAM, GROUP, *(entry_id for entry_id, _fields in entries))
    return sum(len(packed) // 16 for packed in pages.values())


def drain(*, now: datetime, rounds: int = 50) -> int:
    """Relay, deliver and retry in this process until nothing is left (tests, the demo seed). Returns deliveries."""
    from kernel import outbox

    delivered = 0
    for _ in range(rounds):
        moved = outbox.relay(now=now).published
        delivered += moved
        took = 0
        while batch := consume(now=now):
            took += batch
        if not moved and not took:
            break
    return delivered


def _make_group(client: redis.Redis) -> None:
    try:
        client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    except redis.exceptions.ResponseError as error:
        if not str(error).startswith("BUSYGROUP"):
            raise


def _abandoned(client: redis.Redis, limit: int) -> list:
    found = client.xautoclaim(STREAM, GROUP, reader_name(), ABANDONED_AFTER_MS, count=limit)
    return found[1]


def _fresh(client: redis.Redis, limit: int) -> list:
    found: Any = client.xreadgroup(GROUP, reader_name(), {STREAM: ">"}, count=limit)
    return found[0][1] if found else []


def database_is_there() -> bool:
    """True when a trivial query succeeds."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        return cursor.fetchone() == (1,)
