"""Findings as Prometheus sees them. Read from the database at each scrape, so every process says the same."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import DatabaseError
from prometheus_client.core import REGISTRY, GaugeMetricFamily
from prometheus_client.registry import Collector

from reconciliation.queries import get_last_run, get_unfinished_counts


class FindingsCollector(Collector):
    """`quits_findings{severity}`, and of the last daily run: its day, match rate, items and whether it is done."""

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing: registering must not touch the database."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        try:
            counts, run = get_unfinished_counts(), get_last_run()
        except DatabaseError:
            return
        findings = GaugeMetricFamily("quits_findings", "Findings that are not finished.", labels=["severity"])
        for severity, count in counts.items():
            findings.add_metric([severity], count)
        yield findings
        if run is not None:
            midnight = run.started_at.timestamp()
            yield GaugeMetricFamily("quits_reconciliation_started_seconds", "When the last run began.", value=midnight)
            yield GaugeMetricFamily(
                "quits_reconciliation_done", "1 when the last run is done, 0 while it waits or failed.",
                value=int(run.state == "DONE"),
            )  # fmt: skip
            yield GaugeMetricFamily("quits_reconciliation_items", "Pairs compared by the last run.", value=run.items)
            if run.match_rate is not None:
                yield GaugeMetricFamily(
                    "quits_reconciliation_match_rate", "Percent of the pairs that agreed.", value=run.match_rate
                )


def register() -> None:
    """Once per process."""
    if not any(isinstance(each, FindingsCollector) for each in list(REGISTRY._collector_to_names)):
        REGISTRY.register(FindingsCollector())
