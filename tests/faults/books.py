"""The books of a house, read from inside it (bin/manage shell): made ready before, watched, and examined afterwards."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

from django.db import connection
from django.db.models import Sum

from kernel import clock

SHOP = "yunwu"
STOCK = 1_000_000
WINDOWS = {"lease_seconds": 90, "payment_window_seconds": 160}
LATER = timedelta(minutes=31)
ENDED = (40, 50)
PAID = (10, 20, 30)


def make_ready() -> dict[str, Any]:
    """Short windows, plenty of stock, and the demo's own finding put aside, so that the gate is about this run."""
    from ledgers.commands.adjust_stock import adjust_stock
    from merchants.commands.change_settings import change_settings
    from merchants.models import Merchant, Staff
    from reconciliation.commands.accept_finding import accept_finding
    from reconciliation.models import Finding

    now = clock.now()
    shop = Merchant.objects.get(code=SHOP)
    change_settings(merchant_id=shop.pk, changes=WINDOWS, expected_version=None, now=now)
    for sku in ("NUT-500G", "TEA-250G"):
        adjust_stock(
            merchant_id=shop.pk, sku=sku, delta=STOCK, business_key=f"faults:{sku}", reference="faults", now=now
        )
    finance = Staff.objects.get(role="finance")
    accepted = 0
    for finding in Finding.objects.filter(state__in=Finding.UNFINISHED):
        accept_finding(
            finding_id=finding.pk,
            author_id=finance.user_id,
            reason="the demo's own",
            expected_version=finding.version,
            now=now,
        )
        accepted += 1
    return {"accepted": accepted}


def open_things() -> dict[str, list[str]]:
    """What still has to happen, by kind, with the first few of each."""
    from kernel import inbox

    found: dict[str, list[str]] = {}
    everybody = inbox.all_consumers()
    params = {
        "shop": SHOP,
        "events": [each.event_name for each in everybody],
        "consumers": [each.name for each in everybody],
    }
    with connection.cursor() as cursor:
        cursor.execute(OPEN, params)
        for kind, what in cursor.fetchall():
            found.setdefault(kind, []).append(what)
    return {kind: [str(len(rows)), *rows[:4]] for kind, rows in found.items()}


OPEN = """
WITH shop AS (SELECT id FROM merchant WHERE code = %(shop)s),
mine AS (SELECT * FROM orders WHERE merchant_id = (SELECT id FROM shop) AND user_id LIKE 'faults-%%')
SELECT 'event not published', name || ' ' || subject FROM outbox_event WHERE state = 'PENDING'
UNION ALL
SELECT 'event never delivered to ' || c.consumer, e.name || ' ' || e.subject FROM outbox_event e
JOIN unnest(%(events)s::text[], %(consumers)s::text[]) AS c(event_name, consumer) ON c.event_name = e.name
WHERE e.state = 'PUBLISHED'
  AND NOT EXISTS (SELECT 1 FROM inbox_message m WHERE m.event_id = e.id AND m.consumer = c.consumer)
UNION ALL
SELECT 'message ' || state, consumer || ' ' || left(last_error, 160) FROM inbox_message
WHERE state IN ('FAILED', 'RUNNING')
UNION ALL
SELECT 'order pending', order_no || ' until ' || pay_expires_at FROM mine WHERE status = 0
UNION ALL
SELECT 'coupon of a paid order not settled', order_no || ' ' || coupon_state FROM mine
WHERE status IN (10, 20, 30) AND coupon_state NOT IN ('none', 'redeemed', 'honoured', 'conflict')
UNION ALL
SELECT 'quote open', order_no FROM quote
WHERE merchant_id = (SELECT id FROM shop) AND user_id LIKE 'faults-%%' AND state = 'OPEN'
UNION ALL
SELECT 'coupon leased', id::text FROM user_coupon
WHERE merchant_id = (SELECT id FROM shop) AND user_id LIKE 'faults-%%' AND status = 'LOCKED'
UNION ALL
SELECT 'refund under way', r.order_no || ' ' || r.owner_no FROM refund_request r JOIN mine o USING (order_no)
WHERE r.status = 'PENDING'
UNION ALL
SELECT 'claim refunding', a.after_sales_no FROM after_sales_order a JOIN mine o ON o.id = a.order_id
WHERE a.status = 'REFUNDING'
UNION ALL
SELECT 'rollback', a.after_sales_no || ' ' || r.system FROM after_sales_rollback r
JOIN after_sales_order a ON a.id = r.after_sales_id JOIN mine o ON o.id = a.order_id WHERE r.state <> 'DONE'
"""


