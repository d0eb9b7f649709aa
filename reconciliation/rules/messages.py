"""Messages that do not arrive, and bills that do not come."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from reconciliation.rules import DAY, STATE, Rule

_OUTBOX = """
SELECT e.id::text AS key, e.merchant_id,
       jsonb_build_object('event', e.name, 'subject', e.subject, 'created_at', e.created_at) AS ours,
       jsonb_build_object('state', e.state, 'last_error', left(e.last_error, 200)) AS theirs,
       NULL::bigint AS amount_fen
FROM outbox_event e
WHERE e.state = 'PENDING' AND e.created_at < %(now)s::timestamptz - interval '10 minutes'
  AND (%(merchant_id)s::uuid IS NULL OR e.merchant_id = %(merchant_id)s::uuid)
"""

_INBOX = """
SELECT m.consumer || ':' || m.event_id AS key, e.merchant_id,
       jsonb_build_object('consumer', m.consumer, 'state', m.state, 'since', m.created_at,
                          'error', left(m.last_error, 300)) AS ours,
       jsonb_build_object('event', m.event_name, 'subject', e.subject, 'event_id', m.event_id) AS theirs,
       NULL::bigint AS amount_fen
FROM inbox_message m LEFT JOIN outbox_event e ON e.id = m.event_id
WHERE {state}
  AND (%(merchant_id)s::uuid IS NULL OR e.merchant_id = %(merchant_id)s::uuid)
"""

_BILL = """
SELECT concat_ws(':', m.code, a.mchid, k.kind, %(day)s::date) AS key, a.merchant_id,
       jsonb_build_object('account', a.mchid, 'kind', k.kind, 'day', %(day)s::date,
                          'state', b.state, 'last_error', b.last_error) AS ours,
       jsonb_build_object('channel', a.channel) AS theirs, NULL::bigint AS amount_fen
FROM channel_account a JOIN merchant m ON m.id = a.merchant_id
CROSS JOIN unnest(ARRAY['trade', 'refund', 'fundflow']) AS k(kind)
LEFT JOIN channel_bill b ON b.account_id = a.id AND b.kind = k.kind AND b.bill_on = %(day)s::date
WHERE a.channel IN ('wechat', 'alipay') AND a.is_active AND a.created_at < %(day_end)s::timestamptz
  -- WeChat Pay has them at ten; of Alipay an empty day is known to be empty only after noon.
  AND %(now)s::timestamptz >= %(day_end)s::timestamptz
      + CASE a.channel WHEN 'alipay' THEN interval '13 hours' ELSE interval '10 hours' END
  AND (%(merchant_id)s::uuid IS NULL OR a.merchant_id = %(merchant_id)s::uuid)
  AND coalesce(a.settings -> 'bills', to_jsonb(k.kind)) @> to_jsonb(k.kind)
  AND {state}
"""

RULES = (
    Rule(
        code="OUTBOX_LATE",
        severity="P1",
        scope=STATE,
        sql=_OUTBOX,
        title=_("Event not published"),
        advice=_("The relay does not run, or cannot reach Valkey. See the runbook of relay_outbox."),
    ),
    Rule(
        code="INBOX_DEAD",
        severity="P1",
        scope=STATE,
        sql=_INBOX.format(state="m.state = 'DEAD'"),
        title=_("Message given up by its consumer"),
        advice=_("Read the error, mend its cause, then let the repair give the message its tries back."),
        repair="revive_message",
    ),
    Rule(
        code="INBOX_FAILING",
        severity="P2",
        scope=STATE,
        sql=_INBOX.format(
            state="m.state IN ('FAILED', 'RUNNING') AND m.created_at < %(now)s::timestamptz - interval '30 minutes'"
        ),
        title=_("Message failing for more than half an hour"),
        advice=_("It is still tried. Read the error now: it may be the first of many."),
    ),
    Rule(
        code="BILL_MISSING",
        severity="P2",
        scope=DAY,
        sql=_BILL.format(state="(b.id IS NULL OR b.state = 'WAITING')"),
        title=_("Channel bill not there"),
        advice=_("Bills come after 10:00 of the next day. Until then this account's day is not judged."),
        repair="download_bill",
    ),
    Rule(
        code="BILL_CORRUPT",
        severity="P1",
        scope=DAY,
        sql=_BILL.format(state="b.state = 'CORRUPT'"),
        title=_("Channel bill does not add up"),
        advice=_("Its hash or its summary disagrees with its rows. The repair downloads it again."),
        repair="download_bill",
    ),
)
