"""After-sales: approving a refund against the same transaction in plain SQL, and how fast amounts are calculated."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from statistics import median
from uuid import UUID

from django.db import connection, transaction

from benchmarks.harness import Bench, Cell, Figures, Pgbench, Work

CLAIMS = 12_500
STRIDE = 1_500
CLIENTS = (2, 4, 8)
APPROVALS = 1_200
WARM = 20
NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOODS, FREIGHT = 16667, 500
MERCHANT: dict[str, UUID] = {}


def run(*, figures: Figures, rounds: int) -> None:
    """Every figure of after-sales."""
    for _round in range(rounds):
        figures.add("aftersales_calculations_per_second", calculations_per_second())
    with Bench("aftersales", fill, after=check) as bench:
        for number in range(rounds):
            print(f"  round {number + 1}", flush=True)
            rates = bench.round(cells())
            ratios = [rates[f"approve/{clients}"] / rates[f"approve plain/{clients}"] for clients in CLIENTS]
            figures.add("aftersales_approve_vs_plain", median(ratios))
            for clients, ratio in zip(CLIENTS, ratios, strict=True):
                figures.add(f"aftersales_approve_vs_plain_{clients}", ratio)


def cells() -> list[Cell]:
    found = []
    for clients in CLIENTS:
        each = APPROVALS // clients * 2
        found.append(Cell(f"approve/{clients}", clients, each, Work(approve, warm_up=WARM)))
        found.append(Cell(f"approve plain/{clients}", clients, each, Pgbench(lambda _clients: plain())))
    return found


def calculations_per_second() -> float:
    """Entitlements of a whole order of 20 lines with 3 units each, freight and earlier price protection included."""
    from aftersales.amounts import FrozenLine, goods_entitlement
    from orders.allocation import Discounts, PricedLine, allocate

    made = allocate(
        lines=[PricedLine(line_no=n, unit_price_fen=997 * n + 1, qty=3) for n in range(1, 21)],
        discounts=Discounts(coupon_fen=5_000, points_fen=333, points_used=333),
        freight_fen=1_200,
    )
    lines = [
        FrozenLine(line_no=each.line_no, qty=3, net_fen=each.net_fen, freight_share_fen=each.freight_share_fen)
        for each in made.lines
    ]
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < 1:
        for line in lines:
            goods_entitlement(line=line, ordinals=(1, 2, 3), freight_refundable=True, earlier_fen={2: 5})
        count += 1
    return count / (time.perf_counter() - began)


# --- rows -------------------------------------------------------------------------------------------------------


def sql_id(kind: str, number: str = ":k") -> str:
    """The id of a row of claim number k; `kind` is the digit that tells the tables apart."""
    return f"('00000000-0000-7000-{kind}000-' || lpad(to_hex({number}::int), 12, '0'))::uuid"


def python_id(kind: str, number: int) -> UUID:
    return UUID(f"00000000-0000-7000-{kind}000-{number:012x}")


def fill() -> None:
    """One claim made by the real commands, cloned with everything it stands on."""
    from tests.aftersales.build import nut_and_tea

    paid = nut_and_tea(NOW)
    paid.apply(2, reason="changed_mind")
    MERCHANT["id"] = paid.merchant.pk
    order, quote = sql_id("8", "k"), sql_id("9", "k")
    line, payment, claim = sql_id("a", "k"), sql_id("b", "k"), sql_id("c", "k")
    numbers = "'order_no', 'B' || k"
    with transaction.atomic():
        clone("quote", "true", f"'id', {quote}, {numbers}, 'fingerprint', k::text")
        clone(
            "orders",
            "true",
            f"'id', {order}, {numbers}, 'quote_id', {quote}, 'fingerprint', k::text, 'trade_no', 'T' || k,"
            " 'order_token_hash', '\\x' || encode(sha256(convert_to(k::text, 'UTF8')), 'hex')",
        )
        clone("order_status_log", "true", f"'id', nextval('order_status_log_id_seq'), 'order_id', {order}")
        clone("order_line", "o.line_no = 2", f"'id', {line}, 'order_id', {order}")
        clone(
            "payment",
            "true",
            f"'id', {payment}, {numbers}, 'out_trade_no', 'B' || k || 'P1', 'trade_no', 'T' || k",
        )
        clone(
            "after_sales_order",
            "true",
            f"'id', {claim}, {numbers}, 'after_sales_no', 'C' || lpad(k::text, 8, '0'), 'order_id', {order},"
            f" 'line_id', {line}",
        )
        clone("after_sales_log", "true", f"'id', nextval('after_sales_log_id_seq'), 'after_sales_id', {claim}")
        clone("after_sales_unit", "true", f"'id', {sql_id('d', 'k')}, 'after_sales_id', {claim}, 'line_id', {line}")


def clone(table: str, where: str, changes: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} SELECT r.* FROM {table} o, generate_series(1, {CLAIMS}) k,"
            f" jsonb_populate_record(o, jsonb_build_object({changes})) r WHERE {where}"
        )


# --- cells ------------------------------------------------------------------------------------------------------


def approve(client: int, clients: int) -> Callable[[int], object]:
    """approve_after_sales as the back office calls it: refund only, what the rules give."""
    from aftersales.actors import By
    from aftersales.commands.approve_after_sales import approve_after_sales
    from kernel.idempotency import BusinessKey

    merchant, by = MERCHANT["id"], By("merchant", "bench")

    def operation(index: int) -> object:
        number = client * STRIDE + WARM + 1 + index
        return approve_after_sales(
            merchant_id=merchant,
            after_sales_no=f"C{number:08d}",
            expected_version=1,
            by=by,
            key=BusinessKey(merchant, f"bench:{number}", "a" * 64),
            now=NOW,
        )

    return operation


def plain() -> str:
    """The same writes as separate prepared statements."""
    merchant, total = MERCHANT["id"], GOODS + FREIGHT
    claim, line, payment = sql_id("c"), sql_id("a"), sql_id("b")
    number = "'C' || lpad((:k)::text, 8, '0')"
    request, attempt = sql_id("e"), sql_id("f")
    event = (
        "INSERT INTO outbox_event (id, name, version, merchant_id, subject, payload, created_at, state, attempts,"
        " available_at, last_error) VALUES (gen_random_uuid(), '{name}', 1, '{merchant}', " + number + ","
        " {payload}, now(), 'PENDING', 0, now(), '');"
    )
    approved = event.format(
        name="after_sales.approved",
        merchant=merchant,
        payload=f"jsonb_build_object('after_sales_no', {number}, 'order_no', 'B' || :k, 'type', 1,"
        " 'status', 'REFUNDING', 'version', 2)",
    )
    requested = event.format(
        name="refund.requested",
        merchant=merchant,
        payload=f"jsonb_build_object('refund_request_id', {request}, 'attempt_id', {attempt})",
    )
    statements = f"""
        BEGIN;
        UPDATE order_line SET goods_committed_fen = goods_committed_fen + {GOODS},
            freight_committed_fen = freight_committed_fen + {FREIGHT}
            WHERE id = {line} AND goods_committed_fen + {GOODS} <= net_fen
            AND freight_committed_fen + {FREIGHT} <= freight_share_fen AND NOT shipped_ordinals && ARRAY[1];
        UPDATE after_sales_order SET status = 'REFUNDING', version = version + 1, updated_at = now(), due_at = NULL,
            approved_goods_fen = {GOODS}, approved_freight_fen = {FREIGHT}, accepted_qty = 1, liability = 'buyer',
            decided_at = now(), refunding_at = now()
            WHERE id = {claim} AND status = 'WAIT_AUDIT' AND version = 1 AND merchant_id = '{merchant}'
            AND type IN (1, 5) AND NOT is_disputed;
        INSERT INTO after_sales_log (after_sales_id, type, command, from_version, from_status, to_version, to_status,
            actor_kind, actor_id, reason, evidence, created_at) VALUES ({claim}, 1, 'approve_refund', 1, 'WAIT_AUDIT',
            2, 'REFUNDING', 'merchant', 'bench', '', jsonb_build_object('goods_fen', {GOODS}, 'freight_fen', {FREIGHT},
            'liability', 'buyer'), now());
        {approved}
        INSERT INTO idempotency_key (id, merchant_id, key, request_hash, result, created_at) VALUES
            (gen_random_uuid(), '{merchant}', 'plain:' || :k, repeat('a', 64), jsonb_build_object('after_sales_no',
            {number}, 'status', 'REFUNDING', 'version', 2, 'goods_fen', {GOODS}, 'freight_fen', {FREIGHT}), now());
        UPDATE payment SET refund_committed_fen = refund_committed_fen + {total}, refund_count = refund_count + 1,
            version = version + 1 WHERE id = {payment} AND refund_committed_fen + {total} <= amount_fen;
        INSERT INTO refund_request (id, merchant_id, payment_id, order_no, owner_kind, owner_no, amount_fen, reason,
            route, route_reason, status, version, attempts, failure_code, refund_no, voucher, voucher_by, approved_by,
            created_at) VALUES ({request}, '{merchant}', {payment}, 'B' || :k, 'after_sales', {number}, {total},
            'changed_mind', 'channel', '', 'PENDING', 1, 1, '', '', '', '', '', now());
        INSERT INTO refund_attempt (id, merchant_id, request_id, payment_id, seq, number, amount_fen, status, version,
            channel_refund_id, sends, unanswered_sends, queries, resend, next_action_at, last_error, created_at)
            VALUES ({attempt}, '{merchant}', {request}, {payment}, 0, {number} || '-0', {total}, 'CREATED', 1, '', 0,
            0, 0, false, now(), '', now());
        {requested}
        COMMIT;
    """
    lines = [" ".join(text.split()) for text in statements.split(";")]
    script = "\n".join(f"{text};" for text in lines if text)
    return f"\\set n :n + 1\n\\set k {WARM + 1} + :client_id * {STRIDE} + :n\n{script}\n"


def check(cell: str) -> None:
    """What a cell left adds up: claims, their log, the money committed on lines and payments."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), count(*) FILTER (WHERE l.id IS NULL OR r.id IS NULL OR ol.goods_committed_fen <> %s)"
            " FROM after_sales_order a JOIN order_line ol ON ol.id = a.line_id"
            " LEFT JOIN after_sales_log l ON l.after_sales_id = a.id AND l.to_version = a.version"
            " LEFT JOIN refund_request r ON r.owner_no = a.after_sales_no AND r.amount_fen = %s"
            " WHERE a.status = 'REFUNDING'",
            [GOODS, GOODS + FREIGHT],
        )
        approved, broken = cursor.fetchone()
    if broken or approved < 100:
        raise RuntimeError(f"{cell}: {approved} approved, {broken} of them do not add up")
