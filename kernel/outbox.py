"""The outbox: a fact leaves with the transaction that made it true, and a relay carries it on.

`append` (and an edge's `Emit`) write the row. The relay claims pending rows with a token (SKIP LOCKED, so any number
of relays work side by side), publishes them in batches to a Valkey stream and marks what its own token still
holds: delivery is at least once, and consumers take effect once (kernel/inbox.py). Cost of a run: one index scan of
the pending rows, O(batch). There is no cursor over ids: a row that commits late would be skipped by one.
"""

import json
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.db import connection, transaction

from kernel import numbers, valkey
from kernel.models import OutboxEvent

STREAM = "quits:events"
STREAM_LIMIT = 200_000
CLAIM_SECONDS = 30
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
    """Publish up to `limit` pending events. Raises nothing when the stream is away: the rows wait, with back-off."""
    token = numbers.uuid7()
    rows = _claim(token=token, now=now, limit=limit)
    if not rows:
        return Relayed(0)
    try:
        pipeline = valkey.client().pipeline(transaction=False)
        for row in rows:
            pipeline.xadd(STREAM, {"id": str(row[0]), "name": row[1]}, maxlen=STREAM_LIMIT, approximate=True)
        pipeline.execute()
    except valkey.Away as error:
        log.warning("outbox.stream_away", error=str(error), waiting=len(rows))
        _put_back(token=token, now=now, error=str(error))
        return Relayed(0)
    _mark_published(token=token, now=now)
    return Relayed(len(rows))


def _claim(*, token: UUID, now: datetime, limit: int) -> list[tuple[UUID, str]]:
    """Only a back-off is waited for: an event whose writer's clock was fast leaves at once all the same."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE outbox_event SET claim_token = %s, claimed_until = %s, attempts = attempts + 1,
                available_at = least(available_at, %s)
            WHERE id IN (
                SELECT id FROM outbox_event
                WHERE state = 'PENDING' AND (available_at <= %s OR attempts = 0)
                  AND (claimed_until IS NULL OR claimed_until < %s)
                ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)
            RETURNING id, name
            """,
            [token, now + timedelta(seconds=CLAIM_SECONDS), now, now, now, limit],
        )
        return sorted(cursor.fetchall())


def _mark_published(*, token: UUID, now: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE outbox_event SET state = 'PUBLISHED', published_at = %s, claim_token = NULL, claimed_until = NULL"
            " WHERE claim_token = %s AND state = 'PENDING'",
            [now, token],
        )


def _put_back(*, token: UUID, now: datetime, error: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE outbox_event SET claim_token = NULL, claimed_until = NULL, last_error = %s,"
            " available_at = %s + (%s::int[])[least(attempts, %s)] * interval '1 second'"
            " WHERE claim_token = %s AND state = 'PENDING'",
            [error[:500], now, list(BACKOFF_SECONDS), len(BACKOFF_SECONDS), token],
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
