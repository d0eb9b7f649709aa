"""Beat and worker entries: read the clock, claim what is due, call one command per row. One bad row stops nothing."""

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

import structlog
from celery import shared_task

from kernel import clock
from orders.commands._release_quote import expire_quote
from orders.commands.check_order import check_order
from orders.commands.claim_due import claim_due
from orders.commands.complete_order import complete_order
from orders.commands.fulfil_order import fulfil_order
from orders.commands.sign_due_shipment import sign_due_shipment

ROUNDS = 20
BATCH = 100

log = structlog.get_logger(__name__)


def sweep(kind: str, command: Callable[[UUID, datetime], object]) -> int:
    """Claim batches until nothing is due. A row whose command raises is logged and left; the rest go on."""
    done = 0
    for _ in range(ROUNDS):
        now = clock.now()
        due = claim_due(kind=kind, now=now, limit=BATCH)
        failed = 0
        for row_id in due:
            try:
                command(row_id, now)
            except Exception:  # isolation: reported, and due again later
                failed += 1
                log.exception("orders.sweep_failed", kind=kind, id=str(row_id))
        done += len(due) - failed
        if len(due) < BATCH or failed:
            break
    return done


@shared_task(queue="bulk")
def check_pending_orders() -> int:
    """Ask the channel about pending orders shortly before their time is over, and close them when it is."""
    return sweep("check", lambda order_id, now: check_order(order_id=order_id, now=now))


@shared_task(queue="bulk")
def expire_quotes() -> int:
    """End quotes whose time is over and release their leases."""
    return sweep("quotes", lambda quote_id, now: expire_quote(quote_id=quote_id, now=now))


@shared_task(queue="default")
def fulfil_paid_orders() -> int:
    """Fulfil paid orders that the usual way missed or that failed, after a grace period."""
    return sweep("fulfil", lambda order_id, now: fulfil_order(order_id=order_id, now=now))


@shared_task(queue="bulk")
def sign_due_shipments() -> int:
    """Sign parcels that nobody signed for in ten days."""
    return sweep("sign", lambda shipment_id, now: sign_due_shipment(shipment_id=shipment_id, now=now))


@shared_task(queue="bulk")
def complete_due_orders() -> int:
    """Complete delivered orders whose time has come."""
    return sweep("complete", lambda order_id, now: complete_order(order_id=order_id, now=now))
