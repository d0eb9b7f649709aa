"""Coupons, four ways: order, payment, redemption and the coupon's own state, with its operation ledger as proof.

The first six are the rules of the coupon source; the last two are ours.
"""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from reconciliation.rules import STATE, Rule

# Between two commits of one business step the books may differ for a moment.
GRACE = "interval '10 minutes'"

_COUPON = """jsonb_build_object('coupon_id', c.id, 'status', c.status, 'version', c.state_version,
    'locked_by', c.locked_order_no)"""

_REDEEM = f"""
SELECT o.order_no AS key, o.merchant_id, {_COUPON} AS ours,
       jsonb_build_object('order_no', o.order_no, 'order_status', o.status, 'coupon_state', o.coupon_state,
                          'paid_at', o.paid_at) AS theirs,
       o.discount_fen AS amount_fen
FROM orders o JOIN user_coupon c ON c.id = o.coupon_id
WHERE o.coupon_id IS NOT NULL AND o.status IN (10, 20, 30) AND o.coupon_state NOT IN ('honoured', 'conflict')
  AND c.status IN ('LOCKED', 'AVAILABLE') AND o.paid_at < %(now)s::timestamptz - {GRACE}
  AND (%(merchant_id)s::uuid IS NULL OR o.merchant_id = %(merchant_id)s::uuid)
  AND NOT EXISTS (SELECT FROM coupon_redemption r WHERE r.merchant_id = o.merchant_id
                  AND r.order_no = o.order_no AND r.coupon_id = c.id)
"""

_RELEASE = f"""
SELECT o.order_no AS key, o.merchant_id, {_COUPON} AS ours,
       jsonb_build_object('order_no', o.order_no, 'order_status', o.status, 'reason', o.closed_reason,
                          'ended_at', coalesce(o.closed_at, o.cancelled_at)) AS theirs,
       o.discount_fen AS amount_fen
FROM user_coupon c JOIN orders o ON o.merchant_id = c.merchant_id AND o.order_no = c.locked_order_no
WHERE c.status = 'LOCKED' AND o.status IN (40, 50)
  AND coalesce(o.closed_at, o.cancelled_at) < %(now)s::timestamptz - {GRACE}
  AND (%(merchant_id)s::uuid IS NULL OR c.merchant_id = %(merchant_id)s::uuid)
  AND NOT EXISTS (SELECT FROM payment p WHERE p.merchant_id = o.merchant_id AND p.order_no = o.order_no
                  AND p.status = 'PAID')
"""

# USED without a redemption in force; a redemption in force on a coupon that is not used, or that no paid order with
# this coupon stands behind; more than one in force. What a finding shows is only built for findings.
_GHOST = f"""
SELECT c.id::text AS key, c.merchant_id, {_COUPON} AS ours, t.theirs, NULL::bigint AS amount_fen
FROM (
    SELECT c.id FROM user_coupon c
    FULL JOIN (SELECT r.coupon_id, r.order_no, r.redeemed_at FROM coupon_redemption r WHERE r.ended_by_id IS NULL) x
           ON x.coupon_id = c.id
    LEFT JOIN orders o ON o.coupon_id = x.coupon_id AND o.order_no = x.order_no
    WHERE c.status = 'USED' AND x.coupon_id IS NULL
       OR x.coupon_id IS NOT NULL AND c.status IS DISTINCT FROM 'USED'
       OR x.coupon_id IS NOT NULL AND (o.id IS NULL OR o.status NOT IN (10, 20, 30))
          AND x.redeemed_at < %(now)s::timestamptz - {GRACE}
    UNION
    SELECT r.coupon_id FROM coupon_redemption r WHERE r.ended_by_id IS NULL GROUP BY r.coupon_id HAVING count(*) > 1
) ghost
JOIN user_coupon c ON c.id = ghost.id
CROSS JOIN LATERAL (
    SELECT jsonb_build_object(
               'redemptions_in_force', count(x.id), 'orders', jsonb_agg(x.order_no ORDER BY x.order_no),
               'paid_orders', count(o.id) FILTER (WHERE o.status IN (10, 20, 30))) AS theirs
    FROM coupon_redemption x
    LEFT JOIN orders o ON o.coupon_id = x.coupon_id AND o.order_no = x.order_no
    WHERE x.coupon_id = c.id AND x.ended_by_id IS NULL
) t
WHERE (%(merchant_id)s::uuid IS NULL OR c.merchant_id = %(merchant_id)s::uuid)
"""

