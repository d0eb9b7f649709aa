"""The ledger against the tables, set-based: every coupon's state rebuilt from its operations, and what must follow.

Each check is one query over all rows (or all of one merchant), run in the database with flat memory here: it returns
how many rows contradict and the first of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any
from uuid import UUID

from django.db import connection

from coupons.models import EDGES

FIRST = 10
"""So many differences are shown of each check."""

_EDGES = ", ".join(f"('{command}', '{source or '-'}', '{target}')" for command, source, target in EDGES)

REPLAY = f"""
WITH steps AS (
    SELECT coupon_id, to_version, to_status,
        (command, coalesce(from_status, '-'), to_status) IN ({_EDGES})
        AND from_version IS NOT DISTINCT FROM lag(to_version) OVER w
        AND from_status IS NOT DISTINCT FROM lag(to_status) OVER w
        AND to_version = row_number() OVER w AS follows,
        lead(to_version) OVER w IS NULL AS is_last
    FROM coupon_operation o WHERE (%(merchant)s::uuid IS NULL OR o.merchant_id = %(merchant)s::uuid)
    WINDOW w AS (PARTITION BY coupon_id ORDER BY to_version)
), replayed AS (
    SELECT coupon_id, bool_and(follows) AS unbroken, max(to_version) AS version,
        max(to_status) FILTER (WHERE is_last) AS status
    FROM steps GROUP BY coupon_id
)
SELECT coalesce(c.id, r.coupon_id), concat_ws(' ', 'table', c.status, 'v' || c.state_version, 'ledger', r.status,
    'v' || r.version, CASE WHEN r.unbroken THEN '' ELSE 'broken' END)
FROM user_coupon c FULL JOIN replayed r ON r.coupon_id = c.id
WHERE (c.id IS NULL OR %(merchant)s::uuid IS NULL OR c.merchant_id = %(merchant)s::uuid)
  AND (c.id IS NULL OR r.coupon_id IS NULL OR NOT r.unbroken OR c.status <> r.status OR c.state_version <> r.version)
"""

LEASES = """
SELECT coalesce(c.id, l.coupon_id), concat_ws(' ', 'coupon', c.status, c.locked_order_no, 'lease', l.order_no, 'ledger',
    o.command, o.order_no)
FROM (SELECT * FROM user_coupon WHERE status = 'LOCKED') c
FULL JOIN (SELECT * FROM coupon_lock WHERE ended_by_id IS NULL) l ON l.coupon_id = c.id
LEFT JOIN coupon_operation o ON o.coupon_id = c.id AND o.to_version = c.state_version
WHERE (%(merchant)s::uuid IS NULL OR coalesce(c.merchant_id, l.merchant_id) = %(merchant)s::uuid)
  AND (c.id IS NULL OR l.id IS NULL OR o.id IS NULL
    OR (c.lock_id, c.locked_order_no, c.lock_token_hash, c.lease_expires_at)
        IS DISTINCT FROM (l.id, l.order_no, l.token_hash, l.expires_at)
    OR (c.lock_id, c.locked_order_no, c.lease_expires_at)
        IS DISTINCT FROM (o.lock_id, o.order_no, o.lease_expires_at))
"""

REDEMPTIONS = """
SELECT coalesce(c.id, r.coupon_id), concat_ws(' ', 'coupon', c.status, 'in force', count(r.id))
FROM user_coupon c FULL JOIN (SELECT * FROM coupon_redemption WHERE ended_by_id IS NULL) r ON r.coupon_id = c.id
WHERE (c.status = 'USED' OR r.id IS NOT NULL)
  AND (%(merchant)s::uuid IS NULL OR coalesce(c.merchant_id, r.merchant_id) = %(merchant)s::uuid)
GROUP BY c.id, r.coupon_id, c.status
HAVING count(r.id) <> 1 OR c.status IS NULL OR c.status NOT IN ('USED', 'VOID')
"""

OWNERS = """
SELECT r.coupon_id, concat_ws(' ', 'redemption of', r.order_no, 'under the lease of', l.order_no)
FROM coupon_redemption r LEFT JOIN coupon_lock l ON l.id = r.lock_id
WHERE (%(merchant)s::uuid IS NULL OR r.merchant_id = %(merchant)s::uuid)
  AND (l.id IS NULL OR l.coupon_id <> r.coupon_id OR l.order_no <> r.order_no)
"""

RETURNS = """
SELECT o.coupon_id, concat_ws(' ', 'returned at version', o.to_version, 'by decision', d.decision)
FROM coupon_operation o LEFT JOIN refund_coupon d ON d.id = o.decision_id
WHERE o.command = 'RETURN' AND (%(merchant)s::uuid IS NULL OR o.merchant_id = %(merchant)s::uuid)
  AND (d.id IS NULL OR d.decision <> 'RETURN' OR (d.redemption_id, d.coupon_id)
        IS DISTINCT FROM (o.redemption_id, o.coupon_id))
"""

UNDONE = """
SELECT d.coupon_id, concat_ws(' ', 'decided to', d.decision, 'because of', d.cause_no, 'but nothing moved')
FROM refund_coupon d
WHERE d.decision IN ('RETURN', 'VOID') AND (%(merchant)s::uuid IS NULL OR d.merchant_id = %(merchant)s::uuid)
  AND NOT EXISTS (SELECT 1 FROM coupon_operation o WHERE o.decision_id = d.id)
"""

CHECKS = {
    "replay(operations) = coupon": REPLAY,
    "one lease in force per locked coupon": LEASES,
    "one redemption in force per used coupon": REDEMPTIONS,
    "redemptions belong to their lease": OWNERS,
    "returns follow a decision": RETURNS,
    "decisions were carried out": UNDONE,
}


@dataclass(frozen=True)
class Checked:
    """What one check found: how many contradictions, the first of them, and how long it took (seconds)."""

    name: str
    differences: int
    first: list[tuple[UUID, str]]
    seconds: float


def verify(*, merchant_id: UUID | None = None) -> Iterator[Checked]:
    """Run every check, over all coupons or one merchant's."""
    for name, query in CHECKS.items():
        started = perf_counter()
        rows = _ask(f"SELECT id, said, count(*) OVER () FROM ({query}) found(id, said) LIMIT {FIRST}", merchant_id)
        yield Checked(
            name,
            differences=rows[0][2] if rows else 0,
            first=[(row[0], row[1]) for row in rows],
            seconds=perf_counter() - started,
        )


def count_rows(*, merchant_id: UUID | None = None) -> tuple[int, int, float]:
    """Coupons, operations, and the seconds a plain count of both takes: what any look at all of them costs at least."""
    started = perf_counter()
    scope = "WHERE (%(merchant)s::uuid IS NULL OR merchant_id = %(merchant)s::uuid)"
    coupons = _ask(f"SELECT count(*) FROM user_coupon {scope}", merchant_id)[0][0]
    operations = _ask(f"SELECT count(*) FROM coupon_operation {scope}", merchant_id)[0][0]
    return coupons, operations, perf_counter() - started


def _ask(query: str, merchant_id: UUID | None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, {"merchant": merchant_id})
        return cursor.fetchall()
