"""The inbox: every consumer takes every event exactly once.

`atomic` consumers run in one transaction with their inbox row, inserted first: when the effect is rolled back so is
the row. Others (they talk to a channel) hold a claim instead and may only call commands that are idempotent
themselves. A failure is a row with a time to try again; after the last try it is DEAD and waits for a person.

Page consumers take many events of one name in one transaction, with their inbox rows in one statement; a page that
fails is taken again event by event, so one bad event stops no other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.db import connection, transaction

from kernel.models import InboxMessage, OutboxEvent

BACKOFF_SECONDS = (1, 2, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600)
CLAIM_SECONDS = 120

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Event:
    """An event as a consumer sees it; `now` is when it is being consumed, `created_at` when it became true."""

    id: UUID
    name: str
    version: int
    merchant_id: UUID
    subject: str
    payload: dict[str, Any]
    created_at: datetime
    now: datetime


@dataclass(frozen=True)
class Page:
    """Events of one name that a paged consumer takes together: all of them, or (when it raises) none. `packed` are
    their ids, 16 bytes each, as they came: a consumer that is one statement hands them on and makes no object of them.
    """

    name: str
    packed: bytes
    now: datetime

    @property
    def ids(self) -> list[UUID]:
        """The ids of the events."""
        return [UUID(bytes=self.packed[at : at + 16]) for at in range(0, len(self.packed), 16)]

    def events(self) -> list[Event]:
        """The events themselves, in order of their ids."""
        return [_event(row, now=self.now) for row in OutboxEvent.objects.filter(id__in=self.ids).order_by("id")]


Handler = Callable[[Event], None]
PageHandler = Callable[[Page], None]


@dataclass(frozen=True)
class Consumer:
    """A registered consumer of one event name."""

    name: str
    event_name: str
    handler: Handler
    atomic: bool
    page_handler: PageHandler | None = None


class Later(Exception):
    """Raised by a consumer that cannot decide yet: tried again with back-off, and it is no defect."""


_CONSUMERS: dict[str, dict[str, Consumer]] = {}


def consumer(event_name: str, *, name: str, atomic: bool = True) -> Callable[[Handler], Handler]:
    """Register a consumer. `name` is `app.verb_noun`, unique per event and never renamed: it is the inbox key."""

    def register(handler: Handler) -> Handler:
        _add(Consumer(name, event_name, handler, atomic))
        return handler

    return register


def page_consumer(event_name: str, *, name: str) -> Callable[[PageHandler], PageHandler]:
    """Register a consumer that takes many events in one transaction: for effects that one statement has on many rows.
    It must not wait for another consumer of the same events, for pages go first."""

    def register(handler: PageHandler) -> PageHandler:
        def one(event: Event) -> None:
            handler(Page(event.name, event.id.bytes, event.now))

        _add(Consumer(name, event_name, one, atomic=True, page_handler=handler))
        return handler

    return register


def _add(consumer: Consumer) -> None:
    known = _CONSUMERS.setdefault(consumer.event_name, {})
    if consumer.name in known:
        raise ValueError(f"{consumer.event_name} already has a consumer {consumer.name}")
    known[consumer.name] = consumer


def consumers_of(event_name: str) -> list[Consumer]:
    """The consumers registered for an event name, in order of registration (lower floors first)."""
    return list(_CONSUMERS.get(event_name, {}).values())


def all_consumers() -> list[Consumer]:
    """Every registered consumer."""
    return [each for known in _CONSUMERS.values() for each in known.values()]


def deliver(event_id: UUID, *, now: datetime) -> bool:
    """Hand one event to each of its consumers; one that fails stops no other. False: the event is not (yet) there."""
    row = OutboxEvent.objects.filter(id=event_id).first()
    if row is None:
        return False
    for each in consumers_of(row.name):
        take(row, each, now=now)
    return True


def deliver_page(name: str, packed: bytes, *, now: datetime) -> None:
    """Hand events of one name (ids of 16 bytes each) to each of its consumers: to paged ones at once, to the others one
    by one in order."""
    page = Page(name, packed, now)
    singly = [each for each in consumers_of(name) if each.page_handler is None or not _take_page(page, each)]
    if not singly:
        return
    for row in OutboxEvent.objects.filter(id__in=page.ids).order_by("id"):
        for each in singly:
            take(row, each, now=now)


def _take_page(page: Page, each: Consumer) -> bool:
    """Let a paged consumer take what it has not taken yet. False: it raised, and nothing of the page has happened."""
    assert each.page_handler is not None
    try:
        with transaction.atomic():
            fresh = _claim_page(page, each)
            if fresh:
                each.page_handler(Page(page.name, fresh, page.now))
    except Exception as error:  # its events are taken one by one, and the bad one's failure is recorded there
        log.warning(
            "inbox.page_failed", consumer=each.name, about=page.name, events=len(page.packed) // 16, error=repr(error)
        )
        return False
    return True


def _claim_page(page: Page, each: Consumer) -> bytes:
    """Insert the inbox rows of a page; the ids that are new. A row that is there is done, or the retry's business."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH fresh AS (
                INSERT INTO inbox_message
                    (consumer, event_id, event_name, state, attempts, available_at, last_error, created_at, done_at)
                SELECT %(consumer)s, encode(substring(%(packed)s::bytea FROM 1 + 16 * k FOR 16), 'hex')::uuid, %(name)s,
                       'DONE', 1, %(now)s, '', %(now)s, %(now)s
                FROM generate_series(0, %(count)s - 1) k ORDER BY 2
                ON CONFLICT (event_id, consumer) DO NOTHING
                RETURNING event_id
            )
            SELECT string_agg(uuid_send(event_id), ''::bytea) FROM fresh
            """,
            {
                "consumer": each.name,
                "name": page.name,
                "now": page.now,
                "packed": page.packed,
                "count": len(page.packed) // 16,
            },
        )
        return bytes(cursor.fetchone()[0] or b"")


def _event(row: OutboxEvent, *, now: datetime) -> Event:
    return Event(
        id=row.id,
        name=row.name,
        version=row.version,
        merchant_id=row.merchant_id,  # type: ignore[arg-type]
        subject=row.subject,
        payload=row.payload,
        created_at=row.created_at,
        now=now,
    )


def take(row: OutboxEvent, each: Consumer, *, now: datetime) -> bool:
    """Let one consumer take one event. True when its effect is in place after this call."""
    event = _event(row, now=now)
    try:
        if each.atomic:
            with transaction.atomic():
                if _claim(row, each, state=InboxMessage.State.DONE, now=now):
                    each.handler(event)
        elif _claim(row, each, state=InboxMessage.State.RUNNING, now=now):
            each.handler(event)
            _settle(row, each, now=now)
    except Exception as error:  # whatever a consumer raises is recorded and tried again; it never stops the others
        later = isinstance(error, Later)
        log.log(20 if later else 40, "inbox.failed", consumer=each.name, about=row.name, error=repr(error))
        _record_failure(row, each, error=error, now=now)
        return False
    return True


def _claim(row: OutboxEvent, each: Consumer, *, state: str, now: datetime) -> bool:
    """Insert or re-open the inbox row. False: done, dead, or another worker is at it."""
    done = state == InboxMessage.State.DONE
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO inbox_message AS m
                (consumer, event_id, event_name, state, attempts, available_at, last_error, created_at, done_at)
            VALUES (%(consumer)s, %(event)s, %(name)s, %(state)s, 1, %(until)s, '', %(now)s, %(done_at)s)
            ON CONFLICT (event_id, consumer) DO UPDATE
                SET state = excluded.state, attempts = m.attempts + 1, available_at = excluded.available_at,
                    done_at = excluded.done_at
                WHERE m.state = 'FAILED' OR (m.state = 'RUNNING' AND m.available_at <= %(now)s)
            RETURNING 1
            """,
            {
                "consumer": each.name,
                "event": row.id,
                "name": row.name,
                "state": state,
                "now": now,
                "until": now if done else now + timedelta(seconds=CLAIM_SECONDS),
                "done_at": now if done else None,
            },
        )
        return cursor.fetchone() is not None


