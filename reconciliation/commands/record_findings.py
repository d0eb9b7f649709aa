"""Turn what a rule sees into findings: one statement, whatever the number of rows."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from kernel import outbox
from reconciliation.rules import DAY, Rule

# Snapshot rules: every part of the statement sees the table as it was before, so `before` still knows
# the state that the upsert is about to overwrite. A finding is opened again when it was closed by a run,
# when its repair did not help, or when an accepted one shows other figures than those accepted.
# `shop` stands for the merchant in joins: two merchants may use the same SKU or user id, and a row without a
# merchant is one of its own; coalesced, because IS NOT DISTINCT FROM cannot be hashed.
_SHOP = "coalesce({}.merchant_id, '00000000-0000-0000-0000-000000000000'::uuid)"
_RECORD = """
WITH seen AS MATERIALIZED (
    SELECT DISTINCT ON (s.key, {shop_s}) s.key, {shop_s} AS shop, s.merchant_id, s.ours, s.theirs, s.amount_fen
    FROM ({select}) AS s
    WHERE %(only_key)s::text IS NULL
       OR (s.key = %(only_key)s::text AND s.merchant_id IS NOT DISTINCT FROM %(merchant_id)s::uuid)
    ORDER BY s.key, {shop_s}
), before AS MATERIALIZED (
    SELECT f.id, f.key, s.shop, f.state,
           f.state IN ('RESOLVED', 'REPAIRED')
           OR (f.state = 'ACCEPTED' AND (f.ours, f.theirs) IS DISTINCT FROM (s.ours, s.theirs)) AS reopens
    FROM finding f JOIN seen s ON s.key = f.key AND s.shop = {shop_f} WHERE f.rule = %(rule)s
), opened AS (
    INSERT INTO finding (id, rule, key, merchant_id, severity, on_date, ours, theirs, amount_fen, state,
                         version, times_opened, accepted_reason, first_seen_at, last_seen_at, last_run_id)
    SELECT gen_random_uuid(), %(rule)s, s.key, s.merchant_id, %(severity)s, {on_date}, s.ours, s.theirs,
           coalesce(s.amount_fen, 0), 'OPEN', 1, 1, '', %(now)s, %(now)s, %(run)s
    FROM seen s WHERE NOT EXISTS (SELECT FROM before b WHERE b.key = s.key AND b.shop = s.shop)
    ON CONFLICT (rule, key, merchant_id) DO UPDATE SET last_seen_at = excluded.last_seen_at
    RETURNING id, key, merchant_id
), again AS (
    UPDATE finding f
    SET last_seen_at = %(now)s, last_run_id = %(run)s, ours = s.ours, theirs = s.theirs,
        amount_fen = coalesce(s.amount_fen, 0), severity = %(severity)s,
        state = CASE WHEN b.reopens THEN 'OPEN' ELSE f.state END,
        version = f.version + CASE WHEN b.reopens THEN 1 ELSE 0 END,
        times_opened = f.times_opened + CASE WHEN b.reopens THEN 1 ELSE 0 END,
        closed_at = CASE WHEN b.reopens THEN NULL ELSE f.closed_at END
    FROM before b JOIN seen s ON s.key = b.key AND s.shop = b.shop
    WHERE f.id = b.id
    RETURNING f.id, f.key, f.merchant_id
), gone AS (
    UPDATE finding f
    SET state = 'RESOLVED', version = f.version + 1, closed_at = %(now)s
    WHERE f.rule = %(rule)s AND f.state IN ('OPEN', 'ASSIGNED', 'REPAIR_REQUESTED', 'REPAIRED')
      AND {closable} AND NOT EXISTS (SELECT FROM seen s WHERE s.key = f.key AND s.shop = {shop_f})
      AND (%(merchant_id)s::uuid IS NULL OR f.merchant_id = %(merchant_id)s::uuid)
      AND (%(only_key)s::text IS NULL
           OR (f.key = %(only_key)s::text AND f.merchant_id IS NOT DISTINCT FROM %(merchant_id)s::uuid))
    RETURNING f.id
), sighted AS (
    INSERT INTO finding_sighting (run_id, finding_id, ours, theirs, seen_at)
    SELECT %(run)s, x.id, s.ours, s.theirs, %(now)s
    FROM (SELECT * FROM opened UNION ALL SELECT * FROM again) AS x JOIN seen s ON s.key = x.key AND s.shop = {shop_x}
    ON CONFLICT (run_id, finding_id)
    DO UPDATE SET ours = excluded.ours, theirs = excluded.theirs, seen_at = excluded.seen_at
), unsighted AS (
    -- A run that is repeated forgets what it no longer sees; a look at one finding leaves the run as it was.
    DELETE FROM finding_sighting
    WHERE run_id = %(run)s AND finding_id IN (SELECT id FROM gone) AND %(only_key)s::text IS NULL
), said AS (
    INSERT INTO finding_comment (finding_id, kind, text, data, created_at)
    SELECT b.id, 'reopened', '', jsonb_build_object('was', b.state, 'run', %(run)s::text), %(now)s
    FROM before b WHERE b.reopens
    UNION ALL
    SELECT g.id, 'resolved', '', jsonb_build_object('run', %(run)s::text), %(now)s FROM gone g
)
SELECT (SELECT count(*) FROM seen),
       (SELECT count(*) FROM opened) + (SELECT count(*) FROM before WHERE reopens),
       (SELECT count(*) FROM gone)
"""


@dataclass(frozen=True)
class Recorded:
    seen: int
    opened: int
    resolved: int


def record_findings(
    *,
    rule: Rule,
    run_id: uuid.UUID,
    params: Mapping[str, Any],
    now: datetime,
    only_key: str | None = None,
    changed: str = "TRUE",
) -> Recorded:
    """Record everything `rule` sees, and resolve what it no longer sees. Joins the caller's transaction.

    With `only_key` the look is at that one key of the merchant in `params` (NULL: of nobody), and nothing else is
    touched. How many it opened is announced as one `finding.opened`.

    A partial look (`changed` narrows it to what moved lately) resolves nothing: not seeing a row then
    proves nothing about it.
    """
    whole = changed == "TRUE"
    closable = "TRUE" if rule.scope != DAY else "f.on_date = %(day)s"
    statement = _RECORD.format(
        select=rule.sql.replace("{changed}", changed),
        on_date="%(day)s::date" if rule.scope == DAY else "NULL::date",
        closable=closable if whole else "FALSE",
        shop_s=_SHOP.format("s"),
        shop_f=_SHOP.format("f"),
        shop_x=_SHOP.format("x"),
    )
    with connection.cursor() as cursor:
        cursor.execute(
            statement,
            {
                **params,
                "rule": rule.code,
                "severity": rule.severity,
                "run": run_id,
                "now": now,
                "only_key": only_key,
            },
        )
        seen, opened, resolved = cursor.fetchone()
    if opened:
        outbox.append(
            name="finding.opened",
            merchant_id=params.get("merchant_id"),
            subject=rule.code,
            payload={"rule": rule.code, "severity": rule.severity, "opened": opened, "run_id": str(run_id)},
            now=now,
        )
    return Recorded(seen=seen, opened=opened, resolved=resolved)
