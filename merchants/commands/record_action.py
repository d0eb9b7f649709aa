"""Write down what a person did in the back office."""

from datetime import datetime
from typing import Any
from uuid import UUID

from merchants.models import Staff, StaffAction


def record_action(
    *,
    staff: Staff,
    action: str,
    subject_type: str,
    subject_id: str,
    subject_label: str,
    merchant_id: UUID | None,
    outcome: str,
    before: dict[str, Any],
    after: dict[str, Any],
    detail: dict[str, Any],
    address: str,
    user_agent: str,
    now: datetime,
) -> None:
    """One line of the trail. What was entered comes without secrets, what changed by field."""
    StaffAction.objects.create(
        at=now,
        username=staff.user.get_username(),
        role=staff.role,
        merchant_id=merchant_id or staff.merchant_id,
        action=action,
        subject_type=subject_type,
        subject_id=subject_id[:64],
        subject_label=subject_label[:200],
        outcome=outcome,
        before=before,
        after=after,
        detail=detail,
        address=address[:45],
        user_agent=user_agent[:200],
    )
