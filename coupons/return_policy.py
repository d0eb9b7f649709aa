"""Whether a refund gives the coupon back: a pure function of a policy version and the facts, with reasons.

Rules of a policy version (JSON), each naming a decision (RETURN, KEEP, VOID or REVIEW):

    on_full_refund        the order is wholly refunded and nothing below applies
    when_expired          … but the coupon's own validity is over (RETURN is not possible here)
    when_campaign_closed  … but the campaign it came from is closed
    when_risk_flagged     … but the refund carries a risk flag

A partial refund never gives a coupon back: KEEP. Risk is looked at before validity, validity before the campaign.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from coupons.models import ReturnDecision
from kernel.errors import InvalidInput

DEFAULT_RULES: dict[str, str] = {
    "on_full_refund": ReturnDecision.RETURN.value,
    "when_expired": ReturnDecision.KEEP.value,
    "when_campaign_closed": ReturnDecision.RETURN.value,
    "when_risk_flagged": ReturnDecision.REVIEW.value,
}


@dataclass(frozen=True)
class ReturnFacts:
    """What was known when it was decided."""

    order_wholly_refunded: bool
    expired: bool
    campaign_closed: bool
    risk_flagged: bool

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Verdict:
    """The decision and why, as stable codes."""

    decision: ReturnDecision
    reasons: tuple[str, ...]


def decide(rules: Mapping[str, str], facts: ReturnFacts) -> Verdict:
    """What the rules say of these facts."""
    if not facts.order_wholly_refunded:
        return Verdict(ReturnDecision.KEEP, ("PARTIAL_REFUND",))
    if facts.risk_flagged:
        return Verdict(ReturnDecision(rules["when_risk_flagged"]), ("FULL_REFUND", "RISK_FLAGGED"))
    if facts.expired:
        return Verdict(ReturnDecision(rules["when_expired"]), ("FULL_REFUND", "COUPON_EXPIRED"))
    if facts.campaign_closed:
        return Verdict(ReturnDecision(rules["when_campaign_closed"]), ("FULL_REFUND", "CAMPAIGN_CLOSED"))
    return Verdict(ReturnDecision(rules["on_full_refund"]), ("FULL_REFUND",))


def complete_rules(rules: Mapping[str, Any]) -> dict[str, str]:
    """The rules with defaults filled in. Raises InvalidInput for an unknown rule or decision."""
    unknown = sorted(set(rules) - set(DEFAULT_RULES))
    wrong = sorted(name for name, value in rules.items() if value not in ReturnDecision.values)
    if rules.get("when_expired") == ReturnDecision.RETURN:
        wrong.append("when_expired")
    if unknown or wrong:
        raise InvalidInput(unknown_rules=unknown, wrong_rules=wrong)
    return {**DEFAULT_RULES, **rules}
