"""Refund outside the channel, second half: another person confirms the voucher."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel import errors
from kernel.statemachine import Edge, Emit, New, P, Sql, Touch, advance
from kernel.transactions import unit_of_work
from payments.commands._dead_request import dead_request
from payments.models import Payment, RefundRequest

APPROVE = Edge(
    RefundRequest,
    "succeed",
    source=RefundRequest.Status.FAILED,
    guards={"version": P("version"), "second_person": Sql("t.voucher <> '' AND t.voucher_by <> %(person)s::text")},
    changes={
        "approved_by": P("person"),
        "succeeded_at": P("now"),
        "recorded_at": P("now"),
        "refund_no": Sql("t.owner_no || '-offline'"),
        "version": Sql("t.version + 1"),
    },
    writes=[
        Touch(
            Payment,
            where={"id": New("payment_id")},
            changes={"refunded_fen": Sql("s.refunded_fen + u.amount_fen"), "version": Sql("s.version + 1")},
        )
    ],
    emit=Emit(
        "refund.succeeded",
        subject=New("owner_no"),
        payload={
            "refund_request_id": New("id"),
            "owner_kind": New("owner_kind"),
            "owner_no": New("owner_no"),
            "order_no": New("order_no"),
            "payment_id": New("payment_id"),
            "refund_no": New("refund_no"),
            "amount_fen": New("amount_fen"),
            "channel": "offline",
            "payment_kind": Sql("(SELECT p.kind FROM payment p WHERE p.id = u.payment_id)"),
            "succeeded_at": P("now", "timestamptz"),
        },
    ),
    returning=["version"],
)


class SecondPersonNeeded(errors.Refusal):
    code = "SECOND_PERSON_NEEDED"
    message = _("Another person than the one who entered the voucher has to approve it.")


class VoucherMissing(errors.Refusal):
    code = "VOUCHER_MISSING"
    message = _("No voucher was entered yet.")


errors.refuse_on_constraint("offline_refund_has_second_person", SecondPersonNeeded)


@dataclass(frozen=True)
class OfflineRefunded:
    refund_request_id: UUID
    refund_no: str
    amount_fen: int
    replayed: bool = False


def approve_offline_refund(
    *, merchant_id: UUID, refund_request_id: UUID, person: str, now: datetime
) -> OfflineRefunded:
    """The second person: FAILED → SUCCEEDED with `refund.succeeded` (channel `offline`, number `{owner_no}-offline`).
    Joins the caller's transaction. Done already → replay. Raises NotFound, RefundNotDead, VoucherMissing,
    SecondPersonNeeded."""
    with unit_of_work(now=now):
        found = RefundRequest.objects.filter(id=refund_request_id, merchant_id=merchant_id).first()
        if found is not None and found.status == RefundRequest.Status.SUCCEEDED and found.approved_by:
            return OfflineRefunded(found.id, found.refund_no, found.amount_fen, replayed=True)
        request = dead_request(merchant_id, refund_request_id)
        if not request.voucher:
            raise VoucherMissing(refund_request_id=str(request.id))
        if request.voucher_by == person:
            raise SecondPersonNeeded(entered_by=request.voucher_by)
        params = {"version": request.version, "person": person, "now": now}
        if advance(APPROVE, pk=request.id, params=params) is None:
            raise errors.VersionConflict(refund_request_id=str(request.id))
        return OfflineRefunded(request.id, f"{request.owner_no}-offline", request.amount_fen)
