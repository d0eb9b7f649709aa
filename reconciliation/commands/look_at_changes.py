"""The gates of every minute: the urgent rules, on what changed since the last look."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection

from kernel.clock import channel_day
from kernel.transactions import unit_of_work
from reconciliation.commands.record_findings import record_findings
from reconciliation.days import ChannelDay
from reconciliation.models import ReconciliationRun
from reconciliation.rules.coupons import CHANGED
from reconciliation.rules.registry import state_rules

OVERLAP = timedelta(minutes=6)
"""Looks overlap: a row carries the time at which its command began, not the time at which it committed, and clocks of
machines may be as far apart as signed requests may (five minutes)."""

FIRST_LOOK = timedelta(hours=1)


@dataclass(frozen=True)
class Looked:
    """How many findings the gates saw in what changed, and how many of them are new."""

    seen: int
    opened: int
    replayed: bool = False


def look_at_changes(*, now: datetime) -> Looked:
    """Run every gate rule on what changed. A second look at the same time waits its turn, then sees nothing new."""
    seen = opened = 0
    with unit_of_work(now=now):
        run = _run_of_today(now)
        # A worker whose clock is fast has looked "until" a time that is still to come: nobody else has.
        since = min(run.checked_until_at or now - FIRST_LOOK, now) - OVERLAP
        params = {**ChannelDay(run.on_date).params(merchant_id=None, now=now), "since": since}
        for rule in state_rules():
            if rule.gate:
                recorded = record_findings(rule=rule, run_id=run.pk, params=params, changed=CHANGED[rule.code], now=now)
                seen, opened = seen + recorded.seen, opened + recorded.opened
        run.findings_seen += seen
        run.findings_opened += opened
        run.tries += 1
        run.state, run.finished_at, run.checked_until_at = "DONE", now, now
        run.save()
    return Looked(seen=seen, opened=opened)


def _run_of_today(now: datetime) -> ReconciliationRun:
    """The day's row, locked: looks take turns."""
    day = channel_day(now)
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO reconciliation_run (id, kind, on_date, merchant_id, state, totals, items, matched,
                timing, findings_seen, findings_opened, tries, started_at, checked_until_at, error)
            SELECT gen_random_uuid(), 'gate', %(day)s::date, NULL, 'RUNNING', '{}', 0, 0, 0, 0, 0, 0,
                   %(now)s::timestamptz, max(checked_until_at), ''
            FROM reconciliation_run WHERE kind = 'gate'
            ON CONFLICT ON CONSTRAINT reconciliation_run_one_per_day DO NOTHING
            """,
            {"day": day, "now": now},
        )
    return ReconciliationRun.objects.select_for_update().get(kind="gate", on_date=day, merchant=None)
