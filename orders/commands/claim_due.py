"""Claim due work: rows whose time has come are taken by pushing that time ahead, so that two sweeps never share one.

The row is the queue: a worker that dies leaves its rows to be due again after the claim's time.
"""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection

from kernel.transactions import unit_of_work

CLAIM_SECONDS = 120

WORK = {
    "check": ("orders", "next_check_at", "next_check_at IS NOT NULL"),
    "fulfil": ("orders", "next_fulfil_at", "status = 10 AND next_fulfil_at IS NOT NULL"),
    "complete": ("orders", "complete_at", "status = 20 AND complete_at IS NOT NULL"),
    "sign": ("shipment", "auto_sign_at", "signed_at IS NULL"),
    "quotes": ("quote", "expires_at", "state = 'OPEN'"),
}
"""Kind of work: table, the column that says when, and the condition of its partial index, word for word."""

PUSHED = ("check", "fulfil")
"""Kinds whose time may be pushed ahead; the time of the others is a fact, so they are claimed by their own command."""


def claim_due(*, kind: str, now: datetime, limit: int = 100) -> list[UUID]:
    """The ids of up to `limit` rows that are due, oldest first, skipping what another sweep holds."""
    table, column, condition = WORK[kind]
    chosen = (
        f"SELECT id FROM {table} WHERE {condition} AND {column} <= %(now)s"
        f" ORDER BY {column} LIMIT %(limit)s FOR UPDATE SKIP LOCKED"
    )
    if kind in PUSHED:
        chosen = f"UPDATE {table} SET {column} = %(until)s WHERE id IN ({chosen}) RETURNING id"
    with unit_of_work(now=now), connection.cursor() as cursor:
        until = {"until": now + timedelta(seconds=CLAIM_SECONDS)} if kind in PUSHED else {}
        cursor.execute(chosen, {"now": now, "limit": limit, **until})
        return [row[0] for row in cursor.fetchall()]
