"""The account itself: what we record as paid and refunded ↔ the channel's fund-flow bill, movement by movement.

The trade bills say what was traded; the fund-flow bill says what the account really gained and lost, with the balance
after each movement. One item per payment and refund, judged on the day of the bill that names it. What another
comparison already reports (a payment that the trade bill does not know, say) is not reported twice. Fees are compared
as one sum, withdrawals are shown, movements of any other kind are findings, and each balance has to follow from the
one before it, also across days.
"""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from reconciliation.rules import DAY, Comparison, Rule

# Two clocks stamp one movement; around midnight both days' bills must be there before anything is called missing.
SKEW = "interval '10 minutes'"

KIND = """CASE
    WHEN l.trade_state LIKE '%%手续费%%' OR l.trade_state LIKE '%%服务费%%' OR l.trade_state = '收费' THEN 'fee'
    WHEN l.is_income AND l.trade_state IN ('交易', '在线支付') THEN 'payment'
    WHEN NOT l.is_income AND l.trade_state IN ('退款', '交易退款') THEN 'refund'
    WHEN l.trade_state IN ('提现', '充值') THEN 'transfer'
    ELSE 'other' END"""
SIGNED = "CASE WHEN l.is_income THEN l.amount_fen ELSE -l.amount_fen END"
OUR_BILLS = "(%(merchant_id)s::uuid IS NULL OR b.merchant_id = %(merchant_id)s::uuid)"

