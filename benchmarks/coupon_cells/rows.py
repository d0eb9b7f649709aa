"""Rows for the benchmark: made set-based, complete (ledger, leases, keys), so that every invariant holds of them.

Coupon number k has an id, a user, a lease and a token that follow from k, in Python and in SQL alike, so that
pgbench and our commands can address the same rows without looking anything up.
"""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from django.db import connection

from coupons.commands.create_policy import create_policy, publish_policy
from coupons.commands.create_template import create_template
from coupons.commands.issue_coupon import SNAPSHOT
from coupons.models import CouponTemplate, ReturnPolicy
from kernel.statemachine import literal
from merchants.models import Merchant

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TAIL = bytes(range(32))
MERCHANT: dict[str, UUID] = {}
TABLES = ("user_coupon", "coupon_operation", "coupon_lock", "coupon_redemption", "idempotency_key")


def coupon_id(number: int) -> UUID:
    return UUID(f"00000000-0000-7000-8000-{number:012x}")


def lock_id(number: int) -> UUID:
    return UUID(f"00000000-0000-7000-a000-{number:012x}")


def token(number: int) -> str:
    return base64.urlsafe_b64encode(lock_id(number).bytes + TAIL).decode()


def token_hash(number: int) -> bytes:
    return hashlib.sha256(token(number).encode()).digest()


def sql_id(kind: str, number: str = ":k") -> str:
    """The same ids in SQL; `kind` is the digit that tells coupon (8), operation (9) and lease (a) apart."""
    return f"('00000000-0000-7000-{kind}000-' || lpad(to_hex({number}::int), 12, '0'))::uuid"


def sql_hash(number: str = ":k") -> str:
    raw = f"decode('0000000000007000a000' || lpad(to_hex({number}::int), 12, '0') || '{TAIL.hex()}', 'hex')"
    return f"sha256(convert_to(translate(encode({raw}, 'base64'), E'+/\\n', '-_'), 'UTF8'))"


@dataclass(frozen=True)
class Wanted:
    """So many free coupons (numbers from 1), then so many held by orders (numbers after them).

    `wallet`: so many of the free ones belong to one user, `wallet`. `issue_keys`: the idempotency keys under which
    they were issued are still there.
    """

    free: int
    held: int
    wallet: int = 0
    issue_keys: bool = True


def make_merchant() -> UUID:
    """The one shop, with the same id in every database."""
    MERCHANT["id"] = UUID("00000000-0000-7000-8000-ffffffffffff")
    Merchant.objects.create(id=MERCHANT["id"], code="bench", name="Bench", created_at=NOW)
    return MERCHANT["id"]


def fill(wanted: Wanted) -> None:
    """A shop with its coupons, in the database that Django is connected to."""
    merchant = make_merchant()
    policy = create_policy(merchant_id=merchant, code="standard", rules={}, now=NOW)
    publish_policy(merchant_id=merchant, policy_id=policy.policy_id, now=NOW)
    template = create_template(
        merchant_id=merchant,
        code="off50",
        name="50 off from 300",
        kind="THRESHOLD",
        threshold_fen=30000,
        off_fen=5000,
        valid_days=3650,
        policy_code="standard",
        now=NOW,
    )
    with without_keys(), connection.cursor() as cursor:
        cursor.execute(_coupons(wanted, merchant, template.template_id, policy.policy_id))
        for statement in _ledger(wanted, merchant):
            cursor.execute(statement)


def _coupons(wanted: Wanted, merchant: UUID, template_id: UUID, policy_id: UUID) -> str:
    template = CouponTemplate.objects.get(pk=template_id)
    policy = ReturnPolicy.objects.get(pk=policy_id)
    snapshot = literal(json.dumps({name: getattr(template, name) for name in SNAPSHOT}))
    rules = literal(json.dumps({"code": policy.code, "version": policy.version, "rules": policy.rules}))
    held = f"k > {wanted.free}"
    return f"""
        INSERT INTO user_coupon (id, merchant_id, user_id, template_id, template_snapshot, policy_id, policy_snapshot,
            valid_from, valid_until, created_at, updated_at, status, state_version, locked_order_no, lock_id,
            lock_token_hash, lease_expires_at)
        SELECT {sql_id("8", "k")}, '{merchant}',
            CASE WHEN k > {wanted.free - wanted.wallet} AND k <= {wanted.free} THEN 'wallet' ELSE 'u' || k END,
            '{template_id}', {snapshot}::jsonb, '{policy_id}',
            {rules}::jsonb, '{NOW}', timestamptz '{NOW}' + interval '10 years', '{NOW}', '{NOW}',
            CASE WHEN {held} THEN 'LOCKED' ELSE 'AVAILABLE' END, CASE WHEN {held} THEN 2 ELSE 1 END,
            CASE WHEN {held} THEN 'O' || k END, CASE WHEN {held} THEN {sql_id("a", "k")} END,
            CASE WHEN {held} THEN {sql_hash("k")} END,
            CASE WHEN {held} THEN timestamptz '{NOW}' + interval '5 minutes' END
        FROM generate_series(1, {wanted.free + wanted.held}) k"""


