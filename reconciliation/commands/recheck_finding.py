"""Look again at the one thing a finding is about."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from kernel.clock import channel_day
from kernel.errors import NotFound
from kernel.transactions import unit_of_work
from reconciliation.commands.record_findings import record_findings
from reconciliation.days import ChannelDay
from reconciliation.models import Finding
from reconciliation.rules.registry import comparison_of, rule_named


@dataclass(frozen=True)
class Rechecked:
    finding_id: uuid.UUID
    state: str
    replayed: bool = False


def recheck_finding(*, finding_id: uuid.UUID, now: datetime) -> Rechecked:
    """Run the finding's rule for its key only: RESOLVED when it is gone, OPEN when a repair did not help.

    A finding whose rule no longer exists stays as it is. Raises NotFound.
    """
    finding = Finding.objects.select_related("last_run").filter(pk=finding_id).first()
    if finding is None:
        raise NotFound
    rule = rule_named(finding.rule)
    if rule is not None:
        day = ChannelDay(finding.on_date or channel_day(now))
        params = day.params(merchant_id=finding.merchant_id, now=now)
        with unit_of_work(now=now):
            comparison = comparison_of(rule)
            if comparison is not None:
                with connection.cursor() as cursor:
                    for statement in comparison.prepare:
                        cursor.execute(statement, params)
            record_findings(rule=rule, run_id=finding.last_run_id, params=params, only_key=finding.key, now=now)
    state = Finding.objects.values_list("state", flat=True).get(pk=finding_id)
    return Rechecked(finding_id=finding_id, state=state)
