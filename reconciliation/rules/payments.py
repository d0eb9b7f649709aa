"""Payments, item by item: our record ↔ the channel's own bill ↔ the journal. Forward only; refunds are apart.

One row per trade number of the channel. A payment whose two sides name different days is a timing item.
"""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from reconciliation.rules import DAY, Comparison, Rule

GRACE = "interval '5 minutes'"

GATHER = """
CREATE TEMPORARY TABLE payment_item ON COMMIT DROP AS
WITH named AS MATERIALIZED (
    SELECT p.merchant_id, p.channel, p.trade_no FROM payment p
    WHERE p.status = 'PAID' AND p.kind <> 'none'
      AND p.paid_at >= %(day_start)s::timestamptz AND p.paid_at < %(day_end)s::timestamptz
      AND (%(merchant_id)s::uuid IS NULL OR p.merchant_id = %(merchant_id)s::uuid)
    UNION
    SELECT l.merchant_id, l.channel, l.trade_no FROM channel_bill b JOIN bill_line l ON l.bill_id = b.id
    WHERE b.bill_on = %(day)s::date AND b.kind = 'trade' AND b.state = 'PARSED' AND l.kind = 'payment'
      AND (%(merchant_id)s::uuid IS NULL OR l.merchant_id = %(merchant_id)s::uuid)
), known AS MATERIALIZED (
    SELECT n.merchant_id, n.channel, n.trade_no, p.id AS payment_id
    FROM named n
    LEFT JOIN payment p ON p.merchant_id = n.merchant_id AND p.channel = n.channel AND p.trade_no = n.trade_no
                       AND p.status = 'PAID'
), line AS MATERIALIZED (
    SELECT DISTINCT ON (l.merchant_id, l.channel, l.trade_no)
           l.merchant_id, l.channel, l.trade_no, l.out_trade_no, l.amount_fen, l.trade_state, b.bill_on,
           count(*) OVER (PARTITION BY l.merchant_id, l.channel, l.trade_no) AS lines
    FROM channel_bill b JOIN bill_line l ON l.bill_id = b.id
    JOIN named n ON n.merchant_id = l.merchant_id AND n.channel = l.channel AND n.trade_no = l.trade_no
    WHERE b.kind = 'trade' AND b.state = 'PARSED' AND l.kind = 'payment'
      AND b.bill_on BETWEEN %(day)s::date - 2 AND %(day)s::date + 2
    ORDER BY l.merchant_id, l.channel, l.trade_no, b.bill_on, l.row_no
), booked AS MATERIALIZED (
    SELECT k.payment_id, count(DISTINCT e.id) AS entries,
           sum(l.amount_fen) FILTER (WHERE l.account LIKE 'channel_clearing:%%') AS amount_fen
    FROM known k
    JOIN journal_entry e ON e.merchant_id = k.merchant_id AND e.business_key = 'payment:' || k.payment_id
    JOIN journal_line l ON l.entry_id = e.id
    GROUP BY k.payment_id
)
SELECT n.merchant_id, n.channel, n.trade_no, p.id AS payment_id, p.out_trade_no, p.order_no, p.kind, p.status,
       p.amount_fen AS ours_fen, p.paid_at,
       t.amount_fen AS theirs_fen, t.out_trade_no AS theirs_out_trade_no, t.trade_state AS theirs_state,
       t.bill_on, coalesce(t.lines, 0) AS lines,
       j.amount_fen AS booked_fen, coalesce(j.entries, 0) AS entries,
       waiting.status AS waiting_status, waiting.amount_fen AS waiting_fen,
       FALSE AS timing, ''::text AS problem
FROM known n
LEFT JOIN payment p ON p.id = n.payment_id
LEFT JOIN line t ON t.merchant_id = n.merchant_id AND t.channel = n.channel AND t.trade_no = n.trade_no
LEFT JOIN booked j ON j.payment_id = n.payment_id
LEFT JOIN LATERAL (
    SELECT w.status, w.amount_fen FROM payment w
    WHERE n.payment_id IS NULL AND w.merchant_id = n.merchant_id AND w.out_trade_no = t.out_trade_no
      AND w.kind <> 'extra' LIMIT 1
) waiting ON TRUE
"""