GATHER = f"""
CREATE TEMPORARY TABLE flow_item ON COMMIT DROP AS
WITH near AS MATERIALIZED (
    SELECT l.merchant_id, l.channel, l.row_no, l.trade_no, l.reference, l.amount_fen, b.bill_on, {KIND} AS kind
    FROM channel_bill b JOIN bill_line l ON l.bill_id = b.id
    WHERE b.kind = 'fundflow' AND b.state = 'PARSED' AND b.bill_on BETWEEN %(day)s::date - 2 AND %(day)s::date + 2
      AND {OUR_BILLS}
), subject AS MATERIALIZED (
    -- Ours of the day, as far as its fund-flow bill is there, and whatever that bill names.
    SELECT 'payment' AS kind, p.merchant_id, p.channel, p.trade_no AS number FROM payment p
    WHERE p.status = 'PAID' AND p.kind <> 'none'
      AND p.paid_at >= %(day_start)s::timestamptz AND p.paid_at < %(day_end)s::timestamptz
      AND EXISTS (SELECT FROM channel_bill b WHERE b.merchant_id = p.merchant_id AND b.channel = p.channel
                  AND b.kind = 'fundflow' AND b.bill_on = %(day)s::date AND b.state IN ('PARSED', 'EMPTY'))
      AND (%(merchant_id)s::uuid IS NULL OR p.merchant_id = %(merchant_id)s::uuid)
    UNION
    SELECT 'refund', a.merchant_id, p.channel, a.number FROM refund_attempt a JOIN payment p ON p.id = a.payment_id
    WHERE a.status = 'SUCCESS'
      AND a.finished_at >= %(day_start)s::timestamptz AND a.finished_at < %(day_end)s::timestamptz
      AND EXISTS (SELECT FROM channel_bill b WHERE b.merchant_id = p.merchant_id AND b.channel = p.channel
                  AND b.kind = 'fundflow' AND b.bill_on = %(day)s::date AND b.state IN ('PARSED', 'EMPTY'))
      AND (%(merchant_id)s::uuid IS NULL OR a.merchant_id = %(merchant_id)s::uuid)
    UNION
    SELECT n.kind, n.merchant_id, n.channel, CASE n.kind WHEN 'payment' THEN n.trade_no ELSE n.reference END
    FROM near n WHERE n.bill_on = %(day)s::date AND n.kind IN ('payment', 'refund')
), line AS MATERIALIZED (
    SELECT DISTINCT ON (x.kind, x.merchant_id, x.channel, x.number) x.*,
           count(*) OVER (PARTITION BY x.kind, x.merchant_id, x.channel, x.number) AS lines
    FROM (
        SELECT n.kind, n.merchant_id, n.channel, n.trade_no AS number, n.amount_fen, n.bill_on, n.row_no
        FROM near n WHERE n.kind = 'payment'
        UNION ALL
        -- A refund moves the account when it is accepted, which may be many days before it is done.
        SELECT s.kind, s.merchant_id, s.channel, s.number, l.amount_fen, b.bill_on, l.row_no
        FROM subject s
        JOIN bill_line l ON l.merchant_id = s.merchant_id AND l.reference = s.number AND l.channel = s.channel
        JOIN channel_bill b ON b.id = l.bill_id AND b.kind = 'fundflow' AND b.state = 'PARSED'
        WHERE s.kind = 'refund' AND l.reference <> '' AND {KIND} = 'refund'
    ) x
    ORDER BY x.kind, x.merchant_id, x.channel, x.number, x.bill_on, x.row_no
), told AS MATERIALIZED (
    -- What the channel's trade and refund bills say of the same numbers: the part that reaches or leaves the account.
    SELECT DISTINCT ON (x.kind, x.merchant_id, x.channel, x.number) x.* FROM (
        SELECT 'payment' AS kind, l.merchant_id, l.channel, l.trade_no AS number,
               coalesce(l.payer_fen, l.amount_fen) AS amount_fen, '' AS state
        FROM channel_bill b JOIN bill_line l ON l.bill_id = b.id
        WHERE b.kind = 'trade' AND b.state = 'PARSED' AND l.kind = 'payment'
          AND b.bill_on BETWEEN %(day)s::date - 2 AND %(day)s::date + 2 AND {OUR_BILLS}
        UNION ALL
        SELECT 'refund', s.merchant_id, s.channel, s.number, coalesce(l.payer_fen, l.amount_fen), l.refund_state
        FROM subject s JOIN bill_line l ON l.merchant_id = s.merchant_id AND l.refund_no = s.number
        WHERE s.kind = 'refund' AND l.refund_no <> '' AND l.kind = 'refund' AND l.channel = s.channel
    ) x ORDER BY x.kind, x.merchant_id, x.channel, x.number
)
SELECT s.kind, s.merchant_id, s.channel, s.number, coalesce(p.order_no, r.order_no) AS order_no,
       coalesce(p.amount_fen, a.amount_fen) AS ours_fen, coalesce(p.status, a.status) AS status,
       coalesce(p.paid_at, a.created_at) AS ours_from, coalesce(p.paid_at, a.finished_at) AS ours_until,
       t.amount_fen AS told_fen, t.number IS NOT NULL AS told, coalesce(t.state, '') IN ('FAIL', 'CLOSED') AS told_dead,
       f.amount_fen AS theirs_fen, f.bill_on, coalesce(f.lines, 0) AS lines,
       0::bigint AS expected_fen, ''::text AS problem
FROM subject s
LEFT JOIN payment p ON s.kind = 'payment' AND p.merchant_id = s.merchant_id AND p.channel = s.channel
                   AND p.trade_no = s.number AND p.status = 'PAID'
LEFT JOIN refund_attempt a ON s.kind = 'refund' AND a.merchant_id = s.merchant_id AND a.number = s.number
LEFT JOIN refund_request r ON r.id = a.request_id
LEFT JOIN line f ON f.kind = s.kind AND f.merchant_id = s.merchant_id AND f.channel = s.channel AND f.number = s.number
LEFT JOIN told t ON t.kind = s.kind AND t.merchant_id = s.merchant_id AND t.channel = s.channel AND t.number = s.number
"""

# One movement is judged on one day: that of the bill it stands in. Twice is seen from both days.
ELSEWHERE = "DELETE FROM flow_item WHERE lines = 1 AND bill_on <> %(day)s::date"


