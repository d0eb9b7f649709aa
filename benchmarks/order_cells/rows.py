"""Orders that wait for their payment, made set-based and complete, each holding its coupon's lease: order number k has
ids that follow from k, in Python and in SQL alike."""

from datetime import datetime
from uuid import UUID

from django.db import connection, transaction

from benchmarks.coupon_cells import rows as coupons
from benchmarks.coupon_cells.rows import MERCHANT, NOW, sql_id
from coupons import leases
from payments.commands.save_account import save_account

PAYABLE = 26_000
ORDER, QUOTE, PAYMENT, EVIDENCE, LINE = "1", "2", "3", "4", "5"
COLUMNS = "shipped_qty, shipped_ordinals, held_ordinals, refunded_ordinals, goods_committed_fen, freight_committed_fen"


def id_of(kind: str, number: int) -> UUID:
    return UUID(f"00000000-0000-7000-{kind}000-{number:012x}")


def fill(orders: int) -> None:
    """So many placed orders of one shop in the database that Django is connected to."""
    from benchmarks.order_cells.callbacks import account_row

    coupons.fill(coupons.Wanted(free=0, held=orders))
    merchant, row = MERCHANT["id"], account_row()
    account = save_account(
        merchant_id=merchant,
        channel="wechat",
        mchid=row["mchid"],
        app_id=row["app_id"],
        settings=row["settings"],
        secret_values=row["secrets"],
        now=NOW,
    ).account_id
    _give_real_tokens(orders)
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in _statements(orders, merchant, account):
            cursor.execute(statement)


def _give_real_tokens(orders: int) -> None:
    """The coordinator makes a lease's token again from the server's key, so the digests have to be of those tokens."""
    ids = [coupons.lock_id(number) for number in range(1, orders + 1)]
    digests = [leases.hash_token(leases.make_token(each, 1)) for each in ids]
    for table, key, column in (
        ("coupon_lock", "id", "token_hash"),
        ("user_coupon", "lock_id", "lock_token_hash"),
    ):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
            cursor.execute(
                f"UPDATE {table} SET {column} = m.digest FROM unnest(%s::uuid[], %s::bytea[]) AS m(id, digest)"
                f" WHERE {table}.{key} = m.id",
                [ids, digests],
            )
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def _statements(orders: int, merchant: UUID, account: UUID, now: datetime = NOW) -> list[str]:
    each = f"generate_series(1, {orders}) k"
    order, quote, payment, evidence = (sql_id(kind, "k") for kind in (ORDER, QUOTE, PAYMENT, EVIDENCE))
    coupon, lease = sql_id("8", "k"), sql_id("a", "k")
    line = f"""INSERT INTO order_line (id, merchant_id, order_id, line_no, sku, title, kind, attributes, unit_price_fen,
            qty, line_discount_fen, base_fen, coupon_share_fen, subsidy_share_fen, points_share_fen, points_used,
            net_fen, freight_share_fen, algorithm_version, {COLUMNS})"""
    rest = "0, '{}', '{}', '{}', 0, 0"
    return [
        f"""INSERT INTO quote (id, merchant_id, order_no, user_id, state, content, content_hash, fingerprint, breakdown,
            payable_fen, coupon_id, held_by_order_no, lock_id, coupon_version, lease_held, expires_at, created_at)
            SELECT {quote}, '{merchant}', 'O' || k, 'u' || k, 'ORDERED', '{{}}', md5('c' || k), md5('f' || k), '{{}}',
            {PAYABLE}, {coupon}, '', {lease}, 2, false, '{now}', '{now}' FROM {each}""",
        f"""INSERT INTO orders (id, merchant_id, order_no, user_id, quote_id, status, version, closed_reason, goods_fen,
            discount_fen, subsidy_fen, points_fen, points_used, freight_fen, payable_fen, pay_method, pay_expires_at,
            fingerprint, content_hash, address, terms_version, token_version, token_key_version, order_token_hash,
            coupon_id, coupon_state, fulfilment, trade_no, paid_channel, out_trade_no, next_check_at, check_tries,
            fulfil_tries, created_at)
            SELECT {order}, '{merchant}', 'O' || k, 'u' || k, {quote}, 0, 1, '', 30000, 5000, 0, 0, 0, 1000, {PAYABLE},
            'wechat', timestamptz '{now}' + interval '30 minutes', md5('f' || k), md5('c' || k), '{{}}', '1', 1, 1,
            sha256(convert_to('t' || k, 'UTF8')), {coupon}, 'leased', 'none', '', '', '',
            timestamptz '{now}' + interval '28 minutes', 0, 0, '{now}' FROM {each}""",
        f"""INSERT INTO order_status_log (order_id, command, to_status, to_version, actor_kind, actor, reason, evidence,
            at) SELECT {order}, 'create', 0, 1, 'user', 'u' || k, '', '{{}}', '{now}' FROM {each}""",
        f"""{line} SELECT {sql_id(LINE, "2 * k")}, '{merchant}', {order}, 1, 'NUT', 'Nut', 'physical', '{{}}', 10000, 1,
            0, 10000, 1667, 0, 0, 0, 8333, 500, 'largest-remainder-1', {rest} FROM {each}""",
        f"""{line} SELECT {sql_id(LINE, "2 * k + 1")}, '{merchant}', {order}, 2, 'TEA', 'Tea', 'physical', '{{}}',
            20000, 1, 0, 20000, 3333, 0, 0, 0, 16667, 500, 'largest-remainder-1', {rest} FROM {each}""",
        f"""INSERT INTO order_coupon (id, merchant_id, order_id, quote_id, coupon_id, lock_id, lock_token_hash,
            coupon_version, discount_fen, eligible_lines, lease_expires_at, created_at)
            SELECT {evidence}, '{merchant}', {order}, {quote}, {coupon}, {lease}, ''::bytea, 2, 5000, '{{1,2}}',
            timestamptz '{now}' + interval '30 minutes', '{now}' FROM {each}""",
        f"""INSERT INTO payment (id, merchant_id, account_id, order_no, out_trade_no, kind, channel, amount_fen, status,
            version, trade_no, payer_ref, prepay_id, client_params, prepay_started_at, expires_at, created_at,
            refund_committed_fen, refunded_fen, refund_count)
            SELECT {payment}, '{merchant}', '{account}', 'O' || k, 'O' || k || 'P1', 'order', 'wechat', {PAYABLE},
            'AWAITING', 3, '', 'payer', 'wx', '{{}}', '{now}', timestamptz '{now}' + interval '30 minutes', '{now}',
            0, 0, 0 FROM {each}""",
    ]
