"""One user at a time: quotes and orders of the same user are made one after the other."""

from uuid import UUID

from django.db import connection


def lock_user(*, merchant_id: UUID, user_id: str) -> None:
    """Wait for the other quote or order that this user is making now; held until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"orders.user:{merchant_id}:{user_id}"]
        )
