"""Refunds, three ways: the after-sales order and its refund ↔ the channel's own bill ↔ the journal.

One row per refund number. Ours is everything that succeeded on the day, whatever bill it stands in, and
everything that the day's bills or the day's journal name. A refund stands in the bill of the day on which
the channel *accepted* it and its line is never updated afterwards, so a line of another day is a timing
item, not a difference. Balance, offline and zero refunds have no channel side; they are compared two ways.
"""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from reconciliation.rules import DAY, Comparison, Rule

# A booking may follow its refund by some seconds (it is an event); younger ones are not missed yet.
GRACE = "interval '5 minutes'"

GATHER = """
CREATE TEMPORARY TABLE refund_item ON COMMIT DROP AS
WITH named AS MATERIALIZED (
    SELECT r.merchant_id, r.refund_no FROM refund_request r
    WHERE r.status = 'SUCCEEDED'
      AND r.succeeded_at >= %(day_start)s::timestamptz AND r.succeeded_at < %(day_end)s::timestamptz
      AND (%(merchant_id)s::uuid IS NULL OR r.merchant_id = %(merchant_id)s::uuid)
    UNION
    SELECT a.merchant_id, a.number FROM refund_attempt a
    WHERE a.status = 'SUCCESS'
      AND a.finished_at >= %(day_start)s::timestamptz AND a.finished_at < %(day_end)s::timestamptz
      AND (%(merchant_id)s::uuid IS NULL OR a.merchant_id = %(merchant_id)s::uuid)
    UNION
    SELECT l.merchant_id, l.refund_no FROM channel_bill b JOIN bill_line l ON l.bill_id = b.id
    WHERE b.bill_on = %(day)s::date AND b.state = 'PARSED' AND l.kind = 'refund'
      AND (%(merchant_id)s::uuid IS NULL OR l.merchant_id = %(merchant_id)s::uuid)
    UNION
    SELECT e.merchant_id, e.reference FROM journal_entry e
    WHERE e.kind = 'refund'
      AND e.posted_at >= %(day_start)s::timestamptz AND e.posted_at < %(day_end)s::timestamptz
      AND (%(merchant_id)s::uuid IS NULL OR e.merchant_id = %(merchant_id)s::uuid)
), known AS MATERIALIZED (
    -- Which request a number belongs to: by its attempt, or (balance, offline) by the request's own number.
    SELECT n.merchant_id, n.refund_no, a.id AS attempt_id, coalesce(a.request_id, r.id) AS request_id
    FROM named n
    LEFT JOIN refund_attempt a ON a.merchant_id = n.merchant_id AND a.number = n.refund_no
    LEFT JOIN refund_request r ON a.id IS NULL AND r.merchant_id = n.merchant_id AND r.refund_no = n.refund_no
), line AS MATERIALIZED (
    -- The refund bill where the channel has one, else the refund lines of its only bill. `lines` counts how
    -- often that kind of bill names the number, on whatever day.
    SELECT DISTINCT ON (l.merchant_id, l.refund_no)
           l.merchant_id, l.refund_no, l.refund_id, l.channel, l.amount_fen, l.refund_state, b.bill_on,
           count(*) OVER (PARTITION BY l.merchant_id, l.refund_no, b.kind) AS lines
    FROM named n JOIN bill_line l ON l.merchant_id = n.merchant_id AND l.refund_no = n.refund_no
    JOIN channel_bill b ON b.id = l.bill_id AND b.state = 'PARSED'
    WHERE l.kind = 'refund' AND l.refund_no <> ''
    ORDER BY l.merchant_id, l.refund_no, (b.kind = 'refund') DESC, b.bill_on, l.row_no
), booked AS MATERIALIZED (
    SELECT n.merchant_id, n.refund_no, count(DISTINCT e.id) AS entries,
           -sum(l.amount_fen) FILTER (WHERE l.account LIKE 'channel_clearing:%%') AS amount_fen
    FROM named n JOIN journal_entry e ON e.merchant_id = n.merchant_id AND e.reference = n.refund_no
    JOIN journal_line l ON l.entry_id = e.id
    WHERE e.kind = 'refund'
    GROUP BY n.merchant_id, n.refund_no
), success AS MATERIALIZED (
    SELECT a.request_id, count(*) AS successes FROM refund_attempt a
    WHERE a.status = 'SUCCESS' AND a.request_id IN (SELECT k.request_id FROM known k)
    GROUP BY a.request_id
)
SELECT n.merchant_id, n.refund_no,
       CASE WHEN r.route IN ('balance', 'offline') THEN r.route
            ELSE coalesce(p.channel, t.channel, 'unknown') END AS channel,
       CASE WHEN r.route IN ('balance', 'offline') AND r.status = 'SUCCEEDED' THEN 'SUCCESS'
            ELSE a.status END AS status,
       coalesce(a.amount_fen, r.amount_fen) AS ours_fen, coalesce(a.created_at, r.created_at) AS created_at,
       CASE WHEN r.refund_no = n.refund_no THEN r.succeeded_at ELSE a.finished_at END AS succeeded_at,
       coalesce(CASE WHEN r.refund_no = n.refund_no THEN r.recorded_at END, a.finished_at) AS recorded_at,
       r.id AS request_id, r.owner_kind, r.owner_no, coalesce(x.successes, 0) AS successes,
       t.amount_fen AS theirs_fen, t.refund_state AS theirs_state, t.bill_on, t.refund_id,
       coalesce(t.lines, 0) AS lines,
       j.amount_fen AS booked_fen, coalesce(j.entries, 0) AS entries,
       s.status AS claim_status, s.approved_goods_fen + s.approved_freight_fen AS claim_fen,
       FALSE AS has_channel_side, FALSE AS proven_absent, FALSE AS timing, ''::text AS problem
FROM known n
LEFT JOIN refund_attempt a ON a.id = n.attempt_id
LEFT JOIN refund_request r ON r.id = n.request_id
LEFT JOIN payment p ON p.id = r.payment_id
LEFT JOIN success x ON x.request_id = r.id
LEFT JOIN line t ON t.merchant_id = n.merchant_id AND t.refund_no = n.refund_no
LEFT JOIN booked j ON j.merchant_id = n.merchant_id AND j.refund_no = n.refund_no
LEFT JOIN after_sales_order s ON r.owner_kind = 'after_sales' AND s.merchant_id = n.merchant_id
                             AND s.after_sales_no = r.owner_no
"""

