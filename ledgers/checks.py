"""Proof that balances are the sums of their entries: set-based, one pass, rows only where something is wrong."""

from __future__ import annotations

from typing import Any

from django.db import connection

STOCK_BALANCES = """
    SELECT i.merchant_id, i.sku, i.sellable, i.reserved, i.defect,
           coalesce(e.sellable, 0) AS entries_sellable, coalesce(e.reserved, 0) AS entries_reserved,
           coalesce(e.defect, 0) AS entries_defect
    FROM stock_item i
    LEFT JOIN (
        SELECT item_id,
               sum(delta) FILTER (WHERE bucket = 'sellable') AS sellable,
               sum(delta) FILTER (WHERE bucket = 'reserved') AS reserved,
               sum(delta) FILTER (WHERE bucket = 'defect') AS defect
        FROM stock_entry GROUP BY item_id
    ) e ON e.item_id = i.id
    WHERE (i.sellable, i.reserved, i.defect)
          IS DISTINCT FROM (coalesce(e.sellable, 0), coalesce(e.reserved, 0), coalesce(e.defect, 0))
"""

JOURNAL_BALANCE = """
    SELECT e.merchant_id, e.business_key, count(l.id) AS lines, coalesce(sum(l.amount_fen), 0) AS sum_fen
    FROM journal_entry e LEFT JOIN journal_line l ON l.entry_id = e.id
    GROUP BY e.id HAVING count(l.id) < 2 OR coalesce(sum(l.amount_fen), 0) <> 0
"""


def stock_that_differs() -> list[dict[str, Any]]:
    """Stock items whose balances are not the sums of their entries."""
    return _rows(STOCK_BALANCES)


def journal_that_differs() -> list[dict[str, Any]]:
    """Journal entries that do not balance (the database refuses them; this proves that it did)."""
    return _rows(JOURNAL_BALANCE)


def _rows(sql: str) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        names = [column.name for column in cursor.description or []]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
