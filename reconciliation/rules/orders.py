"""Orders, payments and after-sales as they stand: nothing overdue, nothing half done, no history broken."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from reconciliation.rules import STATE, Rule

GRACE = "interval '10 minutes'"

_NO_PAYMENT = """
SELECT o.order_no AS key, o.merchant_id,
       jsonb_build_object('order_no', o.order_no, 'status', o.status, 'payable_fen', o.payable_fen,
                          'trade_no', o.trade_no, 'paid_at', o.paid_at) AS ours,
       jsonb_build_object('payments', (
           SELECT jsonb_agg(jsonb_build_object('no', p.out_trade_no, 'status', p.status, 'kind', p.kind,
                                               'amount_fen', p.amount_fen, 'trade_no', p.trade_no))
           FROM payment p WHERE p.merchant_id = o.merchant_id AND p.order_no = o.order_no)) AS theirs,
       o.payable_fen AS amount_fen
FROM orders o
WHERE o.status IN (10, 20, 30)
  AND (%(merchant_id)s::uuid IS NULL OR o.merchant_id = %(merchant_id)s::uuid)
  AND NOT EXISTS (SELECT FROM payment p WHERE p.merchant_id = o.merchant_id AND p.order_no = o.order_no
                  AND p.status = 'PAID' AND p.kind IN ('order', 'none')
                  AND p.amount_fen = o.payable_fen AND p.trade_no = o.trade_no)
"""

# Money we hold for an order that is not paid, and no refund of it is under way.
_NO_ORDER = f"""
SELECT p.out_trade_no || ':' || p.trade_no AS key, p.merchant_id,
       jsonb_build_object('payment', p.out_trade_no, 'kind', p.kind, 'amount_fen', p.amount_fen,
                          'trade_no', p.trade_no, 'paid_at', p.paid_at) AS ours,
       jsonb_build_object('order_no', p.order_no, 'status', o.status, 'reason', o.closed_reason) AS theirs,
       p.amount_fen
FROM payment p LEFT JOIN orders o ON o.merchant_id = p.merchant_id AND o.order_no = p.order_no
WHERE p.status = 'PAID' AND p.kind IN ('order', 'extra')
  AND p.paid_at < %(now)s::timestamptz - {GRACE}
  AND (%(merchant_id)s::uuid IS NULL OR p.merchant_id = %(merchant_id)s::uuid)
  AND (o.id IS NULL OR o.status NOT IN (10, 20, 30) OR o.trade_no <> p.trade_no)
  AND NOT EXISTS (SELECT FROM refund_request r WHERE r.payment_id = p.id AND r.status <> 'ABANDONED')
"""

_UNDELIVERED = """
SELECT o.order_no AS key, o.merchant_id,
       jsonb_build_object('order_no', o.order_no, 'paid_at', o.paid_at, 'fulfilment', o.fulfilment) AS ours,
       '{}'::jsonb AS theirs, o.payable_fen AS amount_fen
FROM orders o
WHERE o.status = 10 AND o.fulfilment IN ('waiting', 'partial')
  AND o.paid_at < %(now)s::timestamptz - interval '7 days'
  AND (%(merchant_id)s::uuid IS NULL OR o.merchant_id = %(merchant_id)s::uuid)
  -- What is refunded or under a live claim is not waited for.
  AND EXISTS (SELECT FROM order_line l WHERE l.order_id = o.id
              AND l.qty > cardinality(l.shipped_ordinals) + cardinality(l.refunded_ordinals)
                          + cardinality(l.held_ordinals))
"""

_REFUNDING = """
SELECT s.after_sales_no AS key, s.merchant_id,
       jsonb_build_object('after_sales_no', s.after_sales_no, 'status', s.status,
                          'refunding_at', s.refunding_at) AS ours,
       jsonb_build_object('request', r.status, 'attempt', a.status, 'refund_no', a.number,
                          'last_error', a.last_error) AS theirs,
       s.approved_goods_fen + s.approved_freight_fen AS amount_fen
FROM after_sales_order s
LEFT JOIN refund_request r ON r.merchant_id = s.merchant_id AND r.owner_kind = 'after_sales'
                          AND r.owner_no = s.after_sales_no