# Absence from the bills is proven only when every day on which the channel may have accepted it has a bill.
ABSENCE = """
UPDATE refund_item i SET
    has_channel_side = i.channel IN ('wechat', 'alipay'),
    proven_absent = i.channel IN ('wechat', 'alipay') AND i.status = 'SUCCESS' AND i.lines = 0 AND NOT EXISTS (
        SELECT FROM generate_series((i.created_at AT TIME ZONE 'Asia/Shanghai')::date::timestamp,
                                    (i.succeeded_at AT TIME ZONE 'Asia/Shanghai')::date::timestamp,
                                    interval '1 day') AS d(on_day)
        WHERE NOT EXISTS (SELECT FROM channel_bill b
                          WHERE b.merchant_id = i.merchant_id AND b.channel = i.channel
                            AND b.kind = 'refund'
                            AND b.bill_on = d.on_day::date AND b.state IN ('PARSED', 'EMPTY'))),
    timing = i.status = 'SUCCESS' AND i.lines > 0 AND i.theirs_state NOT IN ('FAIL', 'CLOSED')
             AND (i.succeeded_at AT TIME ZONE 'Asia/Shanghai')::date <> i.bill_on
"""

# One verdict per item, the gravest first; repairing it lets the next one show.
JUDGE = f"""
UPDATE refund_item SET problem = CASE
    WHEN successes > 1 AND status = 'SUCCESS' OR lines > 1 THEN 'REFUND_TWICE'
    WHEN status IS NULL AND lines > 0 THEN 'REFUND_MISSING_HERE'
    WHEN lines > 0 AND ours_fen <> theirs_fen THEN 'REFUND_AMOUNT_DIFFERS'
    WHEN lines > 0 AND status = 'SUCCESS' AND NOT timing AND theirs_state IN ('FAIL', 'CLOSED', 'CHANGE', 'ABNORMAL')
         THEN 'REFUND_STATUS_DIFFERS'
    WHEN lines > 0 AND theirs_state = 'SUCCESS' AND status <> 'SUCCESS' THEN 'REFUND_STATUS_DIFFERS'
    WHEN proven_absent THEN 'REFUND_MISSING_AT_CHANNEL'
    WHEN entries > 0 AND status IS DISTINCT FROM 'SUCCESS' THEN 'REFUND_BOOKED_NOT_MADE'
    WHEN entries > 1 OR entries > 0 AND booked_fen IS DISTINCT FROM ours_fen THEN 'REFUND_BOOKED_WRONG'
    WHEN status = 'SUCCESS' AND entries = 0 AND recorded_at < %(now)s::timestamptz - {GRACE}
         THEN 'REFUND_NOT_BOOKED'
    WHEN status = 'SUCCESS' AND owner_kind = 'after_sales' AND claim_fen IS DISTINCT FROM ours_fen
         THEN 'REFUND_NOT_AS_APPROVED'
    WHEN status = 'SUCCESS' AND owner_kind = 'after_sales' AND claim_status <> 'REFUND_SUCCESS'
         AND recorded_at < %(now)s::timestamptz - {GRACE} THEN 'CLAIM_BEHIND_REFUND'
    ELSE '' END
"""

