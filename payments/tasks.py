"""Worker and beat entries: they read the clock, loop with a limit, and call one command per row."""

from __future__ import annotations

from datetime import date
from uuid import UUID

import structlog
from celery import shared_task

from kernel import clock
from kernel.tasks import send_quietly
from payments.commands.download_bill import download_bill
from payments.commands.pick_due_refunds import pick_due_refunds
from payments.commands.pick_parked_refunds import pick_parked_refunds
from payments.commands.pursue_refund import pursue_refund
from payments.commands.query_refund import query_refund
from payments.queries import bills_to_fetch

log = structlog.get_logger(__name__)


@shared_task(queue="critical")
def work_refund(attempt_id: str) -> str:
    """One step of one refund attempt."""
    done = pursue_refund(attempt_id=UUID(attempt_id), now=clock.now())
    if done is None:
        return "nothing"
    log.info("refund.step", refund_no=done.refund_no, step=done.step, result=done.result, status=done.status)
    return done.result


@shared_task(queue="critical")
def sweep_refunds() -> int:
    """Hand every attempt whose time has come to a worker."""
    picked = pick_due_refunds()
    for attempt_id in picked:
        send_quietly(work_refund, str(attempt_id))
    return len(picked)


@shared_task(queue="bulk")
def ask_parked_refund(attempt_id: str) -> str:
    """One question about a refund that the channel parked."""
    asked = query_refund(attempt_id=UUID(attempt_id), forced=True, now=clock.now())
    log.info("refund.parked", refund_no=asked.refund_no, result=asked.result, status=asked.status)
    return asked.status


@shared_task(queue="bulk")
def ask_parked_refunds() -> int:
    """What became of the refunds that the channel parked: once a day, the older the seldomer."""
    picked = pick_parked_refunds()
    for attempt_id in picked:
        send_quietly(ask_parked_refund, str(attempt_id))
    return len(picked)


@shared_task(queue="bulk")
def fetch_bills() -> int:
    """Yesterday's bills (and the days before, where one is still missing), once the channel has them."""
    moment = clock.now()
    fetched = 0
    for account_id, kind, bill_on in bills_to_fetch(now=moment):
        send_quietly(fetch_bill, str(account_id), kind, bill_on.isoformat())
        fetched += 1
    return fetched


@shared_task(queue="bulk")
def fetch_bill(account_id: str, kind: str, bill_on: str) -> str:
    """One bill."""
    day = date.fromisoformat(bill_on)
    return download_bill(account_id=UUID(account_id), kind=kind, bill_on=day, now=clock.now()).state
