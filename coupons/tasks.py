"""Beat entries of coupons: they read the clock, walk pages under a limit and a rate, and call one command per page."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from celery import shared_task

from coupons.commands.expire_coupons import expire_coupons
from coupons.commands.scan_leases import scan_leases
from kernel import clock

PAGE = 500
PAGES = 100
"""At most so many pages a run; the next run goes on where the work is."""
ROWS_PER_SECOND = 3_000
"""An unthrottled scanner halves the rate of locks beside it."""
RECENTLY = timedelta(days=2)

log = structlog.get_logger(__name__)


def walk(page: Callable[[Any], Any], *, rate: int = ROWS_PER_SECOND) -> list[Any]:
    """Call `page(cursor)` until its result has no `next`, at most PAGES times and `rate` rows a second."""
    results: list[Any] = []
    cursor = None
    while len(results) < PAGES:
        started = time.monotonic()
        done = page(cursor)
        results.append(done)
        cursor = done.next
        if cursor is None:
            break
        time.sleep(max(0.0, done.looked_at / rate - (time.monotonic() - started)))
    return results


@shared_task(queue="default")
def release_overdue_leases(shard: int = 0, shards: int = 1) -> int:
    """Leases past their time: released, left to their order, or reported to the coordinator."""
    pages = walk(lambda cursor: scan_leases(now=clock.now(), after=cursor, limit=PAGE, shard=shard, shards=shards))
    counts = {name: sum(getattr(page, name) for page in pages) for name in ("released", "waiting", "coordinated")}
    if counts["released"] or counts["coordinated"]:
        log.info("coupons.leases_scanned", pages=len(pages), **counts)
    return counts["released"]


@shared_task(queue="bulk")
def expire_overdue_coupons() -> int:
    """Coupons in wallets whose validity ended lately."""
    moment = clock.now()
    return _expire(since=moment - RECENTLY)


@shared_task(queue="bulk")
def expire_all_overdue_coupons() -> int:
    """The same over all time, once a day: whatever the frequent pass could not see."""
    return _expire(since=datetime(2000, 1, 1, tzinfo=UTC))


def _expire(*, since: datetime) -> int:
    pages = walk(lambda cursor: expire_coupons(now=clock.now(), since=since, after=cursor, limit=PAGE))
    count = sum(page.expired for page in pages)
    if count:
        log.info("coupons.expired", pages=len(pages), expired=count)
    return count
