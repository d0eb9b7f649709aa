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


POINTS_BALANCES = """
    SELECT a.merchant_id, a.user_id, a.balance, coalesce(e.balance, 0) AS entries_balance
    FROM points_account a
    LEFT JOIN (SELECT account_id, sum(delta) AS balance FROM points_entry GROUP BY account_id) e ON e.account_id = a.id
    WHERE a.balance <> coalesce(e.balance, 0)
"""

WALLET_BALANCES = """
    SELECT a.merchant_id, a.user_id, a.balance_fen, coalesce(e.balance_fen, 0) AS entries_balance_fen
    FROM wallet_account a
    LEFT JOIN (
        SELECT account_id, sum(delta_fen) AS balance_fen FROM wallet_entry GROUP BY account_id
    ) e ON e.account_id = a.id
    WHERE a.balance_fen <> coalesce(e.balance_fen, 0)
"""

SETTLED = "interval '10 minutes'"
"""So long may one side know of a movement before the other: a crash between two commits is repaired by asking."""

WALLET_PAYMENTS = f"""
    SELECT coalesce(p.merchant_id, e.merchant_id) AS merchant_id, coalesce(p.out_trade_no, e.reference) AS number,
           p.amount_fen AS paid_fen, -e.delta_fen AS entries_paid_fen
    FROM (SELECT * FROM payment WHERE channel = 'balance' AND status = 'PAID') p
    FULL JOIN (SELECT * FROM wallet_entry WHERE kind = 'charge') e
        ON e.merchant_id = p.merchant_id AND e.reference = p.out_trade_no
    WHERE p.amount_fen IS DISTINCT FROM -e.delta_fen
      AND coalesce(p.paid_at, e.created_at) < now() - {SETTLED}
"""

WALLET_REFUNDS = f"""
    SELECT coalesce(r.merchant_id, e.merchant_id) AS merchant_id, coalesce(r.number, e.reference) AS number,
           r.amount_fen AS refunded_fen, e.delta_fen AS entries_refunded_fen
    FROM (
        SELECT a.merchant_id, a.number, a.amount_fen, a.finished_at AS at FROM refund_attempt a
        JOIN payment p ON p.id = a.payment_id AND p.channel = 'balance' WHERE a.status = 'SUCCESS'
        UNION ALL
        SELECT q.merchant_id, q.refund_no, q.amount_fen, q.recorded_at FROM refund_request q
        WHERE q.route = 'balance' AND q.status = 'SUCCEEDED'
    ) r
    FULL JOIN (SELECT * FROM wallet_entry WHERE kind = 'credit') e
        ON e.merchant_id = r.merchant_id AND e.reference = r.number
    WHERE r.amount_fen IS DISTINCT FROM e.delta_fen AND coalesce(r.at, e.created_at) < now() - {SETTLED}
"""

COMMISSION_BALANCES = """
    SELECT a.merchant_id, a.beneficiary, a.pending_fen, a.withdrawable_fen, a.frozen_fen, a.withdrawn_fen,
           coalesce(e.pending, 0) AS entries_pending, coalesce(e.withdrawable, 0) AS entries_withdrawable,
           coalesce(e.frozen, 0) AS entries_frozen, coalesce(e.withdrawn, 0) AS entries_withdrawn,
           coalesce(c.net, 0) AS commissions_net
    FROM commission_account a
    LEFT JOIN (
        SELECT account_id,
               sum(delta_fen) FILTER (WHERE bucket = 'pending') AS pending,
               sum(delta_fen) FILTER (WHERE bucket = 'withdrawable') AS withdrawable,
               sum(delta_fen) FILTER (WHERE bucket = 'frozen') AS frozen,
               sum(delta_fen) FILTER (WHERE bucket = 'withdrawn') AS withdrawn
        FROM commission_entry GROUP BY account_id
    ) e ON e.account_id = a.id
    LEFT JOIN (
        SELECT account_id, sum(amount_fen - reversed_fen) AS net FROM commission GROUP BY account_id
    ) c ON c.account_id = a.id
    WHERE (a.pending_fen, a.withdrawable_fen, a.frozen_fen, a.withdrawn_fen)
          IS DISTINCT FROM (coalesce(e.pending, 0), coalesce(e.withdrawable, 0), coalesce(e.frozen, 0),
                            coalesce(e.withdrawn, 0))
       OR a.pending_fen + a.withdrawable_fen + a.frozen_fen + a.withdrawn_fen <> coalesce(c.net, 0)
"""