# Three cheap passes name the suspects: two redemptions, two orders, or an order whose redemption is another's. Only
# those are looked at closely.
_TWICE = f"""
WITH suspect AS MATERIALIZED (
    SELECT r.coupon_id FROM coupon_redemption r WHERE {{changed}} GROUP BY r.coupon_id HAVING count(*) > 1
    UNION
    SELECT r.coupon_id FROM orders r
    WHERE r.coupon_id IS NOT NULL AND r.status IN (10, 20, 30) AND r.coupon_state = 'redeemed' AND {{changed}}
    GROUP BY r.coupon_id HAVING count(*) > 1
    UNION
    SELECT r.coupon_id FROM orders r
    WHERE r.coupon_id IS NOT NULL AND r.status IN (10, 20, 30) AND r.coupon_state = 'redeemed' AND {{changed}}
      AND NOT EXISTS (SELECT FROM coupon_redemption x WHERE x.coupon_id = r.coupon_id AND x.order_no = r.order_no)
), used AS (
    SELECT r.coupon_id, r.order_no FROM coupon_redemption r
    LEFT JOIN coupon_operation e ON e.id = r.ended_by_id
    JOIN orders o ON o.merchant_id = r.merchant_id AND o.order_no = r.order_no
    WHERE r.coupon_id IN (SELECT s.coupon_id FROM suspect s) AND o.status IN (10, 20, 30)
      AND (e.id IS NULL OR e.command NOT IN ('RETURN', 'REVERSE', 'VOID'))
    UNION
    SELECT o.coupon_id, o.order_no FROM orders o
    WHERE o.coupon_id IN (SELECT s.coupon_id FROM suspect s) AND o.status IN (10, 20, 30)
      AND o.coupon_state = 'redeemed'
      AND NOT EXISTS (SELECT FROM coupon_redemption r JOIN coupon_operation e ON e.id = r.ended_by_id
                      WHERE r.coupon_id = o.coupon_id AND r.merchant_id = o.merchant_id
                        AND r.order_no = o.order_no AND e.command IN ('RETURN', 'REVERSE', 'VOID'))
)
SELECT c.id::text AS key, c.merchant_id, {_COUPON} AS ours,
       jsonb_build_object('orders', x.orders) AS theirs, NULL::bigint AS amount_fen
FROM (SELECT coupon_id, jsonb_agg(order_no ORDER BY order_no) AS orders FROM used GROUP BY coupon_id
      HAVING count(*) > 1) x
JOIN user_coupon c ON c.id = x.coupon_id
WHERE (%(merchant_id)s::uuid IS NULL OR c.merchant_id = %(merchant_id)s::uuid)
"""

_RETURN = f"""
SELECT d.id::text AS key, d.merchant_id, {_COUPON} AS ours,
       jsonb_build_object('decision', d.decision, 'because_of', d.cause_no, 'order_no', d.order_no,
                          'decided_at', d.decided_at, 'operation', o.id,
                          'event', (SELECT e.state FROM outbox_event e
                                    WHERE e.subject = c.id::text AND e.name = 'coupon.returned'
                                    ORDER BY e.id DESC LIMIT 1)) AS theirs,
       NULL::bigint AS amount_fen
FROM refund_coupon d JOIN user_coupon c ON c.id = d.coupon_id
LEFT JOIN coupon_operation o ON o.decision_id = d.id
WHERE d.decision = 'RETURN' AND d.decided_at < %(now)s::timestamptz - {GRACE}
  AND (%(merchant_id)s::uuid IS NULL OR d.merchant_id = %(merchant_id)s::uuid)
  AND (o.id IS NULL OR NOT EXISTS (
        SELECT FROM outbox_event e WHERE e.subject = c.id::text AND e.name = 'coupon.returned'
        AND e.created_at >= d.decided_at - interval '1 minute'))
"""

_HISTORY = """
SELECT h.coupon_id::text AS key, c.merchant_id,
       jsonb_build_object('operations', h.operations, 'first', h.first_version, 'last', h.last_version) AS ours,
       jsonb_build_object('breaks', h.breaks) AS theirs, NULL::bigint AS amount_fen
FROM (
    SELECT o.coupon_id, count(*) AS operations, min(o.to_version) AS first_version, max(o.to_version) AS last_version,
           count(*) FILTER (WHERE o.from_version IS DISTINCT FROM nullif(o.to_version - 1, 0)) AS breaks
    FROM coupon_operation o WHERE {changed} GROUP BY o.coupon_id
    HAVING count(*) <> max(o.to_version) OR min(o.to_version) <> 1
        OR count(*) FILTER (WHERE o.from_version IS DISTINCT FROM nullif(o.to_version - 1, 0)) > 0
) h LEFT JOIN user_coupon c ON c.id = h.coupon_id
WHERE (%(merchant_id)s::uuid IS NULL OR c.merchant_id = %(merchant_id)s::uuid)
"""

# Replay: the ledger's last row says what the coupon must look like. A sound coupon has exactly one operation at or
# above its own version: the one that made it so. None, a later one, or another status or lease is a finding.
_REPLAY = f"""
SELECT c.id::text AS key, c.merchant_id,
       {_COUPON} || jsonb_build_object('lease', c.lock_id, 'lease_until', c.lease_expires_at) AS ours,
       jsonb_build_object('status', o.to_status, 'version', o.to_version, 'last_version', (
           SELECT max(x.to_version) FROM coupon_operation x WHERE x.coupon_id = c.id),
           'order_no', o.order_no, 'lease', o.lock_id, 'lease_until', o.lease_expires_at) AS theirs,
       NULL::bigint AS amount_fen
FROM user_coupon c
LEFT JOIN coupon_operation o ON o.coupon_id = c.id AND o.to_version >= c.state_version
WHERE (%(merchant_id)s::uuid IS NULL OR c.merchant_id = %(merchant_id)s::uuid)
  AND (o.id IS NULL OR o.to_version > c.state_version OR o.to_status <> c.status
       OR c.status = 'LOCKED' AND (o.order_no, o.lock_id, o.lease_expires_at)
          IS DISTINCT FROM (c.locked_order_no, c.lock_id, c.lease_expires_at))
"""