JUDGE = f"""
UPDATE payment_item i SET
    timing = i.status = 'PAID' AND i.lines > 0
             AND (i.paid_at AT TIME ZONE 'Asia/Shanghai')::date <> i.bill_on,
    problem = CASE
        WHEN i.payment_id IS NULL AND i.waiting_status IS NOT NULL AND i.waiting_status <> 'PAID'
             THEN 'PAYMENT_NOT_RECORDED'
        WHEN i.payment_id IS NULL THEN 'PAYMENT_MISSING_HERE'
        WHEN i.lines > 0 AND i.ours_fen <> i.theirs_fen THEN 'PAYMENT_AMOUNT_DIFFERS'
        WHEN i.lines > 0 AND i.theirs_out_trade_no <> i.out_trade_no THEN 'PAYMENT_AMOUNT_DIFFERS'
        WHEN i.lines > 1 THEN 'PAYMENT_TWICE_IN_BILL'
        WHEN i.lines = 0 AND i.channel IN ('wechat', 'alipay') AND EXISTS (
             SELECT FROM channel_bill b WHERE b.merchant_id = i.merchant_id AND b.channel = i.channel
             AND b.kind = 'trade' AND b.bill_on = (i.paid_at AT TIME ZONE 'Asia/Shanghai')::date
             AND b.state IN ('PARSED', 'EMPTY')) THEN 'PAYMENT_MISSING_AT_CHANNEL'
        WHEN i.entries > 1 OR i.entries > 0 AND i.booked_fen IS DISTINCT FROM i.ours_fen
             THEN 'PAYMENT_BOOKED_WRONG'
        WHEN i.entries = 0 AND i.paid_at < %(now)s::timestamptz - {GRACE} THEN 'PAYMENT_NOT_BOOKED'
        ELSE '' END
"""

# Entries of the day that stand for no paid payment.
BOOKED = """
INSERT INTO payment_item (merchant_id, channel, trade_no, out_trade_no, order_no, booked_fen, entries, lines,
                          timing, problem)
WITH entry AS MATERIALIZED (
    SELECT e.*, CASE WHEN e.business_key ~ '^payment:[0-9a-f-]{36}$' THEN substr(e.business_key, 9)::uuid END AS paid
    FROM journal_entry e
    WHERE e.kind = 'payment'
      AND e.posted_at >= %(day_start)s::timestamptz AND e.posted_at < %(day_end)s::timestamptz
      AND (%(merchant_id)s::uuid IS NULL OR e.merchant_id = %(merchant_id)s::uuid)
), strange AS MATERIALIZED (
    SELECT e.* FROM entry e LEFT JOIN payment_item i ON i.payment_id = e.paid WHERE i.payment_id IS NULL
)
SELECT e.merchant_id, coalesce(split_part(l.account, ':', 2), 'unknown'), e.business_key, e.reference, e.order_no,
       l.amount_fen, 1, 0, FALSE, 'PAYMENT_BOOKED_NOT_MADE'
FROM strange e
LEFT JOIN journal_line l ON l.entry_id = e.id AND l.account LIKE 'channel_clearing:%%'
WHERE NOT EXISTS (SELECT FROM payment p WHERE p.id = e.paid AND p.merchant_id = e.merchant_id AND p.status = 'PAID')
"""

_OURS_TODAY = """(i.status = 'PAID' AND i.paid_at >= %(day_start)s::timestamptz
    AND i.paid_at < %(day_end)s::timestamptz)"""
_THEIRS_TODAY = "(i.bill_on = %(day)s::date)"

TOTALS = f"""
SELECT m.code AS merchant, i.channel,
       count(*) AS items, count(*) FILTER (WHERE i.problem = '') AS matched,
       count(*) FILTER (WHERE {_OURS_TODAY}) AS ours_count,
       coalesce(sum(i.ours_fen) FILTER (WHERE {_OURS_TODAY}), 0)::bigint AS ours_fen,
       count(*) FILTER (WHERE {_THEIRS_TODAY}) AS theirs_count,
       coalesce(sum(i.theirs_fen) FILTER (WHERE {_THEIRS_TODAY}), 0)::bigint AS theirs_fen,
       count(*) FILTER (WHERE i.entries > 0 AND {_OURS_TODAY}) AS booked_count,
       coalesce(sum(i.booked_fen) FILTER (WHERE {_OURS_TODAY}), 0)::bigint AS booked_fen,
       count(*) FILTER (WHERE i.timing) AS timing
FROM payment_item i LEFT JOIN merchant m ON m.id = i.merchant_id
GROUP BY m.code, i.channel ORDER BY m.code, i.channel
"""