# Claims that call themselves refunded though no refund of theirs succeeded. Nothing to pay is nothing to find.
CLAIMS = """
INSERT INTO refund_item (merchant_id, refund_no, channel, owner_kind, owner_no, claim_status, claim_fen,
                         successes, lines, entries, has_channel_side, proven_absent, timing, problem)
SELECT s.merchant_id, s.after_sales_no, CASE WHEN due.fen = 0 THEN 'zero' ELSE 'unknown' END,
       'after_sales', s.after_sales_no, s.status, due.fen, 0, 0, 0, FALSE, FALSE, FALSE,
       CASE WHEN due.fen = 0 THEN '' ELSE 'CLAIM_WITHOUT_REFUND' END
FROM after_sales_order s CROSS JOIN LATERAL (SELECT s.approved_goods_fen + s.approved_freight_fen AS fen) due
WHERE s.status = 'REFUND_SUCCESS'
  AND s.finished_at >= %(day_start)s::timestamptz AND s.finished_at < %(day_end)s::timestamptz
  AND (%(merchant_id)s::uuid IS NULL OR s.merchant_id = %(merchant_id)s::uuid)
  AND NOT EXISTS (SELECT FROM refund_request r WHERE r.merchant_id = s.merchant_id
                  AND r.owner_kind = 'after_sales' AND r.owner_no = s.after_sales_no AND r.status = 'SUCCEEDED')
"""

# Each side counts what is its own on this day; what falls on different days is the timing column.
_OURS_TODAY = """(i.channel = 'zero' OR i.status = 'SUCCESS'
    AND i.succeeded_at >= %(day_start)s::timestamptz AND i.succeeded_at < %(day_end)s::timestamptz)"""
_THEIRS_TODAY = "(i.bill_on = %(day)s::date AND i.theirs_state NOT IN ('FAIL', 'CLOSED'))"