def _days(condition: str) -> str:
    """Every day on which the movement may have been booked has a bill for which `condition` holds."""
    return f"""NOT EXISTS (
        SELECT FROM generate_series(((i.ours_from - {SKEW}) AT TIME ZONE 'Asia/Shanghai')::date::timestamp,
                                    ((i.ours_until + {SKEW}) AT TIME ZONE 'Asia/Shanghai')::date::timestamp,
                                    interval '1 day') AS d(on_day)
        WHERE NOT EXISTS (SELECT FROM channel_bill b WHERE b.merchant_id = i.merchant_id AND b.channel = i.channel
                          AND b.bill_on = d.on_day::date AND b.state IN ('PARSED', 'EMPTY') AND {condition}))"""


_TRADE_KIND = "b.kind = CASE i.kind WHEN 'payment' THEN 'trade' ELSE 'refund' END"

JUDGE = f"""
UPDATE flow_item i SET
    expected_fen = CASE WHEN i.theirs_fen = i.ours_fen THEN i.ours_fen ELSE coalesce(i.told_fen, i.ours_fen) END,
    problem = CASE
        WHEN i.lines > 1 THEN 'FLOW_TWICE'
        WHEN coalesce(i.status, '') IN ('', 'CLOSED', 'REFUSED') AND NOT i.told THEN CASE WHEN EXISTS (
             SELECT FROM channel_bill b WHERE b.merchant_id = i.merchant_id AND b.channel = i.channel
             AND b.bill_on = i.bill_on AND {_TRADE_KIND} AND b.state IN ('PARSED', 'EMPTY'))
             THEN 'FLOW_NOT_OURS' ELSE '' END
        WHEN i.lines > 0 AND i.theirs_fen IS DISTINCT FROM i.ours_fen AND i.theirs_fen IS DISTINCT FROM i.told_fen
             THEN 'FLOW_AMOUNT_DIFFERS'
        WHEN i.lines = 0 AND i.status IN ('PAID', 'SUCCESS') AND coalesce(i.told_fen, i.ours_fen) <> 0
             AND {_days("b.kind = 'fundflow'")}
             AND (i.told AND NOT i.told_dead OR NOT i.told AND NOT ({_days(_TRADE_KIND)}))
             THEN 'FLOW_MISSING'
        ELSE '' END
"""

