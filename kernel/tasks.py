"""Beat and worker entries of the kernel: relay, consume, retry, redeliver."""

import time
from datetime import timedelta
from typing import Any

import structlog
from celery import Task, shared_task
from kombu.exceptions import OperationalError as BrokerAway

from kernel import clock, inbox, outbox, stream, valkey

ROUNDS = 200
LINGER_SECONDS = 0.08

log = structlog.get_logger(__name__)


def send_quietly(task: Task, *args: Any) -> None:
    """Send a task if the broker is there. Nothing depends on it: beat finds the same work in the database."""
    try:
        task.apply_async(args=args, retry=False, ignore_result=True)
    except (BrokerAway, *valkey.Away) as error:
        log.warning("broker.away", task=task.name, error=str(error))


@shared_task(queue="critical")
def relay_outbox() -> int:
    """Publish what is pending; stay a moment for stragglers whose wake-up was folded into this one."""
    total = 0
    lingered = False
    for _ in range(ROUNDS):
        published = outbox.relay(now=clock.now()).published
        total += published
        if published:
            send_quietly(consume_events)
            lingered = False
        elif lingered:
            break
        else:
            time.sleep(LINGER_SECONDS)
            lingered = True
    return total


@shared_task(queue="critical")
def consume_events() -> int:
    """Deliver from the stream until it is empty."""
    total = 0
    for _ in range(ROUNDS):
        try:
            taken = stream.consume(now=clock.now())
        except valkey.Away as error:
            log.warning("stream.away", error=str(error))
            break
        total += taken
        if not taken:
            break
    return total


@shared_task(queue="critical")
def retry_inbox() -> int:
    """Try due messages again."""
    return inbox.retry_due(now=clock.now())


@shared_task(queue="bulk")
def redeliver_lost_events() -> int:
    """Deliver what the stream lost (a Valkey that was wiped or trimmed)."""
    return inbox.redeliver_lost(now=clock.now(), older_than=timedelta(minutes=1))