TOTALS = f"""
SELECT m.code AS merchant, i.channel,
       count(*) AS items, count(*) FILTER (WHERE i.problem = '') AS matched,
       count(*) FILTER (WHERE {_OURS_TODAY}) AS ours_count,
       coalesce(sum(i.ours_fen) FILTER (WHERE {_OURS_TODAY}), 0)::bigint AS ours_fen,
       count(*) FILTER (WHERE {_OURS_TODAY} AND i.claim_status = 'REFUND_SUCCESS') AS claims_count,
       coalesce(sum(i.claim_fen) FILTER (WHERE {_OURS_TODAY} AND i.claim_status = 'REFUND_SUCCESS'), 0)::bigint
           AS claims_fen,
       count(*) FILTER (WHERE {_OURS_TODAY} AND i.owner_kind = 'order_payment') AS orders_count,
       coalesce(sum(i.ours_fen) FILTER (WHERE {_OURS_TODAY} AND i.owner_kind = 'order_payment'), 0)::bigint
           AS orders_fen,
       count(*) FILTER (WHERE {_THEIRS_TODAY}) AS theirs_count,
       coalesce(sum(i.theirs_fen) FILTER (WHERE {_THEIRS_TODAY}), 0)::bigint AS theirs_fen,
       count(*) FILTER (WHERE i.entries > 0 AND {_OURS_TODAY}) AS booked_count,
       coalesce(sum(i.booked_fen) FILTER (WHERE {_OURS_TODAY}), 0)::bigint AS booked_fen,
       count(*) FILTER (WHERE i.timing) AS timing
FROM refund_item i LEFT JOIN merchant m ON m.id = i.merchant_id
GROUP BY m.code, i.channel ORDER BY m.code, i.channel
"""

TIMING = """
SELECT i.merchant_id, i.refund_no AS number,
       jsonb_build_object('status', i.status, 'amount_fen', i.ours_fen, 'succeeded_at', i.succeeded_at) AS ours,
       jsonb_build_object('state', i.theirs_state, 'amount_fen', i.theirs_fen, 'bill_on', i.bill_on) AS theirs,
       CASE WHEN i.status = 'SUCCESS' THEN i.succeeded_at END AS settled_at
FROM refund_item i
WHERE i.problem = '' AND (i.timing OR i.lines > 0 AND i.theirs_state NOT IN ('FAIL', 'CLOSED')
                          AND i.status IN ('CREATED', 'SENT', 'PROCESSING', 'ABNORMAL'))
"""


def _finds(problem: str, key: str = "i.refund_no") -> str:
    return f"""
        SELECT {key} AS key, i.merchant_id,
               jsonb_strip_nulls(jsonb_build_object(
                   'refund_no', i.refund_no, 'status', i.status, 'amount_fen', i.ours_fen,
                   'succeeded_at', i.succeeded_at, 'after_sales_no',
                   CASE WHEN i.owner_kind = 'after_sales' THEN i.owner_no END, 'owner_no', i.owner_no,
                   'claim_status', i.claim_status, 'claim_fen', i.claim_fen,
                   'booked_fen', i.booked_fen, 'bookings', i.entries, 'successes', i.successes)) AS ours,
               jsonb_strip_nulls(jsonb_build_object(
                   'channel', i.channel, 'refund_id', i.refund_id, 'state', i.theirs_state,
                   'amount_fen', i.theirs_fen, 'bill_on', i.bill_on, 'lines', i.lines)) AS theirs,
               abs(CASE WHEN i.problem IN ('REFUND_AMOUNT_DIFFERS') THEN i.ours_fen - i.theirs_fen
                        WHEN i.problem = 'REFUND_BOOKED_WRONG'
                        THEN coalesce(i.ours_fen, 0) - coalesce(i.booked_fen, 0)
                        WHEN i.problem = 'REFUND_NOT_AS_APPROVED'
                        THEN coalesce(i.ours_fen, 0) - coalesce(i.claim_fen, 0)
                        ELSE coalesce(i.ours_fen, i.theirs_fen, i.booked_fen, i.claim_fen) END) AS amount_fen
        FROM refund_item i WHERE i.problem = '{problem}'"""


