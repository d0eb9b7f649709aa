"""Let the risk rules look at a claim that was just written; joined by apply_after_sales."""

from datetime import datetime

from django.db.models import Q

from aftersales.models import AfterSalesOrder, RiskReview, RiskRule
from aftersales.risk import RULES, Application
from kernel import outbox


def check_risk(claim: AfterSalesOrder, application: Application, *, now: datetime) -> bool:
    """Whether a rule was hit: then the claim is held, and a review waits with what was found."""
    rules: dict[str, RiskRule] = {}
    for rule in RiskRule.objects.filter(Q(merchant__isnull=True) | Q(merchant_id=claim.merchant_id)):
        if rule.kind not in rules or rule.merchant_id is not None:
            rules[rule.kind] = rule
    hits = []
    for kind, rule in sorted(rules.items()):
        found = RULES[kind].look(claim, application, rule.params, now) if rule.is_active and kind in RULES else None
        if found is not None:
            hits.append({"rule": kind, "figures": rule.params, "found": found, "rule_version": rule.version})
    if not hits:
        return False
    RiskReview.objects.create(after_sales=claim, hits=hits, created_at=now)
    AfterSalesOrder.objects.filter(pk=claim.pk).update(held_for_review=True)
    outbox.append(
        name="risk.hit",
        merchant_id=claim.merchant_id,
        subject=claim.after_sales_no,
        payload={"after_sales_no": claim.after_sales_no, "rules": [hit["rule"] for hit in hits]},
        now=now,
    )
    return True
