"""Beat and worker entries of reconciliation."""

from __future__ import annotations

from datetime import date, timedelta

from celery import shared_task

from kernel import clock
from reconciliation.commands.look_at_changes import look_at_changes
from reconciliation.commands.reconcile_day import reconcile_day


@shared_task(queue="bulk")
def reconcile_yesterday() -> str:
    """The daily run, after the channels' bills are there (10:00 Asia/Shanghai; again later for late bills)."""
    yesterday = clock.channel_day(clock.now()) - timedelta(days=1)
    return reconcile_day(on_date=yesterday, now=clock.now()).state


@shared_task(queue="bulk")
def reconcile_on(day: str) -> str:
    """One given day, asked for in the back office."""
    return reconcile_day(on_date=date.fromisoformat(day), now=clock.now()).state


@shared_task(queue="bulk")
def look_at_what_changed() -> int:
    """The gate of every minute: rules that must never wait until tomorrow, on what moved since the last look."""
    return look_at_changes(now=clock.now()).opened
