"""Balances equal the sum of their entries, and every journal entry balances."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from reconciliation.rules import STATE, Rule

_STOCK = """
SELECT i.sku AS key, i.merchant_id,
       jsonb_build_object('sku', i.sku, 'sellable', i.sellable, 'reserved', i.reserved, 'defect', i.defect) AS ours,
       jsonb_build_object('sellable', coalesce(e.sellable, 0), 'reserved', coalesce(e.reserved, 0),
                          'defect', coalesce(e.defect, 0)) AS theirs,
       NULL::bigint AS amount_fen
FROM stock_item i
LEFT JOIN (
    SELECT item_id, sum(delta) FILTER (WHERE bucket = 'sellable') AS sellable,
           sum(delta) FILTER (WHERE bucket = 'reserved') AS reserved,
           sum(delta) FILTER (WHERE bucket = 'defect') AS defect
    FROM stock_entry GROUP BY item_id
) e ON e.item_id = i.id
WHERE (%(merchant_id)s::uuid IS NULL OR i.merchant_id = %(merchant_id)s::uuid)
  AND (i.sellable, i.reserved, i.defect)
      IS DISTINCT FROM (coalesce(e.sellable, 0), coalesce(e.reserved, 0), coalesce(e.defect, 0))
"""

_UNBALANCED = """
SELECT e.id::text AS key, e.merchant_id,
       jsonb_build_object('entry', e.id, 'kind', e.kind, 'reference', e.reference,
                          'lines', coalesce(l.lines, 0)) AS ours,
       jsonb_build_object('sum_fen', coalesce(l.total, 0)) AS theirs, abs(coalesce(l.total, 0)) AS amount_fen
FROM journal_entry e
LEFT JOIN (SELECT entry_id, count(*) AS lines, sum(amount_fen) AS total FROM journal_line GROUP BY entry_id) l
       ON l.entry_id = e.id
WHERE (%(merchant_id)s::uuid IS NULL OR e.merchant_id = %(merchant_id)s::uuid)
  AND (coalesce(l.lines, 0) < 2 OR l.total <> 0)
"""

RULES = (
    Rule(
        code="STOCK_DIFFERS",
        severity="P0",
        scope=STATE,
        sql=_STOCK,
        title=_("Stock differs from the sum of its entries"),
        advice=_("The balance was changed without an entry. Count, then adjust the stock with a reason."),
    ),
    Rule(
        code="JOURNAL_UNBALANCED",
        severity="P0",
        scope=STATE,
        sql=_UNBALANCED,
        title=_("Journal entry that does not add up to nothing"),
        advice=_("Someone went round the commands. Post the difference with a reason."),
    ),
)