LEFT JOIN LATERAL (SELECT * FROM refund_attempt x WHERE x.request_id = r.id ORDER BY x.seq DESC LIMIT 1) a ON TRUE
WHERE s.status = 'REFUNDING' AND s.refunding_at < %(now)s::timestamptz - interval '1 day'
  AND (%(merchant_id)s::uuid IS NULL OR s.merchant_id = %(merchant_id)s::uuid)
"""

# Five systems, and granted rights where something was granted: once each, DONE within the hour.
_ROLLBACK = f"""
SELECT s.after_sales_no AS key, s.merchant_id,
       jsonb_build_object('after_sales_no', s.after_sales_no, 'finished_at', s.finished_at) AS ours,
       jsonb_build_object('missing', w.missing, 'twice', w.twice, 'pending', w.pending) AS theirs,
       s.approved_goods_fen + s.approved_freight_fen AS amount_fen
FROM after_sales_order s
CROSS JOIN LATERAL (
    SELECT (SELECT jsonb_agg(x.system ORDER BY x.system)
            FROM unnest(ARRAY['stock', 'coupon', 'points', 'commission', 'sales']
            || CASE WHEN s.hold = 'consumes' AND EXISTS (SELECT FROM entitlement g WHERE g.line_id = s.line_id)
                    THEN ARRAY['entitlement'] ELSE '{{}}' END)
            AS x(system) WHERE NOT EXISTS (SELECT FROM after_sales_rollback b
            WHERE b.after_sales_id = s.id AND b.system = x.system)) AS missing,
           (SELECT jsonb_agg(b.system) FROM (SELECT system FROM after_sales_rollback
            WHERE after_sales_id = s.id GROUP BY system HAVING count(*) > 1) b) AS twice,
           (SELECT jsonb_agg(b.system ORDER BY b.system) FROM after_sales_rollback b
            WHERE b.after_sales_id = s.id AND b.state = 'PENDING'
            AND b.requested_at < %(now)s::timestamptz - interval '1 hour') AS pending
) w
WHERE s.status = 'REFUND_SUCCESS' AND s.finished_at < %(now)s::timestamptz - {GRACE}
  AND (%(merchant_id)s::uuid IS NULL OR s.merchant_id = %(merchant_id)s::uuid)
  AND (w.missing IS NOT NULL OR w.twice IS NOT NULL OR w.pending IS NOT NULL)
"""

# The last row of a history and its status in one number, so that one pass over the log is enough.
_ORDER_HISTORY = """
SELECT o.order_no AS key, o.merchant_id,
       jsonb_build_object('order_no', o.order_no, 'status', o.status, 'version', o.version) AS ours,
       jsonb_build_object('rows', coalesce(h.rows, 0), 'last_version', h.last / 1000, 'status', h.last %% 1000,
                          'breaks', h.breaks) AS theirs,
       NULL::bigint AS amount_fen
FROM orders o
LEFT JOIN (
    SELECT g.order_id, count(*) AS rows, max(g.to_version::bigint * 1000 + g.to_status) AS last,
           count(*) FILTER (WHERE g.from_version IS DISTINCT FROM nullif(g.to_version - 1, 0)) AS breaks
    FROM order_status_log g GROUP BY g.order_id
) h ON h.order_id = o.id
WHERE (%(merchant_id)s::uuid IS NULL OR o.merchant_id = %(merchant_id)s::uuid)
  AND (h.rows IS DISTINCT FROM o.version OR h.last <> o.version::bigint * 1000 + o.status OR h.breaks > 0)
"""

_CLAIM_HISTORY = """
SELECT s.after_sales_no AS key, s.merchant_id,
       jsonb_build_object('after_sales_no', s.after_sales_no, 'status', s.status, 'version', s.version) AS ours,
       jsonb_build_object('rows', coalesce(h.rows, 0), 'last_version', h.last_version, 'status', l.to_status) AS theirs,
       NULL::bigint AS amount_fen
