"""Repair a finding by the command its rule names; P0 needs two people; then look again."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext_lazy as _

from kernel.errors import IllegalTransition, NotFound, Refusal, VersionConflict
from kernel.statemachine import P
from kernel.transactions import unit_of_work
from reconciliation.commands._moves import FindingMoved, finding_edges, move_finding
from reconciliation.commands.recheck_finding import recheck_finding
from reconciliation.models import Finding
from reconciliation.repairs import Repair, repair_named
from reconciliation.rules.registry import rule_named

REQUEST = finding_edges(
    "request_repair", says="repair_requested", changes={"repair_requested_by_id": P("requested_by_id")}
)
MARK_REPAIRED = finding_edges("mark_repaired", says="repaired")


class NoRepair(Refusal):
    code = "NO_REPAIR"
    message = _("No command repairs this finding; a person must decide.")


class SecondPersonNeeded(Refusal):
    code = "SECOND_PERSON_NEEDED"
    status = 403
    message = _("Another person must confirm a repair of severity P0.")


@dataclass(frozen=True)
class Repaired:
    """`done`: what the repair command reported; empty while the repair waits for a second person."""

    finding_id: uuid.UUID
    state: str
    done: dict[str, Any]
    replayed: bool = False


def repair_finding(*, finding_id: uuid.UUID, author_id: int, expected_version: int, now: datetime) -> Repaired:
    """Ask for (P0) or perform the repair, then re-check: RESOLVED when it helped, OPEN again when not.

    The repair command runs outside a transaction of this one; it is idempotent by the finding's id, so
    a crash between it and the mark is mended by pressing the button again.
    Raises NotFound, NoRepair, SecondPersonNeeded, VersionConflict, IllegalTransition and whatever the
    repair command refuses.
    """
    finding = Finding.objects.filter(pk=finding_id).first()
    if finding is None:
        raise NotFound
    repair = repair_of(finding)
    if repair is None:
        raise NoRepair(rule=finding.rule)
    if finding.version != expected_version:
        raise VersionConflict(expected=expected_version, actual=finding.version)
    if finding.state not in ("OPEN", "ASSIGNED", "REPAIR_REQUESTED"):
        raise IllegalTransition(state=finding.state)
    if finding.severity == "P0":
        if finding.state != "REPAIR_REQUESTED":
            moved = _request(finding, repair=repair, author_id=author_id, now=now)
            return Repaired(finding_id=finding_id, state=moved.state, done={})
        if finding.repair_requested_by_id == author_id:
            raise SecondPersonNeeded
    done = repair.run(finding, now)
    with unit_of_work(now=now):
        move_finding(
            MARK_REPAIRED,
            finding_id=finding_id,
            expected_version=expected_version,
            author_id=author_id,
            text=repair.name,
            data=done,
            now=now,
        )
    state = recheck_finding(finding_id=finding_id, now=now).state
    return Repaired(finding_id=finding_id, state=state, done=done)


def repair_of(finding: Finding) -> Repair | None:
    """The registered repair of the finding's rule, if its rule names one."""
    rule = rule_named(finding.rule)
    return repair_named(rule.repair) if rule is not None and rule.repair else None


def _request(finding: Finding, *, repair: Repair, author_id: int, now: datetime) -> FindingMoved:
    with unit_of_work(now=now):
        return move_finding(
            REQUEST,
            finding_id=finding.pk,
            expected_version=finding.version,
            author_id=author_id,
            text=repair.name,
            now=now,
            requested_by_id=author_id,
        )
