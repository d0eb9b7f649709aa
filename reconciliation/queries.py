"""Reads for the pages of reconciliation: the run, the last thirty days, the export."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from django.db.models import Count, QuerySet

from reconciliation.models import Finding, ReconciliationRun, TimingItem

SECTIONS = ("refunds", "payments", "flows")


def get_unfinished_counts() -> dict[str, int]:
    """Findings that are neither resolved nor accepted, by severity; zero is said, not left out."""
    found = (
        Finding.objects.filter(state__in=Finding.UNFINISHED)
        .order_by()
        .values_list("severity")
        .annotate(number=Count("id"))
    )
    return {**dict.fromkeys(("P0", "P1", "P2", "P3"), 0), **dict(found)}


def get_unfinished(*, severities: Sequence[str], limit: int) -> list[Finding]:
    """The gravest unfinished findings of these severities, oldest first."""
    found = Finding.objects.filter(state__in=Finding.UNFINISHED, severity__in=severities)
    return list(found.order_by("severity", "first_seen_at", "id")[:limit])


def get_last_run() -> ReconciliationRun | None:
    """The newest daily run over all merchants."""
    return ReconciliationRun.objects.filter(kind="daily", merchant=None).order_by("-on_date").first()


def get_waiting_days(*, since: date) -> list[date]:
    """Days whose run waits for a bill, oldest first."""
    waiting = ReconciliationRun.objects.filter(kind="daily", merchant=None, state="WAITING", on_date__gte=since)
    return list(waiting.order_by("on_date").values_list("on_date", flat=True))


def get_last_days(*, until: date, days: int = 30) -> list[dict[str, Any]]:
    """One entry per day, oldest first: match rate in percent (None: no run or nothing to compare), items, findings."""
    runs = {
        run.on_date: run
        for run in ReconciliationRun.objects.filter(
            kind="daily", merchant=None, on_date__gt=until - timedelta(days=days), on_date__lte=until
        )
    }
    entries = []
    for back in range(days - 1, -1, -1):
        day = until - timedelta(days=back)
        run = runs.get(day)
        entries.append(
            {
                "day": day,
                "run": run,
                "rate": run.match_rate if run else None,
                "items": run.items if run else 0,
                "findings": run.findings_seen if run else 0,
            }
        )
    return entries


def get_totals(run: ReconciliationRun, *, merchant_code: str | None = None) -> dict[str, list[dict[str, Any]]]:
    """The run's side-by-side totals by section; only one merchant's rows when a code is given."""
    return {
        section: [
            row for row in run.totals.get(section, []) if merchant_code is None or row["merchant"] == merchant_code
        ]
        for section in SECTIONS
    }


def get_findings_of(run: ReconciliationRun) -> QuerySet[Finding]:
    """What the run saw, the gravest first."""
    return (
        Finding.objects.filter(sightings__run=run)
        .select_related("merchant", "owner")
        .order_by("severity", "-amount_fen", "rule", "key")
    )


def get_export_rows(run: ReconciliationRun, *, merchant_code: str | None = None) -> Iterator[list[Any]]:
    """The run as tables for finance: totals, findings, timing items. Amounts in fen and in yuan."""
    yield ["section", "merchant", "channel", "kind", "side", "count", "amount_fen", "amount_yuan"]
    for section, rows in get_totals(run, merchant_code=merchant_code).items():
        for row in rows:
            for side in ("claims", "orders", "ours", "theirs", "booked"):
                fen = row.get(f"{side}_fen")
                if fen is not None:
                    about = [section, row["merchant"], row["channel"], row.get("kind", ""), side, row[f"{side}_count"]]
                    yield [*about, fen, _yuan(fen)]
    yield []
    yield ["severity", "rule", "key", "merchant", "amount_fen", "amount_yuan", "state", "first_seen_at"]
    findings = get_findings_of(run)
    if merchant_code is not None:
        findings = findings.filter(merchant__code=merchant_code)
    for finding in findings.iterator():
        yield [
            finding.severity,
            finding.rule,
            finding.key,
            finding.merchant.code if finding.merchant else "",
            finding.amount_fen,
            _yuan(finding.amount_fen),
            finding.state,
            finding.first_seen_at.isoformat(),
        ]
    yield []
    yield ["timing item", "number", "merchant", "amount_fen", "amount_yuan", "in the bill of", "settled_at"]
    timing = TimingItem.objects.filter(run=run).select_related("merchant").order_by("id")
    if merchant_code is not None:
        timing = timing.filter(merchant__code=merchant_code)
    for item in timing.iterator():
        fen = item.theirs.get("amount_fen") or 0
        settled = item.settled_at.isoformat() if item.settled_at else ""
        about = [item.section, item.number, item.merchant.code]
        yield [*about, fen, _yuan(fen), item.theirs.get("bill_on", ""), settled]


def _yuan(fen: int) -> Decimal:
    """A number for spreadsheets, with two decimals."""
    return (Decimal(fen) / 100).quantize(Decimal("0.01"))
