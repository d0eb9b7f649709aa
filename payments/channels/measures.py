"""How long the channels take and how their calls end, for Prometheus.

Calls are made in workers, the scrape is answered by a web process: the figures are summed in Valkey, so every process
says the same. They are a convenience; without Valkey they are lost and nothing else is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client.core import REGISTRY, HistogramMetricFamily
from prometheus_client.registry import Collector

from kernel import valkey
from payments.gateway import ChannelRefused, ChannelUnknown

KEY = "quits:channel_calls"
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds."""
SILENT_SECONDS = 10.0
"""After Valkey was away, so long nothing is counted: no call to a channel waits for a counter twice."""

_silent_until = 0.0


@contextmanager
def measured(channel: str, operation: str) -> Iterator[None]:
    """Count one call to a channel: `outcome` is ok, refused, or the doubt it left."""
    began, outcome = time.monotonic(), "ok"
    try:
        yield
    except ChannelRefused:
        outcome = "refused"
        raise
    except ChannelUnknown as unknown:
        outcome = unknown.reason.value
        raise
    except BaseException:
        outcome = "defect"
        raise
    finally:
        _count(f"{channel}|{operation}|{outcome}", time.monotonic() - began)


def _count(name: str, seconds: float) -> None:
    global _silent_until
    if time.monotonic() < _silent_until:
        return
    bucket = next((str(bound) for bound in BUCKETS if seconds <= bound), "+Inf")
    try:
        pipeline = valkey.client().pipeline(transaction=False)
        pipeline.hincrby(KEY, f"{name}|{bucket}", 1)
        pipeline.hincrbyfloat(KEY, f"{name}|sum", round(seconds, 6))
        pipeline.execute()
    except valkey.Away:
        _silent_until = time.monotonic() + SILENT_SECONDS


class ChannelCalls(Collector):
    """`quits_channel_call_seconds{channel, operation, outcome}`."""

    def describe(self) -> list[HistogramMetricFamily]:
        """Nothing: registering must not touch Valkey."""
        return []

    def collect(self) -> Iterator[HistogramMetricFamily]:
        try:
            stored = valkey.client().hgetall(KEY)
        except valkey.Away:
            return
        found: dict[str, dict[str, float]] = {}
        for field, value in stored.items():
            name, _, bucket = (field if isinstance(field, str) else field.decode()).rpartition("|")
            found.setdefault(name, {})[bucket] = float(value)
        family = HistogramMetricFamily(
            "quits_channel_call_seconds",
            "Calls to the payment channels by operation and outcome.",
            labels=["channel", "operation", "outcome"],
        )
        for name, counts in sorted(found.items()):
            total, buckets = 0.0, []
            for bound in (*map(str, BUCKETS), "+Inf"):
                total += counts.get(bound, 0.0)
                buckets.append((bound, total))
            family.add_metric(name.split("|"), buckets, counts.get("sum", 0.0))
        yield family


def register() -> None:
    """Once per process."""
    if not any(isinstance(each, ChannelCalls) for each in list(REGISTRY._collector_to_names)):
        REGISTRY.register(ChannelCalls())
