"""What waits, as Prometheus sees it. Read from the database and the broker at each scrape, so every process says the
same; what cannot be read is left out, which the alarm NotReady notices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from django.db import DatabaseError, connection
from prometheus_client.core import REGISTRY, GaugeMetricFamily
from prometheus_client.registry import Collector

from kernel import clock, outbox, valkey

QUEUES = ("critical", "default", "bulk")

# name: (what it says, label, SELECT of label and value or of the value alone). Each is one look at a partial index.
GAUGES: dict[str, tuple[str, str, str]] = {
    "quits_inbox_messages": (
        "Messages whose consumer failed (tried again), and those given up.",
        "state",
        "SELECT s, (SELECT count(*) FROM inbox_message WHERE state = s) FROM unnest(ARRAY['FAILED', 'DEAD']) s",
    ),
    "quits_lease_overdue_seconds": (
        "Age of the coupon lease that is over for the longest time and was not released.",
        "",
        "SELECT coalesce(extract(epoch FROM %(now)s - min(lease_expires_at)), 0) FROM user_coupon"
        " WHERE status = 'LOCKED' AND lease_expires_at < %(now)s",
    ),
    "quits_refunds_in_flight": (
        "Refund numbers that the channel has not decided.",
        "",
        "SELECT count(*) FROM refund_attempt WHERE status IN ('CREATED', 'SENT', 'PROCESSING')",
    ),
    "quits_refund_oldest_seconds": (
        "Age of the oldest of them.",
        "",
        "SELECT coalesce(extract(epoch FROM %(now)s - min(created_at)), 0) FROM refund_attempt"
        " WHERE status IN ('CREATED', 'SENT', 'PROCESSING')",
    ),
    "quits_anomalies": (
        "Anomalies that wait for a person.",
        "",
        "SELECT count(*) FROM anomaly WHERE state <> 'RESOLVED'",
    ),
}


class WaitingCollector(Collector):
    """Outbox, inbox, queues, leases, refunds, anomalies."""

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing: registering must not touch the database."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        with suppress(DatabaseError):
            yield from _from_database()
        with suppress(*valkey.Away):
            yield _from_broker()


def _from_database() -> Iterator[GaugeMetricFamily]:
    now = clock.now()
    waiting = outbox.pending(now=now)
    yield GaugeMetricFamily("quits_outbox_pending", "Events not published.", value=waiting["count"])
    yield GaugeMetricFamily("quits_outbox_oldest_seconds", "Age of the oldest.", value=waiting["oldest_seconds"])
    for name, (said, label, query) in GAUGES.items():
        with connection.cursor() as cursor:
            cursor.execute(query, {"now": now})
            rows: list[Any] = cursor.fetchall()
        gauge = GaugeMetricFamily(name, said, labels=[label] if label else None)
        for row in rows:
            gauge.add_metric([row[0]] if label else [], float(row[-1]))
        yield gauge


def _from_broker() -> GaugeMetricFamily:
    """Tasks that wait for a worker. Those in a worker's hands are not among them."""
    gauge = GaugeMetricFamily("quits_queue_length", "Tasks waiting for a worker.", labels=["queue"])
    for queue in QUEUES:
        gauge.add_metric([queue], float(valkey.client().llen(queue)))
    return gauge


def register() -> None:
    """Once per process."""
    if not any(isinstance(each, WaitingCollector) for each in list(REGISTRY._collector_to_names)):
        REGISTRY.register(WaitingCollector())
