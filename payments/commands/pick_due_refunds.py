"""Find the refund attempts whose time has come and reserve them for a worker."""

from __future__ import annotations

from uuid import UUID

from django.db import connection

PICK_SECONDS = 60
"""A picked attempt is not picked again for so long, in case its task was lost."""


def pick_due_refunds(*, limit: int = 200) -> list[UUID]:
    """Attempts with `next_action_at` in the past, oldest first, by PostgreSQL's clock. Locked rows are skipped:
    someone is at them. Picking reserves nothing but the picker's attention; the claim is made when the step is
    taken."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE refund_attempt SET picked_at = clock_timestamp()
            WHERE id IN (
                SELECT id FROM refund_attempt
                WHERE status IN ('CREATED', 'SENT', 'PROCESSING') AND next_action_at <= clock_timestamp()
                  AND (picked_at IS NULL OR picked_at < clock_timestamp() - %s * interval '1 second')
                ORDER BY next_action_at LIMIT %s FOR UPDATE SKIP LOCKED)
            RETURNING id
            """,
            [PICK_SECONDS, limit],
        )
        return [row[0] for row in cursor.fetchall()]
