"""The second person says no to a repair."""

from __future__ import annotations

import uuid
from datetime import datetime

from kernel.transactions import unit_of_work
from reconciliation.commands._moves import FindingMoved, finding_edges, move_finding

REFUSE = finding_edges("refuse_repair", says="repair_refused")


def refuse_repair(
    *, finding_id: uuid.UUID, author_id: int, reason: str, expected_version: int, now: datetime
) -> FindingMoved:
    """The second person says no: the finding goes back to its owner. Raises as move_finding."""
    with unit_of_work(now=now):
        return move_finding(
            REFUSE,
            finding_id=finding_id,
            expected_version=expected_version,
            author_id=author_id,
            text=reason,
            now=now,
        )
