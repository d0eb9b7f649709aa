"""Beat and worker entries of reconciliation."""

from __future__ import annotations

from datetime import date, timedelta

from celery import shared_task

from kernel import clock
from reconciliation.commands.look_at_changes import look_at_changes
from reconciliation.commands.reconcile_day import reconcile_day
from reconciliation.queries import get_waiting_days

WAITS_AT_MOST = 7
"""Days for which a late bill is waited for by itself."""


@shared_task(queue="bulk")
def reconcile_yesterday() -> str:
    """The daily run, after the channels' bills are there (10:00 Asia/Shanghai; again later for late bills)."""
    yesterday = clock.channel_day(clock.now()) - timedelta(days=1)
    return reconcile_day(on_date=yesterday, now=clock.now()).state


@shared_task(queue="bulk")
def reconcile_waiting() -> int:
    """Days of the last week that wait for a bill: it may have come."""
    today = clock.channel_day(clock.now())
    days = get_waiting_days(since=today - timedelta(days=WAITS_AT_MOST))
    for day in days:
        reconcile_day(on_date=day, now=clock.now())
    return len(days)


@shared_task(queue="bulk")
def reconcile_on(day: str) -> str:
    """One given day, asked for in the back office."""
    return reconcile_day(on_date=date.fromisoformat(day), now=clock.now()).state


@shared_task(queue="bulk")
def look_at_what_changed() -> int:
    """The gate of every minute: rules that must never wait until tomorrow, on what moved since the last look."""
    return look_at_changes(now=clock.now()).opened
