"""Give a refund up: only when it is proven that no money can arrive any more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel import errors
from kernel.statemachine import Edge, New, P, Sql, Touch, advance
from kernel.transactions import unit_of_work
from payments.models import Payment, RefundAttempt, RefundRequest

ABANDON = Edge(
    RefundRequest,
    "abandon",
    guards={"version": P("version")},
    changes={"version": Sql("t.version + 1")},
    writes=[
        Touch(
            Payment,
            where={"id": New("payment_id")},
            changes={
                "refund_committed_fen": Sql("s.refund_committed_fen - u.amount_fen"),
                "version": Sql("s.version + 1"),
            },
        )
    ],
    returning=["version"],
)


class RefundNotDead(errors.Refusal):
    code = "REFUND_NOT_DEAD"
    message = _("The channel may still pay this refund. It can be given up once the channel closed or refused it.")


@dataclass(frozen=True)
class RefundAbandoned:
    refund_request_id: UUID
    amount_fen: int
    replayed: bool = False


def abandon_refund(*, merchant_id: UUID, refund_request_id: UUID, now: datetime) -> RefundAbandoned:
    """FAILED → ABANDONED and the room in the payment is free again. Joins the caller's transaction; the caller has the
    second approver. Given up already → replay. Raises NotFound, RefundNotDead."""
    with unit_of_work(now=now):
        found = RefundRequest.objects.filter(id=refund_request_id, merchant_id=merchant_id).first()
        if found is None:
            raise errors.NotFound(refund_request_id=str(refund_request_id))
        Payment.objects.select_for_update().get(id=found.payment_id)
        request = RefundRequest.objects.get(id=refund_request_id)
        if request.status == RefundRequest.Status.ABANDONED:
            return RefundAbandoned(request.id, request.amount_fen, replayed=True)
        live = RefundAttempt.objects.filter(request=request).exclude(status__in=["CLOSED", "REFUSED"]).exists()
        if request.status != RefundRequest.Status.FAILED or live:
            raise RefundNotDead(status=request.status)
        if advance(ABANDON, pk=request.id, params={"version": request.version, "now": now}) is None:
            raise errors.VersionConflict(refund_request_id=str(request.id))
        return RefundAbandoned(request.id, request.amount_fen)
