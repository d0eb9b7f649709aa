"""The scanner of overdue leases: one page of them, each asked about at the orders, then released in one statement."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import connection

from coupons.commands.release_leases import HeldLease, release_leases
from coupons.facts import LeaseVerdict, order_facts
from kernel import outbox
from kernel.transactions import unit_of_work

COORDINATE_AGAIN = timedelta(minutes=10)
"""A lease that must not be released is reported to the order coordinator this often, not at every scan."""

# The time is text: only that of the last row is read.
DUE_LEASES = """
SELECT l.expires_at::text, l.id, l.merchant_id, l.coupon_id, l.token_hash, l.order_no, c.state_version
FROM coupon_lock l JOIN user_coupon c ON c.id = l.coupon_id
WHERE l.ended_by_id IS NULL AND l.expires_at <= %(now)s::timestamptz
  AND (l.expires_at, l.id) > (%(after_at)s::timestamptz, %(after_id)s::uuid)
  AND (%(shards)s::int = 1 OR mod(abs(hashtext(l.coupon_id::text)::bigint), %(shards)s::int) = %(shard)s::int)
  AND c.status = 'LOCKED' AND c.lock_id = l.id
ORDER BY l.expires_at, l.id LIMIT %(limit)s::int
FOR UPDATE OF c SKIP LOCKED
"""
TO_COORDINATE = """
UPDATE coupon_lock SET coordinated_at = %(now)s::timestamptz
WHERE id = ANY(%(ids)s::uuid[]) AND (coordinated_at IS NULL OR coordinated_at <= %(before)s::timestamptz)
RETURNING id
"""


@dataclass(frozen=True)
class Cursor:
    """Where a page ended: its last lease by expiry and id."""

    at: datetime
    id: UUID


BEGINNING = Cursor(datetime(2000, 1, 1, tzinfo=UTC), UUID(int=0))


@dataclass(frozen=True)
class LeasesScanned:
    """What one page came to. `next` is None when it was the last one."""

    looked_at: int
    released: int
    waiting: int
    coordinated: int
    next: Cursor | None


def scan_leases(
    *,
    now: datetime,
    after: Cursor | None = None,
    limit: int = 500,
    shard: int = 0,
    shards: int = 1,
) -> LeasesScanned:
    """Look at one page of leases whose time is over and issue release commands for those nobody will come for.

    Each release carries lease, token hash and the version seen. Before it, the order and its payment are asked
    (OrderFacts, local tables): a paid or unknown one is not released but reported as `coupon.lease_overdue`; a live
    one waits for its own timer. Claimed rows are skipped by other scanners, so any number of them, or a second run,
    changes nothing twice.
    """
    start = after or BEGINNING
    with unit_of_work(now=now):
        with connection.cursor() as cursor:
            cursor.execute(
                DUE_LEASES,
                {
                    "now": now,
                    "after_at": start.at,
                    "after_id": start.id,
                    "limit": str(limit),
                    "shard": str(shard),
                    "shards": str(shards),
                },
            )
            rows = cursor.fetchall()
        held = [HeldLease(row[2], row[3], row[1], bytes(row[4]), row[5], row[6]) for row in rows]
        verdicts = _ask(held, now=now)
        released = release_leases(leases=verdicts[LeaseVerdict.RELEASE], now=now)
        coordinated = _coordinate(verdicts[LeaseVerdict.COORDINATE], now=now)
    return LeasesScanned(
        looked_at=len(rows),
        released=len(released.coupon_ids),
        waiting=len(verdicts[LeaseVerdict.WAIT]),
        coordinated=coordinated,
        next=Cursor(datetime.fromisoformat(rows[-1][0]), rows[-1][1]) if len(rows) == limit else None,
    )


def _ask(held: list[HeldLease], *, now: datetime) -> dict[LeaseVerdict, list[HeldLease]]:
    """The leases by what may happen to them; one question per merchant."""
    by_merchant: dict[UUID, list[HeldLease]] = defaultdict(list)
    for lease in held:
        by_merchant[lease.merchant_id].append(lease)
    found: dict[LeaseVerdict, list[HeldLease]] = defaultdict(list)
    for merchant_id, leases in by_merchant.items():
        answers = order_facts().lease_verdicts(
            merchant_id=merchant_id, order_nos={lease.order_no for lease in leases}, now=now
        )
        for lease in leases:
            found[answers.get(lease.order_no, LeaseVerdict.RELEASE)].append(lease)
    return found


def _coordinate(leases: list[HeldLease], *, now: datetime) -> int:
    """Tell the order coordinator of leases that are overdue but not to be released."""
    if not leases:
        return 0
    with connection.cursor() as cursor:
        ids = [lease.lock_id for lease in leases]
        cursor.execute(TO_COORDINATE, {"now": now, "before": now - COORDINATE_AGAIN, "ids": ids})
        due = {row[0] for row in cursor.fetchall()}
    for lease in leases:
        if lease.lock_id in due:
            outbox.append(
                name="coupon.lease_overdue",
                merchant_id=lease.merchant_id,
                subject=lease.order_no,
                payload={
                    "coupon_id": str(lease.coupon_id),
                    "order_no": lease.order_no,
                    "lock_id": str(lease.lock_id),
                    "state_version": lease.state_version,
                },
                now=now,
            )
    return len(due)
