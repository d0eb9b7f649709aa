"""Live with a finding, for a reason. It stays quiet as long as its figures stay the same."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.utils.translation import gettext_lazy as _

from kernel.errors import Refusal
from kernel.statemachine import P
from kernel.transactions import unit_of_work
from reconciliation.commands._moves import FindingMoved, finding_edges, move_finding

ACCEPT = finding_edges("accept", says="accepted", changes={"accepted_reason": P("reason"), "closed_at": P("closed_at")})


class ReasonMissing(Refusal):
    code = "REASON_MISSING"
    status = 400
    message = _("A reason is required.")


def accept_finding(
    *, finding_id: uuid.UUID, author_id: int, reason: str, expected_version: int, now: datetime
) -> FindingMoved:
    """Accept with a reason. Raises ReasonMissing, NotFound, VersionConflict, IllegalTransition."""
    reason = reason.strip()
    if not reason:
        raise ReasonMissing
    with unit_of_work(now=now):
        return move_finding(
            ACCEPT,
            finding_id=finding_id,
            expected_version=expected_version,
            author_id=author_id,
            text=reason,
            now=now,
            reason=reason,
            closed_at=now,
        )
