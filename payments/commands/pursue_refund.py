"""The next step of a refund attempt, whatever it is: send it, send it again, or ask."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payments.commands.query_refund import query_refund
from payments.commands.send_refund import send_refund
from payments.models import RefundAttempt


@dataclass(frozen=True)
class Pursued:
    refund_no: str
    step: str
    result: str
    status: str


def pursue_refund(*, attempt_id: UUID, now: datetime) -> Pursued | None:
    """One step of what is due; None when the attempt is gone or at its end. Safe to call any number of times at once:
    each step claims before it acts."""
    attempt = RefundAttempt.objects.filter(id=attempt_id, status__in=RefundAttempt.IN_WORK).first()
    if attempt is None:
        return None
    if attempt.status == RefundAttempt.Status.CREATED or attempt.resend:
        sent = send_refund(attempt_id=attempt_id, now=now)
        return Pursued(sent.refund_no, "send", sent.result, sent.status)
    asked = query_refund(attempt_id=attempt_id, now=now)
    return Pursued(asked.refund_no, "query", asked.result, asked.status)