def half_an_hour_later() -> dict[str, int]:
    """What the check of ended orders finds at its next looks, not waited for: money whose callback is lost."""
    from orders.commands.check_order import check_order
    from orders.commands.claim_due import claim_due

    later = clock.now() + LATER
    outcomes: Counter[str] = Counter()
    for _ in range(50):
        due = claim_due(kind="check", now=later, limit=100)
        for order_id in due:
            outcomes[check_order(order_id=order_id, now=later).outcome] += 1
        if len(due) < 100:
            break
    return dict(outcomes)


def statement() -> dict[str, Any]:
    """Our money, payment by payment and refund by refund, to be held against the channel's own."""
    from ledgers.models import JournalLine
    from merchants.models import Merchant
    from orders.models import Order
    from payments.models import Payment, RefundAttempt

    shop = Merchant.objects.get(code=SHOP)
    mine = Order.objects.filter(merchant=shop, user_id__startswith="faults-")
    payments = Payment.objects.filter(merchant=shop, order_no__in=mine.values("order_no"))
    clearing = JournalLine.objects.filter(entry__merchant_id=shop.pk, account="channel_clearing:wechat")
    return {
        "orders": {
            order.order_no: {"status": order.status, "payable_fen": order.payable_fen, "trade_no": order.trade_no}
            for order in mine
        },
        "payments": [
            {
                "order_no": payment.order_no,
                "out_trade_no": payment.out_trade_no,
                "trade_no": payment.trade_no,
                "status": payment.status,
                "kind": payment.kind,
                "amount_fen": payment.amount_fen,
            }
            for payment in payments
        ],
        "refunds": [
            {"number": number, "order_no": order_no, "fen": fen, "status": status}
            for number, order_no, fen, status in RefundAttempt.objects.filter(payment__in=payments).values_list(
                "number", "payment__order_no", "amount_fen", "status"
            )
        ],
        "clearing_fen": clearing.filter(entry__order_no__in=mine.values("order_no")).aggregate(s=Sum("amount_fen"))["s"]
        or 0,
        "statuses": dict(Counter(mine.values_list("status", flat=True))),
        "days": sorted({clock.channel_day(at).isoformat() for at in _moments(mine)}),
    }


def _moments(mine: Any) -> list[Any]:
    from payments.models import Payment, RefundAttempt

    numbers = mine.values("order_no")
    return [
        *Payment.objects.filter(order_no__in=numbers, status="PAID").values_list("paid_at", flat=True),
        *RefundAttempt.objects.filter(payment__order_no__in=numbers, status="SUCCESS").values_list(
            "finished_at", flat=True
        ),
    ]


def examine() -> dict[str, list[Any]]:
    """Every invariant over all tables: name → what breaks it. Empty when all is well."""
    from ledgers import checks
    from tests.aftersales.test_machine import BROKEN as AFTER_SALES
    from tests.coupons.invariants import broken_invariants

    broken: dict[str, list[Any]] = {f"coupon: {name}": rows for name, rows in broken_invariants().items()}
    for look in (
        checks.stock_that_differs,
        checks.journal_that_differs,
        checks.points_that_differ,
        checks.commission_that_differs,
        checks.sales_that_differ,
        checks.commission_matured_while_held,
    ):
        broken[look.__name__.replace("_", " ")] = look()
    with connection.cursor() as cursor:
        for query, params in ((AFTER_SALES, None), (ORDERS, {"shop": SHOP})):
            cursor.execute(query, params)
            for name, what in cursor.fetchall():
                broken.setdefault(name, []).append(what)
    return {name: rows[:6] for name, rows in broken.items() if rows}


