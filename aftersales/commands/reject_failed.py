"""A refund that cannot be paid is given up: one person asks, another one agrees, and only a dead attempt allows it."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aftersales.actors import By
from aftersales.claims import get_claim
from aftersales.commands._end_claim import end_claim
from aftersales.commands._transition import declare, why_not
from aftersales.funding import refund_requests_of
from aftersales.models import AfterSalesOrder, Status
from aftersales.settlement import ReasonNeeded
from kernel import idempotency
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work
from orders.commands.hold_units import release_line_refund
from payments.commands.abandon_refund import abandon_refund
from payments.commands.approve_offline_refund import SecondPersonNeeded
from payments.models import RefundRequest

REJECT = declare("reject_failed", event="after_sales.rejected", during_dispute=True)


@dataclass(frozen=True)
class FailedRejected:
    """`step` is asked (waits for a second person) or rejected."""

    after_sales_no: str
    status: str
    version: int
    step: str
    replayed: bool = False


def reject_failed(
    *,
    merchant_id: UUID,
    after_sales_no: str,
    expected_version: int,
    reason: str = "",
    by: By,
    key: BusinessKey,
    now: datetime,
) -> FailedRejected:
    """With a reason: the first person's wish. Without: the second person's consent, REFUND_FAILED → REJECTED; the money
    and the units are free again. Raises NotFound, ReasonNeeded, VersionConflict, IllegalTransition, RefundNotDead,
    SecondPersonNeeded.
    """
    with unit_of_work(now=now):
        done = idempotency.begin(key, FailedRejected, now=now)
        if done is not None:
            return done
        claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no)
        if claim.status != Status.REFUND_FAILED or claim.version != expected_version:
            raise why_not(claim.pk, expected_version=expected_version)
        if reason.strip():
            AfterSalesOrder.objects.filter(pk=claim.pk).update(
                rejection_asked_by=by.id, rejection_reason=reason[:400], updated_at=now
            )
            result = FailedRejected(after_sales_no, str(claim.status), claim.version, "asked")
        else:
            version = _reject(claim, expected_version=expected_version, by=by, now=now)
            result = FailedRejected(after_sales_no, str(Status.REJECTED), version, "rejected")
        idempotency.finish(key, result)
        return result


def _reject(claim: AfterSalesOrder, *, expected_version: int, by: By, now: datetime) -> int:
    if not claim.rejection_asked_by:
        raise ReasonNeeded(after_sales_no=claim.after_sales_no)
    if claim.rejection_asked_by == by.id:
        raise SecondPersonNeeded(after_sales_no=claim.after_sales_no, asked_by=claim.rejection_asked_by)
    release_line_refund(
        line_id=claim.line_id,
        goods_fen=claim.approved_goods_fen or 0,
        freight_fen=claim.approved_freight_fen or 0,
    )
    version = end_claim(
        REJECT,
        claim,
        expected_version=expected_version,
        by=by,
        now=now,
        reason=claim.rejection_reason,
        evidence={"asked_by": claim.rejection_asked_by},
    )
    for request in refund_requests_of(claim).exclude(status=RefundRequest.Status.ABANDONED):
        abandon_refund(merchant_id=claim.merchant_id, refund_request_id=request.pk, now=now)
    return version
