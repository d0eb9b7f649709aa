"""The outbox: a fact leaves with the transaction that made it true, and a relay carries it on.

`append` (and an edge's `Emit`) write the row. The relay takes pending rows and marks them in one statement (SKIP
LOCKED, so any number of relays work side by side and none takes what another has), then publishes them to a Valkey
stream in pages of one event name. Delivery is at least once: what a relay took before it died, or the stream lost, is
found by the sweep `inbox.redeliver_lost`, and consumers take effect once (kernel/inbox.py). Cost of a run: one index
scan of the pending rows and one update of each, O(batch). There is no cursor over ids: a row that commits late would
be skipped by one.
"""

import json
import mmap
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from django.db import connection, transaction

from kernel import valkey
from kernel.models import OutboxEvent

STREAM = "quits:events"
STREAM_LIMIT = 50_000
"""Pages the stream holds at most; what falls out is found by `inbox.redeliver_lost`."""
PAGE = 25
"""Events of one entry of the stream: few enough that several workers share a burst, many enough that the stream costs
next to nothing."""
BACKOFF_SECONDS = (1, 2, 5, 10, 30, 60)
WAKE_EVERY_SECONDS = 0.05

log = structlog.get_logger(__name__)
_LAST_WAKE = memoryview(mmap.mmap(-1, 8)).cast("d")
"""When the last wake-up left (monotonic seconds), in memory that the processes forked from this one share: one of them
wakes the relay for all."""


@dataclass(frozen=True)
class Relayed:
    """How many events one run published."""

    published: int


def append(
    *,
    name: str,
    merchant_id: UUID | None,
    subject: str,
    payload: dict[str, Any],
    now: datetime,
    version: int = 1,
) -> OutboxEvent:
    """Write an event in the caller's transaction. `payload` holds ids and plain figures, never personal data."""
    event = OutboxEvent.objects.create(
        name=name,
        version=version,
        merchant_id=merchant_id,
        subject=subject,
        payload=payload,
        created_at=now,
        available_at=now,
    )
    wake_after_commit()
    return event


def wake_after_commit() -> None:
    """Ask for a relay run once the current transaction is durable; once per transaction."""
    if not connection.in_atomic_block:
        wake()
    elif all(entry[1] is not wake for entry in connection.run_on_commit):
        transaction.on_commit(wake)


def wake() -> None:
    """Ask a worker to relay now, at most every 50 ms; the relay stays 80 ms for what was folded into this.

    Losing a wake-up costs a second: beat runs too.
    """
    moment = time.monotonic()
    if moment - _LAST_WAKE[0] < WAKE_EVERY_SECONDS:
        return
    _LAST_WAKE[0] = moment
    from kernel.tasks import relay_outbox, send_quietly

    send_quietly(relay_outbox)


def relay(*, now: datetime, limit: int = 500) -> Relayed:
    """Publish up to `limit` pending events. Raises nothing when the stream is away: the rows wait, with back-off.

    The taking commits before the stream is spoken to, so no lock is held over it. A relay that dies in between has
    published nothing: `inbox.redeliver_lost` finds these events like any that the stream lost.
    """
    pages = _take(now=now, limit=limit)
    if not pages:
        return Relayed(0)
    try:
        pipeline = valkey.client().pipeline(transaction=False)
        for name, ids in pages:
            for start in range(0, len(ids), 16 * PAGE):
                entry: Any = {"name": name, "ids": ids[start : start + 16 * PAGE]}
                pipeline.xadd(STREAM, entry, maxlen=STREAM_LIMIT, approximate=True)
        pipeline.execute()
    except valkey.Away as error:
        log.warning("outbox.stream_away", error=str(error))
        _put_back(pages, now=now, error=str(error))
        return Relayed(0)
    return Relayed(sum(len(ids) // 16 for _name, ids in pages))


TAKE = """
WITH taken AS (
    UPDATE outbox_event SET state = 'PUBLISHED', published_at = %(now)s
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM outbox_event WHERE state = 'PENDING' AND (available_at <= %(now)s OR attempts = 0)
        ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
    RETURNING id, name
)
SELECT name, string_agg(uuid_send(id), ''::bytea ORDER BY id) FROM taken GROUP BY name ORDER BY min(id::text)
"""
"""Only a back-off is waited for: an event whose writer's clock was fast leaves at once all the same. By place (ctid),
which the lock keeps, and as an array: a join with the locked rows is planned as a scan of the whole table. Ids leave as
16 bytes each, so that no event costs an object here."""


def _take(*, now: datetime, limit: int) -> list[tuple[str, bytes]]:
    with connection.cursor() as cursor:
        cursor.execute(TAKE, {"now": now, "limit": limit})
        return [(name, bytes(ids)) for name, ids in cursor.fetchall()]


def _put_back(pages: list[tuple[str, bytes]], *, now: datetime, error: str) -> None:
    """Let what could not be published wait: the longer, the more often it was tried."""
    taken = [UUID(bytes=ids[at : at + 16]) for _name, ids in pages for at in range(0, len(ids), 16)]
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE outbox_event SET state = 'PENDING', published_at = NULL, last_error = %(error)s,"
            " attempts = attempts + 1, available_at = %(now)s"
            " + (%(waits)s::int[])[least(attempts + 1, cardinality(%(waits)s::int[]))] * interval '1 second'"
            " WHERE id = ANY(%(taken)s::uuid[]) AND state = 'PUBLISHED'",
            {"error": error[:500], "now": now, "waits": list(BACKOFF_SECONDS), "taken": taken},
        )


def pending(*, now: datetime) -> dict[str, Any]:
    """How many events wait and how long the oldest has waited, in seconds (readiness and metrics read this)."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), coalesce(extract(epoch FROM %s - min(created_at)), 0)"
            " FROM (SELECT created_at FROM outbox_event WHERE state = 'PENDING' LIMIT 10000) waiting",
            [now],
        )
        count, age = cursor.fetchone()
    return {"count": count, "oldest_seconds": max(0.0, float(age))}


def as_stored(payload: dict[str, Any]) -> str:
    """The JSON text of a payload as the column stores it."""
    return json.dumps(payload, ensure_ascii=False, default=str)