FROM after_sales_order s
LEFT JOIN (
    SELECT g.after_sales_id, count(*) AS rows, max(g.to_version) AS last_version
    FROM after_sales_log g GROUP BY g.after_sales_id
) h ON h.after_sales_id = s.id
LEFT JOIN after_sales_log l ON l.after_sales_id = s.id AND l.to_version = s.version
WHERE (%(merchant_id)s::uuid IS NULL OR s.merchant_id = %(merchant_id)s::uuid)
  AND (h.rows IS DISTINCT FROM s.version OR h.last_version <> s.version
       OR l.to_status IS DISTINCT FROM s.status)
"""

# What a payment says of its refunds ↔ the refunds themselves.
_COMMITTED = """
SELECT p.out_trade_no || ':' || p.trade_no AS key, p.merchant_id,
       jsonb_build_object('payment', p.out_trade_no, 'amount_fen', p.amount_fen,
                          'committed_fen', p.refund_committed_fen, 'refunded_fen', p.refunded_fen) AS ours,
       jsonb_build_object('committed_fen', coalesce(r.committed, 0),
                          'refunded_fen', coalesce(r.refunded, 0)) AS theirs,
       (abs(p.refund_committed_fen - coalesce(r.committed, 0))
        + abs(p.refunded_fen - coalesce(r.refunded, 0)))::bigint AS amount_fen
FROM payment p
LEFT JOIN (
    SELECT payment_id, sum(amount_fen) FILTER (WHERE status <> 'ABANDONED') AS committed,
           sum(amount_fen) FILTER (WHERE status = 'SUCCEEDED') AS refunded
    FROM refund_request GROUP BY payment_id
) r ON r.payment_id = p.id
WHERE (%(merchant_id)s::uuid IS NULL OR p.merchant_id = %(merchant_id)s::uuid)
  AND (p.refund_committed_fen <> coalesce(r.committed, 0) OR p.refunded_fen <> coalesce(r.refunded, 0))
"""

RULES = (
    Rule(
        code="ORDER_PAID_WITHOUT_PAYMENT",
        severity="P0",
        scope=STATE,
        sql=_NO_PAYMENT,
        title=_("Paid order without its payment"),
        advice=_("Goods may leave without money. Hold the delivery and look at the order's callbacks."),
    ),
    Rule(
        code="PAYMENT_WITHOUT_ORDER",
        severity="P1",
        scope=STATE,
        sql=_NO_ORDER,
        title=_("Money held for an order that is not paid"),
        advice=_("Neither delivered nor refunded. The repair lets the order decide: settle it, or refund the payment."),
        repair="settle_payment",
    ),
    Rule(
        code="ORDER_UNDELIVERED",
        severity="P2",
        scope=STATE,
        sql=_UNDELIVERED,
        title=_("Paid a week ago and not delivered"),
        advice=_("Ask the merchant; offer the buyer a refund."),
    ),
    Rule(
        code="CLAIM_REFUNDING_LONG",
        severity="P1",
        scope=STATE,
        sql=_REFUNDING,
        title=_("Refunding for more than a day"),
        advice=_("Look at the attempt's last error. The repair asks the channel again."),
        repair="query_refund",
    ),
    Rule(
        code="ROLLBACK_MISSING",
        severity="P1",
        scope=STATE,
        sql=_ROLLBACK,
        title=_("Refunded, but stock, coupon, points, commission or sales not turned back"),
        advice=_(
            "Each system is turned back once, by its own message. The repair asks for what is missing and does it."
        ),
        repair="complete_rollbacks",
    ),
    Rule(
        code="ORDER_HISTORY_BROKEN",
        severity="P0",
        scope=STATE,
        sql=_ORDER_HISTORY,
        title=_("Order differs from its history"),
        advice=_("Someone went round the commands. Stop and find out who."),
    ),
    Rule(
        code="CLAIM_HISTORY_BROKEN",
        severity="P0",
        scope=STATE,
        sql=_CLAIM_HISTORY,
        title=_("After-sales order differs from its history"),
        advice=_("Someone went round the commands. Stop and find out who."),
    ),
    Rule(
        code="PAYMENT_COMMITTED_WRONG",
        severity="P0",
        scope=STATE,
        sql=_COMMITTED,
        title=_("Payment's refunded sums differ from its refunds"),
        advice=_("The guard against refunding too much counts wrongly. Stop refunds of this payment."),
    ),
)
