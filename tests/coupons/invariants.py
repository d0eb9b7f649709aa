"""The seven invariants of the source, asserted over the tables: after every step, every sequence and every race."""

from collections.abc import Collection
from uuid import UUID

from django.db import connection

# {only …} becomes a condition on the coupon's id, or "true" for all coupons.
CHECKS = {
    "1. a coupon has at most one active lease, and exactly one when it is locked": """
        SELECT c.id::text FROM user_coupon c LEFT JOIN coupon_lock l ON l.coupon_id = c.id AND l.ended_by_id IS NULL
        WHERE {only c.id}
        GROUP BY c.id HAVING count(l.id) <> CASE WHEN c.status = 'LOCKED' THEN 1 ELSE 0 END""",
    "1b. the lease in force is the one that the coupon names": """
        SELECT c.id::text FROM user_coupon c JOIN coupon_lock l ON l.coupon_id = c.id AND l.ended_by_id IS NULL
        WHERE {only c.id} AND c.status = 'LOCKED' AND (l.id, l.order_no, l.token_hash, l.expires_at)
              IS DISTINCT FROM (c.lock_id, c.locked_order_no, c.lock_token_hash, c.lease_expires_at)""",
    "2. a coupon has at most one redemption in force, and exactly one when it is used": """
        SELECT c.id::text FROM user_coupon c
        LEFT JOIN coupon_redemption r ON r.coupon_id = c.id AND r.ended_by_id IS NULL
        WHERE {only c.id}
        GROUP BY c.id HAVING count(r.id) > 1 OR (c.status = 'USED') <> (count(r.id) = 1) AND c.status <> 'VOID'""",
    "3. a redemption was made under a lease of its own order": """
        SELECT r.coupon_id::text FROM coupon_redemption r LEFT JOIN coupon_lock l ON l.id = r.lock_id
        WHERE {only r.coupon_id} AND (l.id IS NULL OR l.coupon_id <> r.coupon_id OR l.order_no <> r.order_no)""",
    "4. every change raises the version by one: the ledger is a chain from 1 to the coupon's version": """
        SELECT c.id::text FROM user_coupon c LEFT JOIN coupon_operation o ON o.coupon_id = c.id
        WHERE {only c.id}
        GROUP BY c.id HAVING count(o.id) <> c.state_version OR min(o.to_version) <> 1
            OR max(o.to_version) <> c.state_version""",
    "5. every command that succeeded has one ledger row, and every ledger row one such command": """
        SELECT o.coupon_id::text FROM coupon_operation o
        LEFT JOIN idempotency_key k ON o.merchant_id = k.merchant_id AND o.business_key = k.key
        WHERE {only o.coupon_id} GROUP BY o.coupon_id, o.business_key
        HAVING count(*) <> 1 OR count(k.id) <> 1""",
    "5b. every ledger row has one event": """
        SELECT o.coupon_id::text FROM coupon_operation o
        LEFT JOIN outbox_event e ON e.subject = o.coupon_id::text AND e.name LIKE 'coupon.%%'
            AND (e.payload ->> 'state_version')::int = o.to_version
        WHERE {only o.coupon_id} GROUP BY o.id, o.coupon_id HAVING count(e.id) <> 1""",
    "6. a return names its redemption, a decision to return it, and that decision its policy": """
        SELECT o.coupon_id::text FROM coupon_operation o LEFT JOIN refund_coupon d ON d.id = o.decision_id
        WHERE {only o.coupon_id} AND o.command = 'RETURN' AND (d.id IS NULL OR d.decision <> 'RETURN'
            OR (d.redemption_id, d.coupon_id) IS DISTINCT FROM (o.redemption_id, o.coupon_id))""",
    "7. replaying the ledger gives the coupon": """
        SELECT c.id::text FROM user_coupon c
        LEFT JOIN coupon_operation o ON o.coupon_id = c.id AND o.to_version = c.state_version
        WHERE {only c.id} AND (c.status, c.locked_order_no, c.lock_id, c.lease_expires_at) IS DISTINCT FROM
              (o.to_status,
               CASE WHEN o.to_status = 'LOCKED' THEN o.order_no END,
               CASE WHEN o.to_status = 'LOCKED' THEN o.lock_id END,
               CASE WHEN o.to_status = 'LOCKED' THEN o.lease_expires_at END)""",
    "7b. each ledger row starts where the one before it ended": """
        SELECT o.coupon_id::text FROM coupon_operation o
        LEFT JOIN coupon_operation p ON p.coupon_id = o.coupon_id AND p.to_version = o.to_version - 1
        WHERE {only o.coupon_id} AND (o.from_version, o.from_status) IS DISTINCT FROM (p.to_version, p.to_status)""",
    "a command that succeeded is in the ledger": """
        SELECT k.result ->> 'coupon_id' FROM idempotency_key k
        LEFT JOIN coupon_operation o ON o.merchant_id = k.merchant_id AND o.business_key = k.key
        WHERE {everything} AND k.result ? 'state_version' AND k.result ? 'coupon_id' AND o.id IS NULL""",
}


def _statement(condition: str, everything: str) -> str:
    parts = []
    for name, query in CHECKS.items():
        text = query.replace("{everything}", everything)
        while "{only " in text:
            start = text.index("{only ")
            end = text.index("}", start)
            text = text[:start] + condition.format(column=text[start + 6 : end]) + text[end + 1 :]
        parts.append(f"SELECT '{name.replace(chr(39), chr(39) * 2)}' AS broken, found.* FROM ({text}) found(id)")
    return " UNION ALL ".join(parts)


ALL = _statement("true", "true")
SOME = _statement("{column} = ANY(%(ids)s::uuid[])", "false")


def broken_invariants(coupon_ids: Collection[UUID] | None = None) -> dict[str, list[str]]:
    """The invariants that do not hold, with the first coupons that break them; of all coupons, or of some."""
    found: dict[str, list[str]] = {}
    with connection.cursor() as cursor:
        if coupon_ids is None:
            cursor.execute(ALL)
        else:
            cursor.execute(SOME, {"ids": list(coupon_ids)})
        for name, coupon_id in cursor.fetchall():
            found.setdefault(name, []).append(coupon_id)
    return {name: ids[:5] for name, ids in found.items()}


def assert_invariants(coupon_ids: Collection[UUID] | None = None) -> None:
    broken = broken_invariants(coupon_ids)
    assert not broken, broken
