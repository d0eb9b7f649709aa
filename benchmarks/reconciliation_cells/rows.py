"""A million honest orders for reconciliation to read: one real sale, told by the commands, then copied by SQL.

A copy takes every column of the real row and changes what has to be its own (ids, numbers, days). Keys between the
copied tables are dropped in this database only, and triggers are off while it is filled: nothing is written here
later.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from django.db import connection, transaction

from demo.catalogue import NUTS, user_id
from demo.commands.found_shop import found_shop
from demo.shop import Shop, day_at
from payments.commands.save_account import save_account

DAY = date(2026, 11, 27)
TABLES = (
    "user_coupon", "coupon_operation", "coupon_redemption", "orders", "order_status_log", "payment", "journal_entry",
    "journal_line", "refund_request", "refund_attempt", "after_sales_order", "after_sales_log", "after_sales_rollback",
    "channel_bill", "bill_line",
)  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """`paid_on_day` payments and `refunded_on_day` refunds stand in the day's bills; the rest is older."""

    orders: int = 1_000_000
    paid_on_day: int = 60_000
    refunded_on_day: int = 40_000


def own(prefix: str) -> str:
    """An id of copy number g's own."""
    return f"md5('{prefix}' || g)::uuid"


def number(prefix: str) -> str:
    return f"'{prefix}' || lpad(g::text, 12, '0')"


def fill(wanted: Wanted) -> None:
    """The real sale, then its copies, then the bills of the day."""
    _tell()
    with transaction.atomic(), connection.cursor() as cursor:
        _loosen(cursor)
        indexes = _take_indexes(cursor)
        _copy_sales(cursor, wanted)
        _copy_refunds(cursor, wanted)
        _write_bills(cursor, wanted)
        cursor.execute("SET LOCAL maintenance_work_mem = '256MB'")
        for statement in indexes:
            cursor.execute(statement)
        for table in TABLES:
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def _tell() -> None:
    """One sale with a coupon, of which the tea was refunded: everything a day can hold."""
    began = day_at(DAY, 8) - timedelta(days=9)
    merchant_id = found_shop(front=NUTS, now=began).merchant_id
    save_account(
        merchant_id=merchant_id, channel="wechat", mchid="1900000109", app_id="wx0000000000000009", settings={},
        secret_values={}, now=began,
    )  # fmt: skip
    shop = Shop(merchant_id=merchant_id, code="yunwu")
    coupon = shop.give_coupon(user_id("lin"), "TEA-300-50", now=day_at(DAY, 9))
    lines = [NUTS.goods["nut"].line(), NUTS.goods["tea"].line()]
    order = shop.buy(user_id("lin"), lines, coupon_id=coupon, freight_fen=1000, now=day_at(DAY, 10))
    claim = shop.claim(order, line_no=2, type=1, reason="changed_mind", now=day_at(DAY, 14))
    shop.refund(shop.approve(claim, now=day_at(DAY, 14, 10)), now=day_at(DAY, 14, 20))


def _loosen(cursor: Any) -> None:
    cursor.execute(
        "SELECT conrelid::regclass::text, conname FROM pg_constraint"
        " WHERE contype = 'f' AND (conrelid::regclass::text = ANY(%s) OR confrelid::regclass::text = ANY(%s))",
        [list(TABLES), list(TABLES)],
    )
    for table, name in cursor.fetchall():
        cursor.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')
    for table in TABLES:
        cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")


def _take_indexes(cursor: Any) -> list[str]:
    """Drop every index of the copied tables; what is returned builds them again, over the rows that are there then.

    One by one, a million keys in no order fill an index many times slower.
    """
    cursor.execute(
        "SELECT i.indrelid::regclass::text, i.indexrelid::regclass::text, c.conname, pg_get_constraintdef(c.oid),"
        " pg_get_indexdef(i.indexrelid) FROM pg_index i"
        " LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.contype IN ('p', 'u', 'x')"
        " WHERE i.indrelid::regclass::text = ANY(%s)",
        [list(TABLES)],
    )
    builds = []
    for table, index, constraint, constraint_text, index_text in cursor.fetchall():
        if constraint:
            cursor.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{constraint}"')
            builds.append(f'ALTER TABLE {table} ADD CONSTRAINT "{constraint}" {constraint_text}')
        else:
            cursor.execute(f"DROP INDEX {index}")
            builds.append(index_text)
    return builds