# The account's day: where it began and ended, whether one balance follows from the other, and all that is no trade.
# Befores and afters of a whole chain cancel out except its two ends, whatever the order of the rows.
ACCOUNT = f"""
CREATE TEMPORARY TABLE flow_account ON COMMIT DROP AS
WITH today AS MATERIALIZED (
    SELECT b.id, b.account_id, b.merchant_id, b.channel, b.bill_on, c.mchid, m.code AS shop,
           (SELECT p.id FROM channel_bill p WHERE p.account_id = b.account_id AND p.kind = 'fundflow'
            AND p.state = 'PARSED' AND p.bill_on < b.bill_on AND p.bill_on > b.bill_on - 31
            ORDER BY p.bill_on DESC LIMIT 1) AS before_id
    FROM channel_bill b JOIN channel_account c ON c.id = b.account_id JOIN merchant m ON m.id = b.merchant_id
    WHERE b.kind = 'fundflow' AND b.state = 'PARSED' AND b.bill_on = %(day)s::date AND {OUR_BILLS}
), line AS MATERIALIZED (
    SELECT l.bill_id, l.row_no, l.is_income, l.amount_fen, l.balance_fen, {SIGNED} AS moved_fen, {KIND} AS kind
    FROM bill_line l WHERE l.bill_id IN (SELECT id FROM today UNION SELECT before_id FROM today)
), step AS MATERIALIZED (
    SELECT x.bill_id, x.balance_fen, sum(x.n) AS n FROM (
        SELECT bill_id, balance_fen - moved_fen AS balance_fen, 1 AS n FROM line
        UNION ALL SELECT bill_id, balance_fen, -1 FROM line
    ) x GROUP BY x.bill_id, x.balance_fen HAVING sum(x.n) <> 0
), ends AS MATERIALIZED (
    SELECT bill_id, sum(abs(n))::bigint / 2 AS pieces, min(balance_fen) FILTER (WHERE n > 0) AS opening_fen,
           min(balance_fen) FILTER (WHERE n < 0) AS closing_fen
    FROM step GROUP BY bill_id
), whole AS MATERIALIZED (
    SELECT l.bill_id, count(*) AS rows, sum(l.moved_fen)::bigint AS moved_fen,
           (array_agg(l.balance_fen - l.moved_fen ORDER BY l.row_no))[1] AS first_fen,
           count(*) FILTER (WHERE l.kind = 'fee') AS fees,
           coalesce(-sum(l.moved_fen) FILTER (WHERE l.kind = 'fee'), 0)::bigint AS fee_fen,
           count(*) FILTER (WHERE l.kind = 'transfer') AS transfers,
           coalesce(sum(l.moved_fen) FILTER (WHERE l.kind = 'transfer'), 0)::bigint AS transfer_fen,
           count(*) FILTER (WHERE l.kind = 'other') AS others,
           coalesce(sum(l.moved_fen) FILTER (WHERE l.kind = 'other'), 0)::bigint AS other_fen
    FROM line l GROUP BY l.bill_id
), charged AS MATERIALIZED (
    SELECT b.account_id, count(*) FILTER (WHERE l.fee_yuan <> 0) AS fees,
           sum(CASE l.kind WHEN 'payment' THEN abs(l.fee_yuan) WHEN 'refund' THEN -abs(l.fee_yuan) END) * 100 AS fee_fen
    FROM channel_bill b JOIN bill_line l ON l.bill_id = b.id
    WHERE b.kind IN ('trade', 'refund') AND b.state = 'PARSED' AND b.bill_on = %(day)s::date AND {OUR_BILLS}
    GROUP BY b.account_id
)
SELECT t.*, w.rows, w.moved_fen, coalesce(e.pieces, 1) AS pieces, w.fees, w.fee_fen, w.transfers, w.transfer_fen,
       w.others, w.other_fen, coalesce(c.fees, 0) AS told_fees, round(coalesce(c.fee_fen, 0))::bigint AS told_fee_fen,
       abs(w.fee_fen - coalesce(c.fee_fen, 0)) > (w.fees + coalesce(c.fees, 0)) * 0.5 AS fees_differ,
       CASE WHEN e.pieces = 1 THEN e.opening_fen ELSE w.first_fen END AS opening_fen,
       CASE WHEN e.pieces = 1 THEN e.closing_fen ELSE w.first_fen + w.moved_fen END AS closing_fen,
       y.bill_on AS before_on,
       CASE WHEN e.pieces = 1 AND ye.pieces = 1 AND t.bill_on - y.bill_on - 1 = (
                SELECT count(*) FROM channel_bill g WHERE g.account_id = t.account_id AND g.kind = 'fundflow'
                AND g.state = 'EMPTY' AND g.bill_on > y.bill_on AND g.bill_on < t.bill_on)
            THEN ye.closing_fen END AS before_fen
FROM today t JOIN whole w ON w.bill_id = t.id
LEFT JOIN ends e ON e.bill_id = t.id
LEFT JOIN channel_bill y ON y.id = t.before_id
LEFT JOIN ends ye ON ye.bill_id = t.before_id
LEFT JOIN charged c ON c.account_id = t.account_id
"""