SALES_DAYS = """
    SELECT coalesce(d.merchant_id, e.merchant_id) AS merchant_id, coalesce(d.on_date, e.on_date) AS on_date,
           coalesce(d.sku, e.sku) AS sku, d.sold_qty, d.sold_fen, d.returned_qty, d.returned_fen,
           e.sold_qty AS entries_sold_qty, e.sold_fen AS entries_sold_fen,
           e.returned_qty AS entries_returned_qty, e.returned_fen AS entries_returned_fen
    FROM sales_day d
    FULL JOIN (
        SELECT merchant_id, on_date, sku,
               coalesce(sum(qty) FILTER (WHERE kind = 'sale'), 0) AS sold_qty,
               coalesce(sum(amount_fen) FILTER (WHERE kind = 'sale'), 0) AS sold_fen,
               coalesce(sum(qty) FILTER (WHERE kind = 'return'), 0) AS returned_qty,
               coalesce(sum(amount_fen) FILTER (WHERE kind = 'return'), 0) AS returned_fen
        FROM sales_entry GROUP BY merchant_id, on_date, sku
    ) e ON (e.merchant_id, e.on_date, e.sku) = (d.merchant_id, d.on_date, d.sku)
    WHERE (d.sold_qty, d.sold_fen, d.returned_qty, d.returned_fen)
          IS DISTINCT FROM (e.sold_qty, e.sold_fen, e.returned_qty, e.returned_fen)
"""

MATURED_WHILE_HELD = """
    SELECT c.merchant_id, c.order_no, c.line_no, h.after_sales_no, c.matured_at, h.created_at AS held_at
    FROM commission_hold h JOIN commission c ON c.id = h.commission_id
    WHERE c.matured_at >= h.created_at AND (h.ended_at IS NULL OR c.matured_at < h.ended_at)
"""


def stock_that_differs() -> list[dict[str, Any]]:
    """Stock items whose balances are not the sums of their entries."""
    return _rows(STOCK_BALANCES)


def journal_that_differs() -> list[dict[str, Any]]:
    """Journal entries that do not balance (the database refuses them; this proves that it did)."""
    return _rows(JOURNAL_BALANCE)


def points_that_differ() -> list[dict[str, Any]]:
    """Points accounts whose balance is not the sum of their entries."""
    return _rows(POINTS_BALANCES)


def wallets_that_differ() -> list[dict[str, Any]]:
    """Wallets whose balance is not the sum of their entries."""
    return _rows(WALLET_BALANCES)


def wallet_payments_that_differ() -> list[dict[str, Any]]:
    """Payments by balance and wallet entries that do not know each other, ten minutes after."""
    return [*_rows(WALLET_PAYMENTS), *_rows(WALLET_REFUNDS)]


def commission_that_differs() -> list[dict[str, Any]]:
    """Commission accounts whose buckets are not the sums of their entries, or do not hold together what their
    commissions are worth after refunds."""
    return _rows(COMMISSION_BALANCES)


def sales_that_differ() -> list[dict[str, Any]]:
    """Days whose figures are not the sums of their entries."""
    return _rows(SALES_DAYS)


def commission_matured_while_held() -> list[dict[str, Any]]:
    """Commissions that became withdrawable although a claim was open."""
    return _rows(MATURED_WHILE_HELD)


def _rows(sql: str) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        names = [column.name for column in cursor.description or []]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