def _copy(cursor: Any, table: str, numbers: str, *, where: str = "TRUE", **changes: str) -> None:
    """INSERT the rows that `where` names (as t), once per g of `numbers`, with `changes` (column → SQL of t and g)."""
    cursor.execute(
        "SELECT a.attname, pg_get_serial_sequence(a.attrelid::regclass::text, a.attname) IS NOT NULL"
        " FROM pg_attribute a WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped",
        [table],
    )
    columns = [name for name, is_serial in cursor.fetchall() if not is_serial]
    values = ", ".join(changes.get(name, f't."{name}"') for name in columns)
    names = ", ".join(f'"{name}"' for name in columns)
    cursor.execute(
        f"INSERT INTO {table} ({names}) SELECT {values}"
        f" FROM (SELECT * FROM {table} WHERE {where}) t CROSS JOIN ({numbers}) AS s(g)"
    )


def _copy_sales(cursor: Any, wanted: Wanted) -> None:
    everything = f"SELECT generate_series(1, {wanted.orders})"
    refunded = f"g BETWEEN {wanted.paid_on_day + 1} AND {wanted.paid_on_day + wanted.refunded_on_day}"
    paid_at = f"CASE WHEN g <= {wanted.paid_on_day} THEN t.paid_at ELSE t.paid_at - (1 + g % 25) * interval '1 day' END"
    _copy(cursor, "user_coupon", everything, id=own("coupon"), user_id=number("u"))
    _copy(
        cursor, "coupon_operation", everything, id="md5('op' || g || ':' || t.to_version)::uuid",
        coupon_id=own("coupon"), order_no=f"CASE t.order_no WHEN '' THEN '' ELSE {number('QX')} END",
        redemption_id=f"CASE WHEN t.redemption_id IS NULL THEN NULL ELSE {own('redemption')} END",
    )  # fmt: skip
    _copy(cursor, "coupon_redemption", everything, id=own("redemption"), coupon_id=own("coupon"), order_no=number("QX"))
    _copy(
        cursor, "orders", everything, id=own("order"), order_no=number("QX"), user_id=number("u"),
        quote_id=own("quote"), order_token_hash="decode(md5('a' || g) || md5('b' || g), 'hex')",
        coupon_id=own("coupon"), trade_no=number("42X"), out_trade_no=number("PX"), fingerprint="md5('f' || g)",
    )  # fmt: skip
    _copy(cursor, "order_status_log", everything, order_id=own("order"))
    _copy(
        cursor, "payment", everything, id=own("payment"), order_no=number("QX"), out_trade_no=number("PX"),
        trade_no=number("42X"), paid_at=paid_at,
        refund_committed_fen=f"CASE WHEN {refunded} THEN t.refund_committed_fen ELSE 0 END",
        refunded_fen=f"CASE WHEN {refunded} THEN t.refunded_fen ELSE 0 END",
    )  # fmt: skip
    today = f"SELECT generate_series(1, {wanted.paid_on_day})"
    _copy(
        cursor, "journal_entry", today, where="kind = 'payment'", id=own("booked"),
        business_key=f"'payment:' || {own('payment')}", reference=number("PX"), order_no=number("QX"),
    )  # fmt: skip
    booked = "entry_id IN (SELECT id FROM journal_entry WHERE kind = 'payment' AND reference LIKE 'Q%P_')"
    _copy(cursor, "journal_line", today, where=booked, entry_id=own("booked"))


