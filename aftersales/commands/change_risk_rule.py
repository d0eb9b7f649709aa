"""Set a risk rule for all merchants, or for one of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from aftersales.models import RiskRule
from aftersales.risk import RULES, figures_of
from kernel.errors import InvalidInput, VersionConflict
from kernel.transactions import unit_of_work


@dataclass(frozen=True)
class RiskRuleChanged:
    rule_id: UUID
    kind: str
    version: int


def change_risk_rule(
    *,
    merchant_id: UUID | None,
    kind: str,
    params: Mapping[str, Any],
    is_active: bool,
    expected_version: int | None = None,
    changed_by: str,
    now: datetime,
) -> RiskRuleChanged:
    """A merchant's own rule replaces the one for all. Raises InvalidInput (unknown rule or figure), VersionConflict."""
    if kind not in RULES:
        raise InvalidInput(kind=kind)
    figures = figures_of(kind, params)
    with unit_of_work(now=now):
        rules = RiskRule.objects.select_for_update().filter(kind=kind)
        mine = rules.filter(merchant_id=merchant_id) if merchant_id else rules.filter(merchant__isnull=True)
        rule = mine.first()
        if rule is None:
            rule = RiskRule.objects.create(
                merchant_id=merchant_id,
                kind=kind,
                params=figures,
                is_active=is_active,
                changed_by=changed_by,
                changed_at=now,
            )
            return RiskRuleChanged(rule.pk, kind, rule.version)
        if expected_version is not None and rule.version != expected_version:
            raise VersionConflict(kind=kind, version=rule.version, changed_by=rule.changed_by)
        RiskRule.objects.filter(pk=rule.pk).update(
            params=figures, is_active=is_active, version=rule.version + 1, changed_by=changed_by, changed_at=now
        )
        return RiskRuleChanged(rule.pk, kind, rule.version + 1)
