"""Find the parked refunds that it is time to ask about again."""

from __future__ import annotations

from uuid import UUID

from django.db import connection

BACKOFF_DAYS = (1, 1, 2, 4, 7)
"""Days between the questions about one parked refund; the last one repeats."""
ASKED_FOR_DAYS = 365
"""A refund parked longer than a channel refunds at all is left to people."""
SLACK = "1 hour"
"""The job runs once a day and not to the second; an early run must not cost a day."""


def pick_parked_refunds(*, limit: int = 500) -> list[UUID]:
    """ABNORMAL attempts whose next question is due, longest unasked first, by PostgreSQL's clock; each is counted as
    asked (`queries`, `picked_at`), so that two runs at once, or one that dies, ask nothing twice in a day.

    A parked refund ends at the channel's own page or by its abnormal-refund form, and the callback may be lost: only a
    question tells. It never takes a new number.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE refund_attempt SET picked_at = clock_timestamp(), queries = queries + 1
            WHERE id IN (
                SELECT id FROM refund_attempt
                WHERE status = 'ABNORMAL'
                  AND finished_at > clock_timestamp() - %(most)s::int * interval '1 day'
                  AND coalesce(picked_at, finished_at) + interval '1 day'
                      * (%(days)s::int[])[least(queries + 1, cardinality(%(days)s::int[]))]
                      <= clock_timestamp() + %(slack)s::interval
                ORDER BY coalesce(picked_at, finished_at) LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
            RETURNING id
            """,
            {"most": ASKED_FOR_DAYS, "days": list(BACKOFF_DAYS), "slack": SLACK, "limit": limit},
        )
        return [row[0] for row in cursor.fetchall()]