def _copy_refunds(cursor: Any, wanted: Wanted) -> None:
    first = wanted.paid_on_day + 1
    today = f"SELECT generate_series({first}, {wanted.paid_on_day + wanted.refunded_on_day})"
    _copy(
        cursor, "after_sales_order", today, id=own("claim"), after_sales_no=number("ASX"), order_id=own("order"),
        order_no=number("QX"), user_id=number("u"), batch_id=own("batch"),
    )  # fmt: skip
    _copy(cursor, "after_sales_log", today, after_sales_id=own("claim"))
    _copy(
        cursor, "after_sales_rollback", today, id="md5('rb' || g || t.system)::uuid", after_sales_id=own("claim"),
        event_id="md5('ev' || g || t.system)::uuid",
    )  # fmt: skip
    _copy(
        cursor, "refund_request", today, id=own("request"), payment_id=own("payment"), order_no=number("QX"),
        owner_no=number("ASX"), refund_no=f"{number('ASX')} || '-0'",
    )  # fmt: skip
    _copy(
        cursor, "refund_attempt", today, id=own("attempt"), request_id=own("request"), payment_id=own("payment"),
        number=f"{number('ASX')} || '-0'",
    )  # fmt: skip
    _copy(
        cursor, "journal_entry", today, where="kind = 'refund'", id=own("rebooked"),
        business_key=f"'refund:' || {own('request')}", reference=f"{number('ASX')} || '-0'", order_no=number("QX"),
    )  # fmt: skip
    booked = "entry_id IN (SELECT id FROM journal_entry WHERE kind = 'refund' AND reference NOT LIKE 'ASX%')"
    _copy(cursor, "journal_line", today, where=booked, entry_id=own("rebooked"))


def _write_bills(cursor: Any, wanted: Wanted) -> None:
    """The day's three bills: 100,000 trades and refunds that say what the books say, and as many movements."""
    for kind in ("trade", "refund", "fundflow"):
        cursor.execute(
            "INSERT INTO channel_bill (id, merchant_id, account_id, channel, kind, bill_on, state, sha1, raw, raw_size,"
            " row_count, amount_fen, tries, last_error, downloaded_at, created_at)"
            " SELECT md5(%(kind)s::text)::uuid, merchant_id, id, channel, %(kind)s, %(day)s, 'PARSED',"
            " repeat('0', 40), '', 0, 0, 0, 1, '', now(), now() FROM channel_account WHERE channel = 'wechat'",
            {"kind": kind, "day": DAY},
        )
    bill_line = (
        "INSERT INTO bill_line (bill_id, merchant_id, channel, row_no, kind, occurred_at, out_trade_no, trade_no,"
        " refund_no, refund_id, amount_fen, trade_state, refund_state, reference) "
    )
    cursor.execute(
        bill_line + "SELECT md5('trade')::uuid, merchant_id, channel, row_number() OVER (), 'payment', paid_at,"
        " out_trade_no, trade_no, '', '', amount_fen, 'SUCCESS', '', '' FROM payment"
        " WHERE (paid_at AT TIME ZONE 'Asia/Shanghai')::date = %s",
        [DAY],
    )
    cursor.execute(
        bill_line + "SELECT md5('refund')::uuid, a.merchant_id, p.channel, row_number() OVER (), 'refund',"
        " a.created_at, p.out_trade_no, p.trade_no, a.number, a.channel_refund_id, a.amount_fen, '', 'SUCCESS', ''"
        " FROM refund_attempt a JOIN payment p ON p.id = a.payment_id"
    )
    cursor.execute(
        "INSERT INTO bill_line (bill_id, merchant_id, channel, row_no, kind, occurred_at, out_trade_no, trade_no,"
        " refund_no, refund_id, amount_fen, trade_state, refund_state, reference, is_income, balance_fen)"
        " SELECT md5('fundflow')::uuid, merchant_id, channel, row_number() OVER (ORDER BY id), 'flow', occurred_at, '',"
        " CASE kind WHEN 'payment' THEN trade_no ELSE refund_id END, '', '', amount_fen,"
        " CASE kind WHEN 'payment' THEN '交易' ELSE '退款' END, '',"
        " CASE kind WHEN 'payment' THEN out_trade_no ELSE refund_no END, kind = 'payment', 1000000 + sum("
        " CASE kind WHEN 'payment' THEN amount_fen ELSE -amount_fen END) OVER (ORDER BY id) FROM bill_line"
    )
