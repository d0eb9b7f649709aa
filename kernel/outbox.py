"""The outbox: a fact leaves with the transaction that made it true, and a relay carries it on.

`append` (and an edge's `Emit`) write the row. The relay takes pending rows under their locks (SKIP LOCKED, so any
number of relays work side by side), publishes them to a Valkey stream in pages of one event name, and marks them with
the statement that took them; its commit lets go of them. Delivery is at least once: a relay that dies before its
commit has perhaps published what the next one publishes again, and consumers take effect once (kernel/inbox.py). Cost
of a run: one index scan of the pending rows and one update of each, O(batch). There is no cursor over ids: a row that
commits late would be skipped by one.
"""

import json
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
_last_wake = 0.0


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
    if all(entry[1] is not wake for entry in connection.run_on_commit):
        transaction.on_commit(wake)


def wake() -> None:
    """Ask a worker to relay now, at most every 50 ms per process. Losing a wake-up costs a second: beat runs too."""
    global _last_wake
    moment = time.monotonic()
    if moment - _last_wake < WAKE_EVERY_SECONDS:
        return
    _last_wake = moment
    from kernel.tasks import relay_outbox, send_quietly

    send_quietly(relay_outbox)


def relay(*, now: datetime, limit: int = 500) -> Relayed:
    """Publish up to `limit` pending events. Raises nothing when the stream is away: the rows wait, with back-off.

    The stream is written to while the rows are locked (they are nobody else's business), for a moment, with time-outs
    of seconds: so no claim has to be written, none expires, and no slow relay can mark what another has taken over.
    """
    try:
        with transaction.atomic():
            pages = _take(now=now, limit=limit)
            if not pages:
                return Relayed(0)
            pipeline = valkey.client().pipeline(transaction=False)
            for name, ids in pages:
                for start in range(0, len(ids), 16 * PAGE):
                    entry: Any = {"name": name, "ids": ids[start : start + 16 * PAGE]}
                    pipeline.xadd(STREAM, entry, maxlen=STREAM_LIMIT, approximate=True)
            pipeline.execute()
    except valkey.Away as error:
        log.warning("outbox.stream_away", error=str(error))
        _put_back(now=now, limit=limit, error=str(error))
        return Relayed(0)
    return Relayed(sum(len(ids) // 16 for _name, ids in pages))


TAKE = """
WITH due AS MATERIALIZED (
    SELECT ctid FROM outbox_event WHERE state = 'PENDING' AND available_at <= %(now)s
    ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE outbox_event o SET state = 'PUBLISHED', published_at = %(now)s FROM due WHERE o.ctid = due.ctid
    RETURNING o.id, o.name
)
SELECT name, string_agg(uuid_send(id), ''::bytea ORDER BY id) FROM taken GROUP BY name ORDER BY min(id::text)
"""
"""By place (ctid), which the lock keeps; ids leave as 16 bytes each, so that no event costs an object here."""


def _take(*, now: datetime, limit: int) -> list[tuple[str, bytes]]:
    with connection.cursor() as cursor:
        cursor.execute(TAKE, {"now": now, "limit": limit})
        return [(name, bytes(ids)) for name, ids in cursor.fetchall()]


def _put_back(*, now: datetime, limit: int, error: str) -> None:
    """Let what could not be published wait: the longer, the more often it was tried."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE outbox_event SET last_error = %(error)s, attempts = attempts + 1, available_at = %(now)s"
            " + (%(waits)s::int[])[least(attempts + 1, cardinality(%(waits)s::int[]))] * interval '1 second'"
            " WHERE id IN (SELECT id FROM outbox_event WHERE state = 'PENDING' AND available_at <= %(now)s"
            " ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)",
            {"error": error[:500], "now": now, "waits": list(BACKOFF_SECONDS), "limit": limit},
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
