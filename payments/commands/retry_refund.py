"""Try a failed refund again: with the same number unless the channel closed it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel import errors, numbers
from kernel.statemachine import Edge, Emit, Insert, New, P, Sql, Touch, advance
from kernel.transactions import unit_of_work
from payments.models import MAX_REFUNDS_PER_PAYMENT, Payment, RefundAttempt, RefundRequest

Status = RefundAttempt.Status

REQUESTED = Emit(
    "refund.requested",
    subject=New("owner_no"),
    payload={"refund_request_id": New("id"), "attempt_id": P("attempt_id", "uuid")},
)

WITH_NEW_NUMBER = Edge(
    RefundRequest,
    "retry",
    guards={"version": P("version")},
    changes={"failure_code": "", "attempts": Sql("t.attempts + 1"), "version": Sql("t.version + 1")},
    writes=[
        Insert(
            RefundAttempt,
            {
                "id": P("attempt_id"),
                "merchant": New("merchant_id"),
                "request": New("id"),
                "payment": New("payment_id"),
                "seq": P("seq"),
                "number": P("number"),
                "amount_fen": New("amount_fen"),
                "next_action_at": Sql("clock_timestamp()"),
                "created_at": P("now"),
            },
        ),
        Touch(
            Payment,
            where={"id": New("payment_id")},
            changes={"refund_count": Sql("s.refund_count + 1"), "version": Sql("s.version + 1")},
        ),
    ],
    emit=REQUESTED,
    returning=["version"],
)

WITH_SAME_NUMBER = Edge(
    RefundRequest,
    "retry",
    guards={"version": P("version")},
    changes={"failure_code": "", "version": Sql("t.version + 1")},
    writes=[
        Touch(
            RefundAttempt,
            where={"id": P("attempt_id"), "status": Sql("s.status = 'REFUSED'")},
            changes={
                "status": Status.CREATED,
                "next_action_at": Sql("clock_timestamp()"),
                "finished_at": None,
                "version": Sql("s.version + 1"),
            },
        )
    ],
    emit=REQUESTED,
    returning=["version"],
)


class RefundNotRetryable(errors.Refusal):
    code = "REFUND_NOT_RETRYABLE"
    message = _("This refund cannot be sent again now.")


class RefundIsAbnormal(errors.Refusal):
    code = "REFUND_IS_ABNORMAL"
    message = _("The channel parked this refund. It is only ever finished under its own number.")


class RefundLimitReached(errors.Refusal):
    code = "REFUND_LIMIT_REACHED"
    status = 422
    message = _("The channel takes no more refunds of this payment. Choose balance or offline.")


errors.refuse_on_constraint("refund_count_within_channel_limit", RefundLimitReached)
errors.refuse_on_constraint("one_live_attempt_per_refund", RefundNotRetryable)


@dataclass(frozen=True)
class RefundRetried:
    refund_request_id: UUID
    refund_no: str
    new_number: bool
    replayed: bool = False


def retry_refund(*, merchant_id: UUID, refund_request_id: UUID, now: datetime) -> RefundRetried:
    """FAILED → PENDING and `refund.requested`. Joins the caller's transaction.

    The newest attempt decides: CLOSED → number `{owner_no}-{n+1}` (before it is sent the channel is asked about the
    closed one once more); REFUSED → the same number; ABNORMAL → RefundIsAbnormal, for ever. A request that is PENDING
    already → replay. Raises NotFound, RefundNotRetryable (succeeded, given up, or to be refunded by other means),
    RefundIsAbnormal, RefundLimitReached (50 numbers).
    """
    with unit_of_work(now=now):
        request = RefundRequest.objects.filter(id=refund_request_id, merchant_id=merchant_id).only("payment_id").first()
        if request is None:
            raise errors.NotFound(refund_request_id=str(refund_request_id))
        payment = Payment.objects.select_for_update().get(id=request.payment_id)
        request = RefundRequest.objects.get(id=refund_request_id)
        newest = RefundAttempt.objects.filter(request=request).order_by("-seq").first()
        if request.status == RefundRequest.Status.PENDING and newest is not None:
            return RefundRetried(request.id, newest.number, new_number=False, replayed=True)
        if newest is not None and newest.status == Status.ABNORMAL:
            raise RefundIsAbnormal(refund_no=newest.number)
        if request.status != RefundRequest.Status.FAILED or request.route != RefundRequest.Route.CHANNEL:
            raise RefundNotRetryable(status=request.status, route=request.route)
        if newest is None or newest.status not in (Status.CLOSED, Status.REFUSED):
            raise RefundNotRetryable(status=request.status, attempt=newest.status if newest else None)
        if newest.status == Status.REFUSED:
            params = {"version": request.version, "attempt_id": newest.id, "now": now}
            if advance(WITH_SAME_NUMBER, pk=request.id, params=params) is None:
                raise errors.VersionConflict(refund_request_id=str(request.id))
            return RefundRetried(request.id, newest.number, new_number=False)
        if payment.refund_count >= MAX_REFUNDS_PER_PAYMENT:
            raise RefundLimitReached(out_trade_no=payment.out_trade_no)
        number = f"{request.owner_no}-{newest.seq + 1}"
        params = {
            "version": request.version,
            "attempt_id": numbers.uuid7(),
            "seq": newest.seq + 1,
            "number": number,
            "now": now,
        }
        if advance(WITH_NEW_NUMBER, pk=request.id, params=params) is None:
            raise errors.VersionConflict(refund_request_id=str(request.id))
        return RefundRetried(request.id, number, new_number=True)
