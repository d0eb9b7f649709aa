"""Which past decisions a policy version would have made otherwise. Looks only: no decision is ever altered.

Facts of a decision are four booleans, so all decisions of a policy fall into a handful of groups, whatever their
number: the database groups, the rules are applied once per group.
"""

from dataclasses import dataclass
from typing import Any

from django.db.models import Count

from coupons.models import RefundCoupon, ReturnPolicy
from coupons.return_policy import ReturnFacts, decide

EXAMPLES = 20


@dataclass(frozen=True)
class Change:
    """Decisions that would have come out otherwise: how many, from what to what, and the newest orders among them."""

    then: str
    now: str
    reasons: tuple[str, ...]
    count: int
    order_nos: list[str]


@dataclass(frozen=True)
class PolicyReplay:
    """A policy version over the past: decisions looked at, and those that would change."""

    policy: ReturnPolicy
    looked_at: int
    changes: list[Change]

    @property
    def changed(self) -> int:
        return sum(change.count for change in self.changes)

    @property
    def unchanged(self) -> int:
        return self.looked_at - self.changed


def replay_policy(policy: ReturnPolicy) -> PolicyReplay:
    """Replay a version (a draft, say) over the decisions made by any version of the same policy; those that a person
    made are left out. Three queries per kind of change, whatever the number of decisions."""
    past = RefundCoupon.objects.filter(
        merchant_id=policy.merchant_id, policy__code=policy.code, review_of__isnull=True
    ).order_by()
    looked_at, changes = 0, []
    for group in past.values("facts", "decision").annotate(count=Count("id")):
        looked_at += group["count"]
        verdict = decide(policy.rules, ReturnFacts(**group["facts"]))
        if verdict.decision != group["decision"]:
            changes.append(_change(past, dict(group), verdict.decision, verdict.reasons))
    return PolicyReplay(policy, looked_at, sorted(changes, key=lambda change: -change.count))


def _change(past: Any, group: dict[str, Any], decision: str, reasons: tuple[str, ...]) -> Change:
    examples = past.filter(facts=group["facts"], decision=group["decision"]).order_by("-id")
    return Change(
        then=group["decision"],
        now=str(decision),
        reasons=reasons,
        count=group["count"],
        order_nos=list(examples.values_list("order_no", flat=True)[:EXAMPLES]),
    )