# The invariants of the order machine (tests/orders/test_machine.py) over all orders at rest, and what a message may
# never be in the end.
ORDERS = """
WITH mine AS (
    SELECT o.* FROM orders o JOIN merchant m ON m.id = o.merchant_id
    WHERE m.code = %(shop)s AND o.user_id LIKE 'faults-%%'
)
SELECT 'dead message', consumer || ': ' || left(last_error, 300) FROM inbox_message WHERE state = 'DEAD'
UNION ALL
SELECT 'order history', o.order_no FROM mine o
WHERE (SELECT array_agg(g.to_version ORDER BY g.to_version) FROM order_status_log g WHERE g.order_id = o.id)
      IS DISTINCT FROM (SELECT array_agg(n) FROM generate_series(1, o.version) n)
   OR (SELECT g.to_status FROM order_status_log g WHERE g.order_id = o.id AND g.to_version = o.version) <> o.status
UNION ALL
SELECT 'paid twice in its history', o.order_no FROM mine o
WHERE (SELECT count(*) FROM order_status_log g WHERE g.order_id = o.id AND g.to_status = 10) > 1
UNION ALL
SELECT 'bill of an order', o.order_no FROM mine o
WHERE (SELECT count(*) FROM order_bill b WHERE b.order_id = o.id) <> (o.status IN (20, 30))::int
UNION ALL
SELECT 'paid order without its payment', o.order_no FROM mine o WHERE o.status IN (10, 20, 30) AND (
    SELECT count(*) FROM payment p WHERE p.order_no = o.order_no AND p.trade_no = o.trade_no AND p.status = 'PAID'
        AND p.amount_fen = o.payable_fen) <> 1
UNION ALL
SELECT 'money of no paid order not sent back once', p.out_trade_no || ' ' || p.trade_no
FROM payment p JOIN mine o USING (order_no)
WHERE p.status = 'PAID' AND p.kind IN ('order', 'extra')
  AND (o.status NOT IN (10, 20, 30) OR p.trade_no <> o.trade_no)
  AND (SELECT (count(*), coalesce(sum(r.amount_fen), 0)) FROM refund_request r WHERE r.payment_id = p.id)
      IS DISTINCT FROM (1::bigint, p.amount_fen::numeric)
UNION ALL
SELECT 'coupon of an order', o.order_no || ' ' || o.coupon_state FROM mine o
WHERE o.coupon_id IS NOT NULL AND CASE o.coupon_state
    WHEN 'redeemed' THEN NOT EXISTS (SELECT 1 FROM coupon_redemption r
        WHERE r.coupon_id = o.coupon_id AND r.order_no = o.order_no)
    WHEN 'released' THEN EXISTS (SELECT 1 FROM coupon_redemption r
        WHERE r.coupon_id = o.coupon_id AND r.order_no = o.order_no AND r.ended_by_id IS NULL)
    WHEN 'leased' THEN o.status <> 0 END
UNION ALL
SELECT 'a coupon of two orders', coupon_id::text FROM coupon_redemption
WHERE ended_by_id IS NULL GROUP BY coupon_id HAVING count(*) > 1
UNION ALL
SELECT 'an order paid a refund twice', r.owner_no FROM refund_request r JOIN mine o USING (order_no)
WHERE r.owner_kind = 'after_sales' GROUP BY r.owner_no HAVING count(*) > 1
UNION ALL
SELECT 'two attempts of one refund succeeded', q.owner_no FROM refund_attempt a
JOIN refund_request q ON q.id = a.request_id
WHERE a.status = 'SUCCESS' GROUP BY q.id, q.owner_no HAVING count(*) > 1
UNION ALL
SELECT 'refunded claim without its five rollbacks', a.after_sales_no FROM after_sales_order a
JOIN mine o ON o.id = a.order_id
WHERE a.status = 'REFUND_SUCCESS' AND (SELECT count(DISTINCT system) FROM after_sales_rollback r
    WHERE r.after_sales_id = a.id AND r.state = 'DONE') <> 5
UNION ALL
SELECT 'event twice in the inbox of one consumer', consumer FROM inbox_message
GROUP BY consumer, event_id HAVING count(*) > 1
UNION ALL
SELECT 'stock set aside', i.sku || ' ' || i.reserved || ' set aside for ' || coalesce(w.units, 0)
FROM stock_item i JOIN merchant m ON m.id = i.merchant_id LEFT JOIN (
    SELECT l.sku, sum(l.qty - cardinality(l.shipped_ordinals) - cardinality(l.refunded_ordinals)) AS units
    FROM orders o JOIN order_line l ON l.order_id = o.id JOIN merchant n ON n.id = o.merchant_id
    WHERE n.code = %(shop)s AND o.status IN (0, 10) AND l.kind = 'physical' GROUP BY l.sku) w ON w.sku = i.sku
WHERE m.code = %(shop)s AND i.reserved <> coalesce(w.units, 0)
UNION ALL
SELECT 'stock on hand', i.sku || ': ' || (i.sellable + i.reserved + i.defect) || ' is not '
    || adjusted.units || ' less ' || gone.units
FROM stock_item i JOIN merchant m ON m.id = i.merchant_id
CROSS JOIN LATERAL (SELECT coalesce(sum(delta), 0) AS units FROM stock_entry e
    WHERE e.item_id = i.id AND e.kind = 'adjust') adjusted
CROSS JOIN LATERAL (SELECT coalesce(sum(cardinality(l.shipped_ordinals)), 0) - coalesce((
        SELECT count(*) FROM after_sales_unit u JOIN after_sales_order a ON a.id = u.after_sales_id
        JOIN order_line k ON k.id = u.line_id JOIN orders p ON p.id = k.order_id
        WHERE p.merchant_id = m.id AND k.sku = i.sku AND u.live AND a.type = 2 AND a.status = 'REFUND_SUCCESS'
          AND u.disposition IN ('sellable', 'defect')), 0) AS units
    FROM orders o JOIN order_line l ON l.order_id = o.id WHERE o.merchant_id = m.id AND l.sku = i.sku) gone
WHERE m.code = %(shop)s AND i.sellable + i.reserved + i.defect <> adjusted.units - gone.units
"""


def kept_promises(promises: list[list[str]]) -> list[str]:
    """Of what was acknowledged with a 2xx, what the tables do not show."""
    from aftersales.models import AfterSalesOrder
    from coupons.models import UserCoupon
    from orders.models import Order, Shipment

    wanted: dict[str, set[str]] = {}
    for what, number in promises:
        wanted.setdefault(what, set()).add(number)
    orders, claims = Order.objects, AfterSalesOrder.objects
    shown = {
        "coupon": {str(pk) for pk in UserCoupon.objects.values_list("pk", flat=True)},
        "order": set(orders.values_list("order_no", flat=True)),
        "paid": set(orders.filter(status__in=PAID).values_list("order_no", flat=True)),
        "cancelled": set(orders.filter(status=50).values_list("order_no", flat=True)),
        "signed": set(Shipment.objects.exclude(signed_at=None).values_list("order__order_no", flat=True)),
        "claim": set(claims.values_list("after_sales_no", flat=True)),
        "refunded": set(claims.filter(status="REFUND_SUCCESS").values_list("after_sales_no", flat=True)),
    }
    return [f"{what} {number}" for what in wanted for number in sorted(wanted[what] - shown[what])]
