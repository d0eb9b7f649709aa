"""A refund that no channel can pay any more, under its payment's lock."""

from __future__ import annotations

from uuid import UUID

from kernel import errors
from payments.commands.abandon_refund import RefundNotDead
from payments.models import Payment, RefundAttempt, RefundRequest


def dead_request(merchant_id: UUID, refund_request_id: UUID) -> RefundRequest:
    """The request under its payment's lock, FAILED, with no attempt that may still pay."""
    found = RefundRequest.objects.filter(id=refund_request_id, merchant_id=merchant_id).first()
    if found is None:
        raise errors.NotFound(refund_request_id=str(refund_request_id))
    Payment.objects.select_for_update().get(id=found.payment_id)
    request = RefundRequest.objects.get(id=refund_request_id)
    live = RefundAttempt.objects.filter(request=request).exclude(status__in=["CLOSED", "REFUSED"]).exists()
    if request.status != RefundRequest.Status.FAILED or live:
        raise RefundNotDead(status=request.status)
    return request
