"""The seven invariants of the source, asserted over the tables. Called after every step and every race."""

from django.db import connection

CHECKS = {
    "1. a coupon has at most one active lease, and exactly one when it is locked": """
        SELECT c.id FROM user_coupon c LEFT JOIN coupon_lock l ON l.coupon_id = c.id AND l.ended_by_id IS NULL
        GROUP BY c.id HAVING count(l.id) <> CASE WHEN c.status = 'LOCKED' THEN 1 ELSE 0 END""",
    "1b. the lease in force is the one that the coupon names": """
        SELECT c.id FROM user_coupon c JOIN coupon_lock l ON l.coupon_id = c.id AND l.ended_by_id IS NULL
        WHERE c.status = 'LOCKED' AND (l.id, l.order_no, l.token_hash, l.expires_at)
              IS DISTINCT FROM (c.lock_id, c.locked_order_no, c.lock_token_hash, c.lease_expires_at)""",
    "2. a coupon has at most one redemption in force, and exactly one when it is used": """
        SELECT c.id FROM user_coupon c LEFT JOIN coupon_redemption r ON r.coupon_id = c.id AND r.ended_by_id IS NULL
        GROUP BY c.id HAVING count(r.id) > 1 OR (c.status = 'USED') <> (count(r.id) = 1) AND c.status <> 'VOID'""",
    "3. a redemption was made under a lease of its own order": """
        SELECT r.id FROM coupon_redemption r LEFT JOIN coupon_lock l ON l.id = r.lock_id
        WHERE l.id IS NULL OR l.coupon_id <> r.coupon_id OR l.order_no <> r.order_no""",
    "4. every change raises the version by one: the ledger is a chain from 1 to the coupon's version": """
        SELECT c.id FROM user_coupon c LEFT JOIN coupon_operation o ON o.coupon_id = c.id
        GROUP BY c.id HAVING count(o.id) <> c.state_version OR min(o.to_version) <> 1
            OR max(o.to_version) <> c.state_version""",
    "5. every command that succeeded has one ledger row": """
        SELECT k.key FROM idempotency_key k LEFT JOIN coupon_operation o
            ON o.merchant_id = k.merchant_id AND o.business_key = k.key
        WHERE k.result ? 'state_version' GROUP BY k.merchant_id, k.key HAVING count(o.id) <> 1""",
    "5b. every ledger row has one command that succeeded": """
        SELECT o.id FROM coupon_operation o LEFT JOIN idempotency_key k
            ON o.merchant_id = k.merchant_id AND o.business_key = k.key
        WHERE k.id IS NULL""",
    "5c. every ledger row but none else has one event": """
        SELECT o.id FROM coupon_operation o LEFT JOIN outbox_event e
            ON e.subject = o.coupon_id::text AND (e.payload ->> 'state_version')::int = o.to_version
            AND e.name LIKE 'coupon.%%'
        GROUP BY o.id HAVING count(e.id) <> 1""",
    "6. a return names its redemption, a decision to return it, and that decision its policy": """
        SELECT o.id FROM coupon_operation o LEFT JOIN refund_coupon d ON d.id = o.decision_id
        WHERE o.command = 'RETURN' AND (d.id IS NULL OR d.decision <> 'RETURN'
            OR (d.redemption_id, d.coupon_id) IS DISTINCT FROM (o.redemption_id, o.coupon_id))""",
    "7. replaying the ledger gives the coupon": """
        WITH last AS (SELECT DISTINCT ON (coupon_id) * FROM coupon_operation ORDER BY coupon_id, to_version DESC)
        SELECT c.id FROM user_coupon c LEFT JOIN last o ON o.coupon_id = c.id
        WHERE (c.status, c.state_version, c.locked_order_no, c.lock_id, c.lease_expires_at) IS DISTINCT FROM
              (o.to_status, o.to_version,
               CASE WHEN o.to_status = 'LOCKED' THEN o.order_no END,
               CASE WHEN o.to_status = 'LOCKED' THEN o.lock_id END,
               CASE WHEN o.to_status = 'LOCKED' THEN o.lease_expires_at END)""",
}


def assert_invariants() -> None:
    broken = {}
    with connection.cursor() as cursor:
        for name, query in CHECKS.items():
            cursor.execute(query)
            rows = cursor.fetchall()
            if rows:
                broken[name] = rows[:5]
    assert not broken, broken