def _settle(row: OutboxEvent, each: Consumer, *, now: datetime) -> None:
    InboxMessage.objects.filter(event_id=row.id, consumer=each.name, state=InboxMessage.State.RUNNING).update(
        state=InboxMessage.State.DONE, done_at=now, last_error=""
    )


def _record_failure(row: OutboxEvent, each: Consumer, *, error: Exception, now: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO inbox_message AS m
                (consumer, event_id, event_name, state, attempts, available_at, last_error, created_at)
            VALUES (%(consumer)s, %(event)s, %(name)s, 'FAILED', 1,
                    %(now)s + (%(backoff)s::int[])[1] * interval '1 second', %(error)s, %(now)s)
            ON CONFLICT (event_id, consumer) DO UPDATE
                SET attempts = m.attempts + CASE WHEN m.state = 'RUNNING' THEN 0 ELSE 1 END,
                    state = CASE WHEN m.attempts >= %(tries)s THEN 'DEAD' ELSE 'FAILED' END,
                    available_at = %(now)s
                        + (%(backoff)s::int[])[greatest(1, least(m.attempts, %(tries)s))] * interval '1 second',
                    last_error = excluded.last_error
                WHERE m.state NOT IN ('DONE', 'DEAD')
            """,
            {
                "consumer": each.name,
                "event": row.id,
                "name": row.name,
                "now": now,
                "error": repr(error)[:2000],
                "backoff": list(BACKOFF_SECONDS),
                "tries": len(BACKOFF_SECONDS),
            },
        )


def retry_due(*, now: datetime, limit: int = 200) -> int:
    """Try again what is due, FAILED or left RUNNING by a worker that died. Returns how many were tried."""
    due = InboxMessage.objects.filter(
        state__in=[InboxMessage.State.FAILED, InboxMessage.State.RUNNING], available_at__lte=now
    ).order_by("available_at")[:limit]
    tried = 0
    for message in list(due):
        row = OutboxEvent.objects.filter(id=message.event_id).first()
        each = _CONSUMERS.get(message.event_name, {}).get(message.consumer)
        if row is not None and each is not None:
            take(row, each, now=now)
            tried += 1
    return tried


def redeliver_lost(*, now: datetime, older_than: timedelta, limit: int = 500) -> int:
    """Deliver events that were published but that some consumer never saw (the stream lost them).

    One anti-join per call over the events published in the window (older than `older_than`, younger than a day).
    """
    pairs = [(each.event_name, each.name) for each in all_consumers()]
    if not pairs:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT DISTINCT o.id FROM outbox_event o
            JOIN unnest(%s::text[], %s::text[]) AS c(event_name, consumer) ON c.event_name = o.name
            WHERE o.state = 'PUBLISHED' AND o.published_at BETWEEN %s AND %s
              AND NOT EXISTS (SELECT 1 FROM inbox_message m WHERE m.event_id = o.id AND m.consumer = c.consumer)
            ORDER BY o.id LIMIT %s
            """,
            [[p[0] for p in pairs], [p[1] for p in pairs], now - timedelta(days=1), now - older_than, limit],
        )
        lost = [row[0] for row in cursor.fetchall()]
    for event_id in lost:
        deliver(event_id, now=now)
    return len(lost)


def revive(message_id: int, *, now: datetime) -> bool:
    """Give a DEAD message its tries back (a person decided so in the admin). False: it is not dead."""
    return bool(
        InboxMessage.objects.filter(id=message_id, state=InboxMessage.State.DEAD).update(
            state=InboxMessage.State.FAILED, attempts=0, available_at=now
        )
    )
