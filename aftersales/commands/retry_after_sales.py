"""Try the refund of a failed claim again; the payments floor decides under which number."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aftersales.actors import By
from aftersales.claims import get_claim
from aftersales.commands._transition import declare, move
from aftersales.funding import refund_requests_of
from aftersales.models import Status
from kernel import idempotency
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work
from payments.commands.retry_refund import retry_refund
from payments.models import RefundRequest

RETRY = declare("retry", event="after_sales.refund_retried", during_dispute=True)


@dataclass(frozen=True)
class Retried:
    after_sales_no: str
    status: str
    version: int
    refund_nos: list[str]
    replayed: bool = False


def retry_after_sales(
    *, merchant_id: UUID, after_sales_no: str, expected_version: int, by: By, key: BusinessKey, now: datetime
) -> Retried:
    """REFUND_FAILED → REFUNDING. The number stays unless the channel said CLOSED; ABNORMAL is refused for ever.

    Raises NotFound, VersionConflict, IllegalTransition, RefundNotRetryable, RefundIsAbnormal, RefundLimitReached.
    """
    with unit_of_work(now=now):
        done = idempotency.begin(key, Retried, now=now)
        if done is not None:
            return done
        claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no)
        version = move(RETRY, claim, expected_version=expected_version, by=by, now=now)
        failed = refund_requests_of(claim).filter(status=RefundRequest.Status.FAILED)
        retried = [
            retry_refund(merchant_id=merchant_id, refund_request_id=request.pk, now=now).refund_no for request in failed
        ]
        result = Retried(
            after_sales_no=after_sales_no,
            status=str(Status.REFUNDING),
            version=version,
            refund_nos=retried,
        )
        idempotency.finish(key, result)
        return result