def _ledger(wanted: Wanted, merchant: UUID) -> list[str]:
    everybody = f"generate_series(1, {wanted.free + wanted.held}) k"
    held = f"generate_series({wanted.free + 1}, {wanted.free + wanted.held}) k"
    keyed = everybody if wanted.issue_keys else "generate_series(1, 0) k"
    columns = """(id, merchant_id, coupon_id, command, from_version, from_status, to_version, to_status, order_no,
        lock_id, lease_expires_at, actor, reason, business_key, at)"""
    keys = "(id, merchant_id, key, request_hash, result, created_at)"
    return [
        f"""INSERT INTO coupon_operation {columns} SELECT {sql_id("9", "k")}, '{merchant}', {sql_id("8", "k")}, 'ISSUE',
            NULL, NULL, 1, 'AVAILABLE', '', NULL, NULL, 'bench', '', 'issue:' || k, '{NOW}' FROM {everybody}""",
        f"""INSERT INTO idempotency_key {keys}
            SELECT {sql_id("b", "k")}, '{merchant}', 'issue:' || k, '', '{{}}', '{NOW}' FROM {keyed}""",
        f"""INSERT INTO coupon_operation {columns} SELECT {sql_id("c", "k")}, '{merchant}', {sql_id("8", "k")}, 'LOCK',
            1, 'AVAILABLE', 2, 'LOCKED', 'O' || k, {sql_id("a", "k")}, timestamptz '{NOW}' + interval '5 minutes',
            'bench', '', 'lock:' || k, '{NOW}' FROM {held}""",
        f"""INSERT INTO coupon_lock (id, merchant_id, coupon_id, order_no, acquired_version, token_hash, key_version,
                locked_at, expires_at)
            SELECT {sql_id("a", "k")}, '{merchant}', {sql_id("8", "k")}, 'O' || k, 2, {sql_hash("k")}, 1, '{NOW}',
            timestamptz '{NOW}' + interval '5 minutes' FROM {held}""",
        f"""INSERT INTO idempotency_key {keys}
            SELECT {sql_id("d", "k")}, '{merchant}', 'lock:' || k, '', '{{}}', '{NOW}' FROM {held}""",
    ]


@contextmanager
def without_keys() -> Iterator[None]:
    """Take foreign keys and secondary indexes off for a bulk load and put them back afterwards.

    The foreign keys come back unvalidated: they bind every new row alike, and the rows loaded are right by
    construction (verify_coupons looks at a million of them).
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT format('ALTER TABLE %%s DROP CONSTRAINT %%I', conrelid::regclass, conname),"
            " format('ALTER TABLE %%s ADD CONSTRAINT %%I %%s%%s', conrelid::regclass, conname,"
            " pg_get_constraintdef(oid), CASE WHEN contype = 'f' AND convalidated THEN ' NOT VALID' END)"
            " FROM pg_constraint WHERE contype IN ('f', 'u') AND conrelid = ANY(%s::regclass[])"
            " ORDER BY contype",
            [list(TABLES)],
        )
        taken = cursor.fetchall()
        cursor.execute(
            "SELECT format('DROP INDEX %%s', indexrelid::regclass), pg_get_indexdef(indexrelid) FROM pg_index"
            " WHERE NOT indisprimary AND indrelid = ANY(%s::regclass[])"
            " AND indexrelid NOT IN (SELECT conindid FROM pg_constraint)",
            [list(TABLES)],
        )
        taken += cursor.fetchall()
        for drop, _add in taken:
            cursor.execute(drop)
        yield
        for table in TABLES:
            cursor.execute(f"ANALYZE {table}")  # or the checking of the keys is planned as if the tables were empty
        for setting in ("maintenance_work_mem = '512MB'", "work_mem = '512MB'"):
            cursor.execute(f"SET {setting}")
        for _drop, add in reversed(taken):  # what a foreign key points at comes before it
            cursor.execute(add)
        for setting in ("maintenance_work_mem", "work_mem"):
            cursor.execute(f"RESET {setting}")


def take_guarantees_off() -> None:
    """Drop what the database keeps of coupons by itself (checks, chain, composite keys, triggers), to see its price."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conrelid::regclass::text, conname FROM pg_constraint WHERE contype IN ('f', 'c')"
            " AND conrelid = ANY(%s::regclass[])",
            [list(TABLES)],
        )
        for table, name in cursor.fetchall():
            cursor.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')
        cursor.execute(
            "SELECT tgrelid::regclass::text, tgname FROM pg_trigger WHERE NOT tgisinternal"
            " AND tgrelid = ANY(%s::regclass[])",
            [list(TABLES)],
        )
        for table, name in cursor.fetchall():
            cursor.execute(f'DROP TRIGGER "{name}" ON {table}')
        cursor.execute("ALTER TABLE coupon_operation DROP CONSTRAINT ledger_version_and_status")