RULES = (
    Rule(
        code="REFUND_TWICE",
        severity="P0",
        scope=DAY,
        sql=_finds("REFUND_TWICE", key="coalesce(i.owner_no, i.refund_no)"),
        title=_("Refunded twice"),
        advice=_(
            "Two refund numbers of one request succeeded, or the channel lists one twice. Keep both rows; agree with"
            " the buyer or the channel on getting one back, then accept this finding with the voucher as reason."
        ),
    ),
    Rule(
        code="REFUND_MISSING_HERE",
        severity="P0",
        scope=DAY,
        sql=_finds("REFUND_MISSING_HERE"),
        title=_("Refund at the channel that we never asked for"),
        advice=_("Money left the account without a refund of ours. Find out who refunded at the channel's own site."),
    ),
    Rule(
        code="REFUND_AMOUNT_DIFFERS",
        severity="P0",
        scope=DAY,
        sql=_finds("REFUND_AMOUNT_DIFFERS"),
        title=_("Refund amount differs from the channel's"),
        advice=_("The number carries another amount at the channel than here. Never retry it; ask the channel."),
    ),
    Rule(
        code="REFUND_STATUS_DIFFERS",
        severity="P1",
        scope=DAY,
        sql=_finds("REFUND_STATUS_DIFFERS"),
        title=_("Refund status differs from the channel's"),
        advice=_("We missed what the channel decided. The repair asks the channel and records its answer."),
        repair="query_refund",
    ),
    Rule(
        code="REFUND_MISSING_AT_CHANNEL",
        severity="P0",
        scope=DAY,
        sql=_finds("REFUND_MISSING_AT_CHANNEL"),
        title=_("Refund that the channel does not know"),
        advice=_(
            "We call it refunded, and no bill of the days in question names it: the buyer may not have the money."
            " Ask the channel by its number before anything else."
        ),
    ),
    Rule(
        code="REFUND_BOOKED_NOT_MADE",
        severity="P0",
        scope=DAY,
        sql=_finds("REFUND_BOOKED_NOT_MADE"),
        title=_("Refund in the journal that was not made"),
        advice=_("The journal holds a refund that did not succeed. Post its opposite with a reason."),
    ),
    Rule(
        code="REFUND_BOOKED_WRONG",
        severity="P0",
        scope=DAY,
        sql=_finds("REFUND_BOOKED_WRONG"),
        title=_("Refund booked with another amount, or twice"),
        advice=_("Post the difference with a reason; entries are never edited."),
    ),
    Rule(
        code="REFUND_NOT_BOOKED",
        severity="P1",
        scope=DAY,
        sql=_finds("REFUND_NOT_BOOKED"),
        title=_("Refund without its journal entry"),
        advice=_("The booking's event was lost or its consumer fails. The repair hands the event over again."),
        repair="redeliver_refund",
    ),
    Rule(
        code="REFUND_NOT_AS_APPROVED",
        severity="P0",
        scope=DAY,
        sql=_finds("REFUND_NOT_AS_APPROVED"),
        title=_("Refunded another amount than was approved"),
        advice=_("The after-sales order approved a different sum. Find out which is right before paying more."),
    ),
    Rule(
        code="CLAIM_BEHIND_REFUND",
        severity="P1",
        scope=DAY,
        sql=_finds("CLAIM_BEHIND_REFUND"),
        title=_("After-sales order does not know that its refund succeeded"),
        advice=_("The refund's event was lost or its consumer fails. The repair hands the event over again."),
        repair="redeliver_refund",
    ),
    Rule(
        code="CLAIM_WITHOUT_REFUND",
        severity="P0",
        scope=DAY,
        sql=_finds("CLAIM_WITHOUT_REFUND"),
        title=_("After-sales order refunded without a refund"),
        advice=_("It calls itself refunded, but no refund of its own succeeded: the buyer has no money."),
    ),
)

REFUNDS = Comparison(
    name="refunds",
    title=_("Refunds: after-sales, channel bill, journal"),
    prepare=(GATHER, ABSENCE, JUDGE, CLAIMS),
    drop="DROP TABLE refund_item",
    totals=TOTALS,
    timing=TIMING,
    rules=RULES,
)
