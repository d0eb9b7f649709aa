"""Someone takes a finding into their hands."""

from __future__ import annotations

import uuid
from datetime import datetime

from kernel.statemachine import P
from kernel.transactions import unit_of_work
from reconciliation.commands._moves import FindingMoved, finding_edges, move_finding

ASSIGN = finding_edges("assign", says="assigned", changes={"owner_id": P("owner_id")})


def assign_finding(
    *, finding_id: uuid.UUID, owner_id: int, author_id: int, expected_version: int, now: datetime
) -> FindingMoved:
    """Make `owner_id` responsible. Raises NotFound, VersionConflict, IllegalTransition."""
    with unit_of_work(now=now):
        return move_finding(
            ASSIGN,
            finding_id=finding_id,
            expected_version=expected_version,
            author_id=author_id,
            text="",
            now=now,
            owner_id=owner_id,
            data={"owner": owner_id},
        )