# One row per kind of movement, between the balance of the morning and that of the evening.
TOTALS = """
SELECT m.code AS merchant, x.channel, x.kind, x.items::bigint AS items, x.matched::bigint AS matched,
       x.ours_count::bigint AS ours_count, x.ours_fen::bigint AS ours_fen, x.theirs_count::bigint AS theirs_count,
       x.theirs_fen::bigint AS theirs_fen, 0 AS timing
FROM (
    SELECT i.merchant_id, i.channel, i.kind, CASE i.kind WHEN 'payment' THEN 2 ELSE 3 END AS place, count(*) AS items,
           -- What is missing here and already found by another comparison is no finding, but does not agree either.
           count(*) FILTER (WHERE i.problem = '' AND i.status IS NOT NULL AND (
               i.lines > 0 OR i.told AND NOT i.told_dead OR i.expected_fen = 0)) AS matched,
           count(*) FILTER (WHERE i.status IS NOT NULL) AS ours_count,
           coalesce(sum(i.expected_fen) FILTER (WHERE i.status IS NOT NULL), 0) AS ours_fen,
           coalesce(sum(i.lines), 0) AS theirs_count, coalesce(sum(i.theirs_fen * i.lines), 0) AS theirs_fen
    FROM flow_item i GROUP BY i.merchant_id, i.channel, i.kind
    UNION ALL
    SELECT a.merchant_id, a.channel, v.kind, v.place, 0, 0, v.ours_count, v.ours_fen, v.theirs_count, v.theirs_fen
    FROM flow_account a CROSS JOIN LATERAL (VALUES
        ('opening', 1, NULL, a.before_fen, NULL, a.opening_fen),
        ('fee', 4, a.told_fees, a.told_fee_fen, a.fees, a.fee_fen),
        ('transfer', 5, NULL, NULL, a.transfers, a.transfer_fen),
        ('other', 6, NULL, NULL, a.others, a.other_fen),
        ('closing', 7, NULL, NULL, NULL, a.closing_fen)
    ) AS v(kind, place, ours_count, ours_fen, theirs_count, theirs_fen)
    WHERE v.place IN (1, 7) OR v.theirs_count > 0 OR v.ours_count > 0
) x LEFT JOIN merchant m ON m.id = x.merchant_id
ORDER BY m.code, x.channel, x.place
"""

TIMING = """
SELECT i.merchant_id, i.number, '{}'::jsonb AS ours, '{}'::jsonb AS theirs, NULL::timestamptz AS settled_at
FROM flow_item i WHERE FALSE
"""


def _finds(problem: str) -> str:
    return f"""
        SELECT i.kind || ':' || i.number AS key, i.merchant_id,
               jsonb_strip_nulls(jsonb_build_object(
                   CASE i.kind WHEN 'payment' THEN 'trade_no' ELSE 'refund_no' END, i.number, 'order_no', i.order_no,
                   'status', i.status, 'amount_fen', i.ours_fen)) AS ours,
               jsonb_strip_nulls(jsonb_build_object(
                   'channel', i.channel, 'amount_fen', i.theirs_fen, 'bill_on', i.bill_on, 'lines', i.lines,
                   'trade_bill_fen', i.told_fen)) AS theirs,
               abs(CASE i.problem WHEN 'FLOW_AMOUNT_DIFFERS' THEN i.theirs_fen - i.expected_fen
                   ELSE coalesce(i.theirs_fen, i.expected_fen) END) AS amount_fen
        FROM flow_item i WHERE i.problem = '{problem}'"""


_ACCOUNT_KEY = "concat_ws(':', a.shop, a.mchid, a.bill_on)"

_BALANCE = f"""
    SELECT {_ACCOUNT_KEY} AS key, a.merchant_id,
           jsonb_build_object('previous_bill', a.before_on, 'previous_balance_fen', a.before_fen) AS ours,
           jsonb_build_object('channel', a.channel, 'bill_on', a.bill_on, 'opening_fen', a.opening_fen,
                              'closing_fen', a.closing_fen, 'breaks', a.pieces - 1) AS theirs,
           coalesce(abs(a.opening_fen - a.before_fen), 0) AS amount_fen
    FROM flow_account a WHERE a.pieces > 1 OR a.opening_fen <> a.before_fen"""

