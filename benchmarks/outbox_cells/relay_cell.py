"""How many events a second leave the outbox, pass the stream and are taken, once each, by a paged consumer."""

import time
from typing import Any

from django.db import connection, connections

from benchmarks.harness import FORK
from kernel import clock, inbox, outbox, stream, valkey

NAME = "bench.happened"


@inbox.page_consumer(NAME, name="bench.see")
def see(page: inbox.Page) -> None:
    """Nothing: what is measured is everything around the effect, its inbox rows included."""


def fill(events: int) -> None:
    """So many pending events, as a day's orders leave them, in the database that Django is connected to."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO outbox_event (id, name, version, merchant_id, subject, payload, created_at, state, attempts,
                available_at, last_error)
            SELECT (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - %(events)s + k), 12, '0')
                    || '7000800' || lpad(to_hex(k), 13, '0'))::uuid,
                   %(name)s, 1, gen_random_uuid(), 'Q' || lpad(k::text, 14, '0'),
                   jsonb_build_object('order_id', gen_random_uuid(), 'order_no', 'Q' || k, 'amount_fen', 26000),
                   now(), 'PENDING', 0, now(), ''
            FROM generate_series(1, %(events)s) k
            """,
            {"events": events, "name": NAME},
        )


def rate(events: int, processes: int, *, consume: bool) -> float:
    """Events a second. Each process relays and, if it consumes, empties the stream in turn, as our workers do."""
    valkey.client().delete(outbox.STREAM)
    connections.close_all()
    barrier, moved = FORK.Barrier(processes + 1), FORK.Value("q", 0)
    ended: Any = FORK.Queue()

    def work() -> None:
        try:
            connection.ensure_connection()
            stream.consume(now=clock.now())
            barrier.wait(60)
            until = time.monotonic() + 120
            while moved.value < events and time.monotonic() < until:
                count = outbox.relay(now=clock.now()).published
                if consume:
                    count = 0
                    while taken := stream.consume(now=clock.now()):
                        count += taken
                if not count:
                    time.sleep(0.001)
                with moved.get_lock():
                    moved.value += count
        finally:
            ended.put(time.perf_counter())
            connections.close_all()

    workers = [FORK.Process(target=work) for _ in range(processes)]
    for worker in workers:
        worker.start()
    barrier.wait(60)
    began = time.perf_counter()
    last = max(ended.get(timeout=180) for _ in workers)
    for worker in workers:
        worker.join(10)
    check(events, consumed=consume)
    return events / (last - began)


def check(events: int, *, consumed: bool) -> None:
    """Every event left, and each was taken exactly once."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FILTER (WHERE state = 'PUBLISHED'), count(*) FROM outbox_event")
        published, there = cursor.fetchone()
        cursor.execute("SELECT count(DISTINCT event_id), count(*) FROM inbox_message WHERE state = 'DONE'")
        taken = cursor.fetchone()
    if not published == there == events or taken != ((events, events) if consumed else (0, 0)):
        raise RuntimeError(f"{published} of {there} published, {taken} taken, {events} expected")
