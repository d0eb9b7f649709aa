"""Beat entries: read the clock, take what is due, call one command per row."""

import structlog
from celery import shared_task

from aftersales.commands.run_timer import run_timer
from aftersales.commands.take_due_claims import take_due_claims
from kernel import clock
from kernel.errors import Refusal

log = structlog.get_logger(__name__)


@shared_task(queue="default")
def run_due_timers() -> int:
    """Every deadline that has passed. A claim that moved meanwhile refuses the command; the others go on."""
    now, acted = clock.now(), 0
    for claim_id in take_due_claims(now=now):
        try:
            outcome = run_timer(claim_id=claim_id, now=now).outcome
        except Refusal as refusal:
            outcome = refusal.code
        acted += 1
        log.info("after_sales.timer", claim_id=str(claim_id), outcome=outcome)
    return acted