# An account whose fees are taken from another purse shows none here; then there is nothing to compare.
_FEES = f"""
    SELECT {_ACCOUNT_KEY} AS key, a.merchant_id,
           jsonb_build_object('trade_bill_fen', a.told_fee_fen, 'lines', a.told_fees) AS ours,
           jsonb_build_object('channel', a.channel, 'bill_on', a.bill_on, 'amount_fen', a.fee_fen,
                              'lines', a.fees) AS theirs,
           abs(a.fee_fen - a.told_fee_fen) AS amount_fen
    FROM flow_account a WHERE a.fees > 0 AND a.fees_differ
      AND 2 = (SELECT count(*) FROM channel_bill b WHERE b.account_id = a.account_id AND b.bill_on = a.bill_on
               AND b.kind IN ('trade', 'refund') AND b.state IN ('PARSED', 'EMPTY'))"""

_OTHER = f"""
    SELECT {_ACCOUNT_KEY} || ':' || l.row_no AS key, l.merchant_id, '{{}}'::jsonb AS ours,
           jsonb_build_object('channel', l.channel, 'bill_on', a.bill_on, 'movement', l.trade_state,
                              'amount_fen', {SIGNED}, 'number', l.trade_no, 'reference', l.reference) AS theirs,
           l.amount_fen
    FROM flow_account a JOIN bill_line l ON l.bill_id = a.id
    WHERE a.others > 0 AND {KIND} = 'other'"""

RULES = (
    Rule(
        code="FLOW_MISSING",
        severity="P0",
        scope=DAY,
        sql=_finds("FLOW_MISSING"),
        title=_("Paid or refunded, but the account did not move"),
        advice=_("The channel's trade bill and we agree, its fund-flow bill does not show the money. Ask the channel."),
    ),
    Rule(
        code="FLOW_NOT_OURS",
        severity="P0",
        scope=DAY,
        sql=_finds("FLOW_NOT_OURS"),
        title=_("The account moved for a payment or refund that nobody knows"),
        advice=_(
            "Neither our books nor the channel's trade bills name it. Find out who moved the money, and for what."
        ),
    ),
    Rule(
        code="FLOW_AMOUNT_DIFFERS",
        severity="P0",
        scope=DAY,
        sql=_finds("FLOW_AMOUNT_DIFFERS"),
        title=_("The account moved by another amount"),
        advice=_("Neither our amount nor that of the channel's trade bill. Keep both bills and ask the channel."),
    ),
    Rule(
        code="FLOW_TWICE",
        severity="P0",
        scope=DAY,
        sql=_finds("FLOW_TWICE"),
        title=_("The account moved twice for one number"),
        advice=_("Money came or left twice. Ask the channel which movement stands; keep the bill."),
    ),
    Rule(
        code="FLOW_OTHER_KIND",
        severity="P1",
        scope=DAY,
        sql=_OTHER,
        title=_("The account moved for something that is no trade"),
        advice=_(
            "Not a payment, refund, fee, withdrawal or top-up. If it is in order, say so in the reason when you accept"
            " it."
        ),
    ),
    Rule(
        code="FLOW_BALANCE_BROKEN",
        severity="P1",
        scope=DAY,
        sql=_BALANCE,
        title=_("Balance of the account does not follow from its movements"),
        advice=_("A movement is missing in the bill, or in the bill of the day before. Download both again."),
    ),
    Rule(
        code="FLOW_FEES_DIFFER",
        severity="P2",
        scope=DAY,
        sql=_FEES,
        title=_("Fees taken from the account differ from those of the trade bill"),
        advice=_("Beyond rounding. Compare the rate that was agreed with the one in the trade bill."),
    ),
)

FLOWS = Comparison(
    name="flows",
    title=_("The account: our record, fund-flow bill"),
    prepare=(GATHER, ELSEWHERE, JUDGE, ACCOUNT),
    drop="DROP TABLE flow_item, flow_account",
    totals=TOTALS,
    timing=TIMING,
    rules=RULES,
)