TIMING = """
SELECT i.merchant_id, i.trade_no AS number,
       jsonb_build_object('status', i.status, 'amount_fen', i.ours_fen, 'paid_at', i.paid_at) AS ours,
       jsonb_build_object('state', i.theirs_state, 'amount_fen', i.theirs_fen, 'bill_on', i.bill_on) AS theirs,
       i.paid_at AS settled_at
FROM payment_item i WHERE i.timing AND i.problem = ''
"""


def _finds(problem: str) -> str:
    return f"""
        SELECT i.trade_no AS key, i.merchant_id,
               jsonb_strip_nulls(jsonb_build_object(
                   'payment', i.out_trade_no, 'order_no', i.order_no, 'kind', i.kind,
                   'status', coalesce(i.status, i.waiting_status), 'amount_fen', coalesce(i.ours_fen, i.waiting_fen),
                   'paid_at', i.paid_at, 'booked_fen', i.booked_fen, 'bookings', i.entries)) AS ours,
               jsonb_strip_nulls(jsonb_build_object(
                   'channel', i.channel, 'trade_no', i.trade_no, 'payment', i.theirs_out_trade_no,
                   'state', i.theirs_state, 'amount_fen', i.theirs_fen, 'bill_on', i.bill_on,
                   'lines', i.lines)) AS theirs,
               CASE WHEN i.problem = 'PAYMENT_AMOUNT_DIFFERS' THEN abs(i.ours_fen - i.theirs_fen)
                    WHEN i.problem = 'PAYMENT_BOOKED_WRONG' THEN abs(i.ours_fen - coalesce(i.booked_fen, 0))
                    ELSE coalesce(i.ours_fen, i.theirs_fen, i.booked_fen) END AS amount_fen
        FROM payment_item i WHERE i.problem = '{problem}'"""


RULES = (
    Rule(
        code="PAYMENT_NOT_RECORDED",
        severity="P0",
        scope=DAY,
        sql=_finds("PAYMENT_NOT_RECORDED"),
        title=_("Paid at the channel, not here"),
        advice=_("The buyer paid and we do not know. The repair asks the channel and settles the payment."),
        repair="query_payment",
    ),
    Rule(
        code="PAYMENT_MISSING_HERE",
        severity="P0",
        scope=DAY,
        sql=_finds("PAYMENT_MISSING_HERE"),
        title=_("Payment at the channel that we never asked for"),
        advice=_("A second charge, or a payment made past us. Find its order, then refund it or record it."),
    ),
    Rule(
        code="PAYMENT_AMOUNT_DIFFERS",
        severity="P0",
        scope=DAY,
        sql=_finds("PAYMENT_AMOUNT_DIFFERS"),
        title=_("Payment differs from the channel's"),
        advice=_("Amount or number differ. Hold the order and ask the channel."),
    ),
    Rule(
        code="PAYMENT_TWICE_IN_BILL",
        severity="P0",
        scope=DAY,
        sql=_finds("PAYMENT_TWICE_IN_BILL"),
        title=_("The channel lists one payment twice"),
        advice=_("Ask the channel which line is right; keep the bill."),
    ),
    Rule(
        code="PAYMENT_MISSING_AT_CHANNEL",
        severity="P0",
        scope=DAY,
        sql=_finds("PAYMENT_MISSING_AT_CHANNEL"),
        title=_("Paid here, not at the channel"),
        advice=_("Goods may leave without money. Query the payment before delivering."),
    ),
    Rule(
        code="PAYMENT_BOOKED_WRONG",
        severity="P0",
        scope=DAY,
        sql=_finds("PAYMENT_BOOKED_WRONG"),
        title=_("Payment booked with another amount, or twice"),
        advice=_("Post the difference with a reason; entries are never edited."),
    ),
    Rule(
        code="PAYMENT_BOOKED_NOT_MADE",
        severity="P0",
        scope=DAY,
        sql=_finds("PAYMENT_BOOKED_NOT_MADE"),
        title=_("Payment in the journal that was not made"),
        advice=_("The journal holds a payment that is not paid. Post its opposite with a reason."),
    ),
    Rule(
        code="PAYMENT_NOT_BOOKED",
        severity="P1",
        scope=DAY,
        sql=_finds("PAYMENT_NOT_BOOKED"),
        title=_("Payment without its journal entry"),
        advice=_("The booking's event was lost or its consumer fails. The repair hands the event over again."),
        repair="redeliver_payment",
    ),
)

PAYMENTS = Comparison(
    name="payments",
    title=_("Payments: our record, channel bill, journal"),
    prepare=(GATHER, JUDGE, BOOKED),
    drop="DROP TABLE payment_item",
    totals=TOTALS,
    timing=TIMING,
    rules=RULES,
)
