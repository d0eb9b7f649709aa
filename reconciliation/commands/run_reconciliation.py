"""The daily run: bills, comparisons item by item, then the rules on the tables as they stand."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from django.db import connection

from kernel.transactions import unit_of_work
from reconciliation.commands.record_findings import record_findings
from reconciliation.days import ChannelDay
from reconciliation.models import ReconciliationRun, TimingItem
from reconciliation.rules import Comparison
from reconciliation.rules.registry import comparisons, state_rules

WORK_MEMORY = "96MB"


@dataclass(frozen=True)
class Reconciled:
    """What a run saw. `waiting` names the bills that were not there: their accounts are not judged yet."""

    run_id: uuid.UUID
    state: str
    items: int
    matched: int
    timing: int
    findings_seen: int
    findings_opened: int
    waiting: list[str] = field(default_factory=list)
    replayed: bool = False


def run_reconciliation(
    *,
    on_date: date,
    now: datetime,
    merchant_id: uuid.UUID | None = None,
    waiting: list[str] | None = None,
) -> Reconciled:
    """Reconcile one channel day. Every step is its own transaction and may be repeated: a run that was
    killed is simply run again, and ends in the same rows.

    Downloads nothing itself: `waiting` lists the bills that could not be fetched, which makes the run
    WAITING instead of DONE. Only accounts whose bill is stored are compared with it.
    """
    day = ChannelDay(on_date)
    run_id = _claim(on_date=on_date, merchant_id=merchant_id, now=now)
    params = day.params(merchant_id=merchant_id, now=now)
    totals: dict[str, Any] = {}
    seen = opened = 0
    try:
        for comparison in comparisons():
            section, found, new = _compare(comparison, run_id=run_id, params=params, now=now)
            totals[comparison.name] = section
            seen, opened = seen + found, opened + new
        for rule in state_rules():
            with unit_of_work(now=now):
                _hold(run_id)
                recorded = record_findings(rule=rule, run_id=run_id, params=params, now=now)
            seen, opened = seen + recorded.seen, opened + recorded.opened
    except Exception as error:
        _fail(run_id, error=error, now=now)
        raise
    return _finish(run_id, totals=totals, seen=seen, opened=opened, waiting=waiting or [], now=now)


def _claim(*, on_date: date, merchant_id: uuid.UUID | None, now: datetime) -> uuid.UUID:
    """The run's row, made on the first try; a later try starts the same one again."""
    with unit_of_work(now=now), connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO reconciliation_run (id, kind, on_date, merchant_id, state, totals, items, matched,
                timing, findings_seen, findings_opened, tries, started_at, error)
            VALUES (gen_random_uuid(), 'daily', %(day)s, %(merchant_id)s, 'RUNNING', '{}', 0, 0, 0, 0, 0, 1,
                    %(now)s, '')
            ON CONFLICT ON CONSTRAINT reconciliation_run_one_per_day
            DO UPDATE SET state = 'RUNNING', tries = reconciliation_run.tries + 1,
                          started_at = excluded.started_at, finished_at = NULL, error = ''
            RETURNING id
            """,
            {"day": on_date, "merchant_id": merchant_id, "now": now},
        )
        return cursor.fetchone()[0]


def _hold(run_id: uuid.UUID) -> None:
    """Two runs of the same day take turns, step by step, instead of waiting for each other's rows.

    Each step may use WORK_MEMORY per sort or hash, so that a million rows are joined without spilling to disk.
    """
    ReconciliationRun.objects.select_for_update().get(pk=run_id)
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL work_mem = '{WORK_MEMORY}'")


def _compare(
    comparison: Comparison, *, run_id: uuid.UUID, params: dict[str, Any], now: datetime
) -> tuple[list[dict[str, Any]], int, int]:
    """One comparison in one transaction, because its joined items live in a temporary table."""
    seen = opened = 0
    with unit_of_work(now=now):
        _hold(run_id)
        with connection.cursor() as cursor:
            for statement in comparison.prepare:
                cursor.execute(statement, params)
            cursor.execute(comparison.totals, params)
            columns = [column.name for column in cursor.description or ()]
            section = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
        for rule in comparison.rules:
            recorded = record_findings(rule=rule, run_id=run_id, params=params, now=now)
            seen, opened = seen + recorded.seen, opened + recorded.opened
        _note_timing(comparison, run_id=run_id, params=params)
        with connection.cursor() as cursor:
            cursor.execute(comparison.drop)
    return section, seen, opened


def _note_timing(comparison: Comparison, *, run_id: uuid.UUID, params: dict[str, Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            WITH item AS MATERIALIZED ({comparison.timing}), stale AS (
                DELETE FROM reconciliation_timing_item t WHERE t.run_id = %(run)s AND t.section = %(section)s
                AND NOT EXISTS (SELECT FROM item WHERE item.number = t.number)
            )
            INSERT INTO reconciliation_timing_item
                (run_id, merchant_id, section, number, ours, theirs, settled_at)
            SELECT %(run)s, merchant_id, %(section)s, number, ours, theirs, settled_at FROM item
            ON CONFLICT (run_id, section, number) DO UPDATE
            SET ours = excluded.ours, theirs = excluded.theirs, settled_at = excluded.settled_at
            """,
            {**params, "run": run_id, "section": comparison.name},
        )


def _fail(run_id: uuid.UUID, *, error: Exception, now: datetime) -> None:
    with unit_of_work(now=now):
        ReconciliationRun.objects.filter(pk=run_id).update(
            state="FAILED", finished_at=now, error=f"{type(error).__name__}: {error}"[:2000]
        )


def _finish(
    run_id: uuid.UUID,
    *,
    totals: dict[str, list[dict[str, Any]]],
    seen: int,
    opened: int,
    waiting: list[str],
    now: datetime,
) -> Reconciled:
    rows = [row for section in totals.values() for row in section]
    with unit_of_work(now=now):
        run = ReconciliationRun.objects.select_for_update().get(pk=run_id)
        run.state = "WAITING" if waiting else "DONE"
        run.totals = {**totals, "waiting": waiting}
        run.items = sum(row["items"] for row in rows)
        run.matched = sum(row["matched"] for row in rows)
        run.timing = TimingItem.objects.filter(run=run).count()
        run.findings_seen, run.findings_opened = seen, opened
        run.finished_at = now
        run.save()
    return Reconciled(
        run_id=run_id,
        state=run.state,
        items=run.items,
        matched=run.matched,
        timing=run.timing,
        findings_seen=seen,
        findings_opened=opened,
        waiting=waiting,
    )