_ORPHAN = f"""
SELECT c.id::text AS key, c.merchant_id,
       {_COUPON} || jsonb_build_object('lease', c.lock_id, 'lease_until', c.lease_expires_at) AS ours,
       jsonb_build_object('order', NULL, 'quote', (SELECT q.state FROM quote q
           WHERE q.merchant_id = c.merchant_id AND q.order_no = c.locked_order_no)) AS theirs,
       NULL::bigint AS amount_fen
FROM user_coupon c
WHERE c.status = 'LOCKED' AND c.lease_expires_at < %(now)s::timestamptz - {GRACE}
  AND (%(merchant_id)s::uuid IS NULL OR c.merchant_id = %(merchant_id)s::uuid)
  AND {{changed}}
  AND NOT EXISTS (SELECT FROM orders o WHERE o.merchant_id = c.merchant_id AND o.order_no = c.locked_order_no)
  AND NOT EXISTS (SELECT FROM quote q WHERE q.merchant_id = c.merchant_id AND q.order_no = c.locked_order_no
                  AND q.state = 'OPEN' AND q.expires_at > %(now)s::timestamptz)
"""

RULES = (
    Rule(
        code="COUPON_PAID_NOT_REDEEMED",
        severity="P1",
        scope=STATE,
        sql=_REDEEM,
        title=_("Paid order whose coupon was not redeemed"),
        advice=_("The order enjoyed the discount, the coupon is still free. The repair redeems it for this order."),
        repair="redeem_for_order",
    ),
    Rule(
        code="COUPON_HELD_BY_DEAD_ORDER",
        severity="P1",
        scope=STATE,
        sql=_RELEASE,
        title=_("Coupon locked by an order that ended unpaid"),
        advice=_("Its holder cannot use it. The repair releases the lease."),
        repair="release_lease",
    ),
    Rule(
        code="COUPON_GHOST_REDEMPTION",
        severity="P0",
        scope=STATE,
        sql=_GHOST,
        title=_("Used coupon without a redemption by a paid order"),
        advice=_(
            "The coupon was consumed and no paid order stands behind it. Read its timeline; reverse the redemption"
            " when the holder is to have it back."
        ),
    ),
    Rule(
        code="COUPON_USED_TWICE",
        severity="P0",
        scope=STATE,
        sql=_TWICE,
        title=_("One coupon used by two paid orders"),
        advice=_("Decide for each order: honoured, or refunded. The incident of the coupon source."),
        gate=True,
    ),
    Rule(
        code="COUPON_RETURN_NOT_DONE",
        severity="P1",
        scope=STATE,
        sql=_RETURN,
        title=_("Coupon to be returned, but it was not"),
        advice=_("The decision stands, the movement or its event is missing. The repair carries the decision out."),
        repair="carry_out_return",
    ),
    Rule(
        code="COUPON_HISTORY_BROKEN",
        severity="P0",
        scope=STATE,
        sql=_HISTORY,
        title=_("Coupon history with a gap"),
        advice=_("Operation versions are not continuous: someone went round the commands. Stop and find out who."),
        gate=True,
    ),
    Rule(
        code="COUPON_REPLAY_DIFFERS",
        severity="P0",
        scope=STATE,
        sql=_REPLAY,
        title=_("Coupon differs from what its history says"),
        advice=_("The row was changed without an operation. The ledger is right; find out what changed the row."),
    ),
    Rule(
        code="COUPON_ORPHAN_LEASE",
        severity="P1",
        scope=STATE,
        sql=_ORPHAN,
        title=_("Coupon locked by an order that does not exist"),
        advice=_("The lease is over and nobody owns it. The repair releases it."),
        gate=True,
        repair="release_lease",
    ),
)

CHANGED = {
    "COUPON_USED_TWICE": """r.coupon_id IN (
        SELECT n.coupon_id FROM coupon_redemption n WHERE n.redeemed_at >= %(since)s::timestamptz
        UNION SELECT n.coupon_id FROM orders n
        WHERE n.coupon_id IS NOT NULL AND n.paid_at >= %(since)s::timestamptz)""",
    "COUPON_HISTORY_BROKEN": """o.coupon_id IN (
        SELECT c.id FROM user_coupon c WHERE c.updated_at >= %(since)s::timestamptz
        UNION SELECT x.coupon_id FROM coupon_operation x WHERE x.at >= %(since)s::timestamptz)""",
    "COUPON_ORPHAN_LEASE": f"c.lease_expires_at >= %(since)s::timestamptz - {GRACE}",
}
"""How the gate narrows a rule to what moved since it last looked."""
