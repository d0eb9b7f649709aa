"""A failed refund paid outside the channel: one person enters the voucher, another one approves it."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aftersales.actors import By
from aftersales.claims import get_claim
from aftersales.funding import refund_requests_of
from aftersales.models import AfterSalesOrder, Status
from kernel import idempotency
from kernel.errors import IllegalTransition
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work
from payments.commands.approve_offline_refund import approve_offline_refund
from payments.commands.enter_voucher import enter_voucher
from payments.models import RefundRequest


@dataclass(frozen=True)
class OfflineSettled:
    """`step` is voucher (waits for a second person) or approved (the claim ends when the payments floor says so)."""

    after_sales_no: str
    step: str
    replayed: bool = False


def settle_offline(
    *,
    merchant_id: UUID,
    after_sales_no: str,
    voucher: str = "",
    by: By,
    key: BusinessKey,
    now: datetime,
) -> OfflineSettled:
    """With a voucher: the first person's step. Without one: the second person's approval.

    Only while nothing can arrive any more by the channel (a dead attempt). Raises NotFound, IllegalTransition,
    RefundNotDead, VoucherMissing, SecondPersonNeeded.
    """
    with unit_of_work(now=now):
        done = idempotency.begin(key, OfflineSettled, now=now)
        if done is not None:
            return done
        claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no)
        if claim.status != Status.REFUND_FAILED:
            raise IllegalTransition(after_sales_no=after_sales_no, status=claim.status)
        for request in refund_requests_of(claim).filter(status=RefundRequest.Status.FAILED):
            if voucher:
                enter_voucher(
                    merchant_id=merchant_id, refund_request_id=request.pk, voucher=voucher, person=by.id, now=now
                )
            else:
                approve_offline_refund(merchant_id=merchant_id, refund_request_id=request.pk, person=by.id, now=now)
        if not voucher:
            AfterSalesOrder.objects.filter(pk=claim.pk).update(refund_channel="offline", updated_at=now)
        result = OfflineSettled(after_sales_no=after_sales_no, step="voucher" if voucher else "approved")
        idempotency.finish(key, result)
        return result
