"""Take claims whose deadline has passed, so that two sweeps never work on the same one."""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection

from kernel.transactions import unit_of_work

HOLD_SECONDS = 300
"""A claim whose timer could not act (a channel that does not answer, say) is looked at again after this long."""


def take_due_claims(*, now: datetime, limit: int = 100) -> list[UUID]:
    """Up to `limit` ids, the longest overdue first, skipping what another sweep holds, what is in arbitration and what
    waits for the risk desk."""
    with unit_of_work(now=now), connection.cursor() as cursor:
        cursor.execute(
            """
            WITH due AS MATERIALIZED (  -- inside an IN (…) it may run once per row: no limit at all
                SELECT id FROM after_sales_order
                WHERE due_at IS NOT NULL AND due_at <= %(now)s AND NOT is_disputed AND NOT held_for_review
                  AND (timer_not_before IS NULL OR timer_not_before <= %(now)s)
                ORDER BY due_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
            UPDATE after_sales_order s SET timer_not_before = %(until)s FROM due WHERE s.id = due.id RETURNING s.id
            """,
            {"now": now, "until": now + timedelta(seconds=HOLD_SECONDS), "limit": limit},
        )
        return [row[0] for row in cursor.fetchall()]
