"""The same commands in plain SQL: as separate statements, and as one."""

import re
from uuid import UUID

from benchmarks.coupon_cells.rows import sql_hash, sql_id
from coupons.commands.lock_coupon import LOCK
from coupons.commands.redeem_coupon import REDEEM
from coupons.commands.release_coupon import RELEASE
from kernel.statemachine import Edge

EACH = r"""\set n :n + 1
\set k {first} + :client_id * {stride} + :n
"""
EVENT = """INSERT INTO outbox_event (id, name, version, merchant_id, subject, payload, created_at, state, attempts,
    available_at, last_error) VALUES (gen_random_uuid(), '{name}', 1, '{merchant}', {coupon}::text,
    jsonb_build_object('coupon_id', {coupon}, 'order_no', 'O' || :k, 'state_version', {version}), now(), 'PENDING', 0,
    now(), '');
"""
KEY = """INSERT INTO idempotency_key (id, merchant_id, key, request_hash, result, created_at)
    VALUES (gen_random_uuid(), '{merchant}', '{name}:' || :k, repeat('a', 64),
    jsonb_build_object('coupon_id', {coupon}, 'order_no', 'O' || :k, 'status', '{status}', 'state_version', {version}),
    now());
"""


def flat(text: str) -> str:
    """One statement a line, as pgbench wants it."""
    lines = [line for line in text.splitlines() if line.startswith("\\")]
    rest = "\n".join(line for line in text.splitlines() if not line.startswith("\\"))
    statements = [re.sub(r"\s+", " ", statement).strip() for statement in rest.split(";")]
    return "\n".join([*lines, *(f"{statement};" for statement in statements if statement)]) + "\n"


def lock_plain(merchant: UUID, *, first: int, stride: int) -> str:
    """Lock as pgbench runs it with separate prepared statements."""
    coupon, lease, digest = sql_id("8"), sql_id("a"), sql_hash()
    values = {"merchant": merchant, "coupon": coupon, "version": 2}
    return flat(
        EACH.format(first=first, stride=stride)
        + f"""
        BEGIN;
        UPDATE user_coupon SET status = 'LOCKED', state_version = state_version + 1, locked_order_no = 'O' || :k,
            lock_id = {lease}, lock_token_hash = {digest}, lease_expires_at = now() + interval '5 minutes',
            updated_at = now()
            WHERE id = {coupon} AND status = 'AVAILABLE' AND merchant_id = '{merchant}' AND user_id = 'u' || :k
            AND valid_from <= now() AND valid_until > now();
        INSERT INTO coupon_lock (id, merchant_id, coupon_id, order_no, acquired_version, token_hash, key_version,
            locked_at, expires_at)
            VALUES ({lease}, '{merchant}', {coupon}, 'O' || :k, 2, {digest}, 1, now(), now() + interval '5 minutes');
        INSERT INTO coupon_operation (id, merchant_id, coupon_id, command, from_version, from_status, to_version,
            to_status, order_no, lock_id, lease_expires_at, actor, reason, business_key, at)
            VALUES (gen_random_uuid(), '{merchant}', {coupon}, 'LOCK', 1, 'AVAILABLE', 2, 'LOCKED', 'O' || :k, {lease},
            now() + interval '5 minutes', 'bench', '', 'plain:' || :k, now());
        """
        + KEY.format(name="plain", status="LOCKED", **values)
        + EVENT.format(name="coupon.locked", **values)
        + "COMMIT;"
    )


def redeem_plain(merchant: UUID, *, first: int, stride: int) -> str:
    """Redeem as pgbench runs it with separate prepared statements."""
    coupon, lease, digest, operation = sql_id("8"), sql_id("a"), sql_hash(), sql_id("e")
    values = {"merchant": merchant, "coupon": coupon, "version": 3}
    return flat(
        EACH.format(first=first, stride=stride)
        + f"""
        BEGIN;
        UPDATE user_coupon SET status = 'USED', state_version = state_version + 1, locked_order_no = NULL,
            lock_id = NULL, lock_token_hash = NULL, lease_expires_at = NULL, updated_at = now()
            WHERE id = {coupon} AND status = 'LOCKED' AND merchant_id = '{merchant}' AND locked_order_no = 'O' || :k
            AND lock_token_hash = {digest} AND state_version = 2;
        INSERT INTO coupon_redemption (id, merchant_id, coupon_id, order_no, payment_no, lock_id, redeemed_at)
            VALUES (gen_random_uuid(), '{merchant}', {coupon}, 'O' || :k, 'P' || :k, {lease}, now());
        INSERT INTO coupon_operation (id, merchant_id, coupon_id, command, from_version, from_status, to_version,
            to_status, order_no, lock_id, actor, reason, business_key, at)
            VALUES ({operation}, '{merchant}', {coupon}, 'REDEEM', 2, 'LOCKED', 3, 'USED', 'O' || :k, {lease}, 'bench',
            '', 'plain:' || :k, now());
        UPDATE coupon_lock SET ended_by_id = {operation} WHERE coupon_id = {coupon} AND ended_by_id IS NULL;
        """
        + KEY.format(name="plain", status="USED", **values)
        + EVENT.format(name="coupon.redeemed", **values)
        + "COMMIT;"
    )


def one_statement(edge: Edge, merchant: UUID, *, first: int, stride: int) -> str:
    """Our own compiled statement of an edge, run by pgbench."""
    values = {
        "pk": sql_id("8"),
        "key_merchant_id": f"'{merchant}'",
        "key": "'one:' || :k",
        "request_hash": "repeat('a', 64)",
        "user_id": "'u' || :k",
        "order_no": "'O' || :k",
        "payment_no": "'P' || :k",
        "lock_id": sql_id("a"),
        "token_hash": sql_hash(),
        "key_version": "'1'",
        "expires_at": "(now() + interval '5 minutes')",
        "expected_version": "'2'",
        "operation_id": sql_id("e"),
        "redemption_id": sql_id("f"),
        "actor": "'bench'",
        "reason": "''",
        "now": "now()",
    }
    text = edge.statement.text
    for name in edge.statement.made:
        values[name] = "gen_random_uuid()"
    text = re.sub(r"%\((\w+)\)s", lambda found: f"({values[found.group(1)]})", text).replace("%%", "%")
    return flat(EACH.format(first=first, stride=stride) + text + ";")


def lock_one(merchant: UUID, **where: int) -> str:
    return one_statement(LOCK, merchant, **where)


def redeem_one(merchant: UUID, **where: int) -> str:
    return one_statement(REDEEM, merchant, **where)


def release_one(merchant: UUID, **where: int) -> str:
    return one_statement(RELEASE, merchant, **where)
