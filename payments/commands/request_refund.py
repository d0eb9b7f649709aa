"""Ask for money to go back to a payment: the one door to a refund, whoever asks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel import errors, numbers
from kernel.statemachine import Edge, Emit, Insert, New, P, Sql, advance
from kernel.transactions import unit_of_work
from payments.accounts import REFUND_WINDOW_DAYS
from payments.models import MAX_REFUNDS_PER_PAYMENT, Payment, RefundAttempt, RefundRequest

NUMBER = re.compile(r"[0-9A-Za-z_-]{4,48}", re.ASCII)

NOT_YET = Sql(
    "NOT EXISTS (SELECT 1 FROM refund_request r WHERE r.payment_id = t.id"
    " AND r.owner_kind = %(owner_kind)s::text AND r.owner_no = %(owner_no)s::text)"
)
FITS = Sql("t.refund_committed_fen + %(amount_fen)s::bigint <= t.amount_fen")
BY_CHANNEL = Sql(
    f"t.refund_count < {MAX_REFUNDS_PER_PAYMENT}"
    f" AND t.paid_at > clock_timestamp() - interval '{REFUND_WINDOW_DAYS} days'"
)

REQUEST = {
    "id": P("request_id"),
    "merchant": New("merchant_id"),
    "payment": New("id"),
    "order_no": New("order_no"),
    "owner_kind": P("owner_kind"),
    "owner_no": P("owner_no"),
    "amount_fen": P("amount_fen"),
    "reason": P("reason"),
    "created_at": P("now"),
}

BY_THE_CHANNEL = Edge(
    Payment,
    "commit_refund",
    guards={"merchant_id": P("merchant_id"), "once": NOT_YET, "amount": FITS, "limits": BY_CHANNEL},
    changes={
        "refund_committed_fen": Sql("t.refund_committed_fen + %(amount_fen)s::bigint"),
        "refund_count": Sql("t.refund_count + 1"),
        "version": Sql("t.version + 1"),
    },
    writes=[
        Insert(RefundRequest, {**REQUEST, "attempts": 1}),
        Insert(
            RefundAttempt,
            {
                "id": P("attempt_id"),
                "merchant": New("merchant_id"),
                "request": P("request_id"),
                "payment": New("id"),
                "seq": 0,
                "number": P("number"),
                "amount_fen": P("amount_fen"),
                "next_action_at": Sql("clock_timestamp()"),
                "created_at": P("now"),
            },
        ),
    ],
    emit=Emit(
        "refund.requested",
        subject=P("owner_no"),
        payload={"refund_request_id": P("request_id", "uuid"), "attempt_id": P("attempt_id", "uuid")},
    ),
)
"""Room is taken, the number is stored and the worker is woken, all in one statement."""

BY_OTHER_MEANS = Edge(
    Payment,
    "commit_refund",
    guards={"merchant_id": P("merchant_id"), "once": NOT_YET, "amount": FITS},
    changes={
        "refund_committed_fen": Sql("t.refund_committed_fen + %(amount_fen)s::bigint"),
        "version": Sql("t.version + 1"),
    },
    writes=[
        Insert(
            RefundRequest,
            {
                **REQUEST,
                "status": RefundRequest.Status.FAILED,
                "route": RefundRequest.Route.OFFLINE,
                "route_reason": P("route_reason"),
                "failure_code": P("route_reason"),
            },
        ),
    ],
    emit=Emit(
        "refund.failed",
        subject=P("owner_no"),
        payload={
            "refund_request_id": P("request_id", "uuid"),
            "owner_kind": P("owner_kind"),
            "owner_no": P("owner_no"),
            "order_no": New("order_no"),
            "refund_no": "",
            "amount_fen": P("amount_fen", "bigint"),
            "channel": New("channel"),
            "payment_id": New("id"),
            "payment_kind": New("kind"),
            "code": P("route_reason"),
            "dead": True,
        },
    ),
)
"""The channel would refuse: nothing is sent, room is taken all the same, a person chooses balance or offline."""


class RefundExceedsPaid(errors.Refusal):
    code = "REFUND_EXCEEDS_PAID"
    status = 422
    message = _("All refunds of this payment together would exceed what was paid.")


class PaymentNotPaid(errors.Refusal):
    code = "PAYMENT_NOT_PAID"
    message = _("There is nothing to refund: the payment is not paid.")


class RefundAlreadyRequested(errors.Refusal):
    code = "REFUND_ALREADY_REQUESTED"
    message = _("A refund for this was already requested with another amount.")


errors.refuse_on_constraint("refunds_committed_within_paid", RefundExceedsPaid)
errors.refuse_on_constraint("refund_is_requested_once_per_owner", RefundAlreadyRequested)
errors.refuse_on_constraint("refund_number_is_used_once", RefundAlreadyRequested)


@dataclass(frozen=True)
class RefundRequested:
    """`refund_no` is empty and `status` FAILED when the channel would refuse (`route_reason` says why)."""

    refund_request_id: UUID
    refund_no: str
    amount_fen: int
    status: str
    route: str
    route_reason: str
    replayed: bool = False


def request_refund(
    *,
    merchant_id: UUID,
    payment_id: UUID,
    owner_kind: str,
    owner_no: str,
    amount_fen: int,
    reason: str = "",
    now: datetime,
) -> RefundRequested:
    """Take room in the payment, store refund number `{owner_no}-0`, announce `refund.requested`. Joins the caller.

    `owner_no` is the business key: an after-sales number, or the trade number of a charge that has to go back; 4 to 48
    of `[0-9A-Za-z_-]`. The same owner and amount again → replay. Past the channel's limits (50 refunds, 365 days) the
    request is stored as FAILED with a reason and `refund.failed` says so: nothing was sent.
    Raises NotFound, PaymentNotPaid, RefundExceedsPaid, RefundAlreadyRequested (another amount), InvalidInput.
    """
    if amount_fen <= 0 or NUMBER.fullmatch(owner_no) is None or owner_kind not in RefundRequest.OwnerKind.values:
        raise errors.InvalidInput(amount_fen=amount_fen, owner_kind=owner_kind, owner_no=owner_no)
    request_id = numbers.uuid7()
    params = {
        "merchant_id": merchant_id,
        "request_id": request_id,
        "owner_kind": owner_kind,
        "owner_no": owner_no,
        "amount_fen": amount_fen,
        "reason": reason[:80],
        "now": now,
    }
    number = f"{owner_no}-0"
    with unit_of_work(now=now):
        sent = {**params, "attempt_id": numbers.uuid7(), "number": number}
        if advance(BY_THE_CHANNEL, pk=payment_id, params=sent) is not None:
            return RefundRequested(request_id, number, amount_fen, "PENDING", "channel", "")
        payment = Payment.objects.select_for_update().filter(id=payment_id, merchant_id=merchant_id).first()
        if payment is None:
            raise errors.NotFound(payment_id=str(payment_id))
        known = RefundRequest.objects.filter(payment=payment, owner_kind=owner_kind, owner_no=owner_no).first()
        if known is not None:
            return _replay(known, amount_fen=amount_fen)
        if payment.status != Payment.Status.PAID:
            raise PaymentNotPaid(out_trade_no=payment.out_trade_no, status=payment.status)
        left_fen = payment.amount_fen - payment.refund_committed_fen
        if amount_fen > left_fen:
            raise RefundExceedsPaid(asked_fen=amount_fen, left_fen=left_fen, paid_fen=payment.amount_fen)
        # Room was freed between the statement and the lock, or one of the channel's limits is reached.
        if advance(BY_THE_CHANNEL, pk=payment_id, params=sent) is not None:
            return RefundRequested(request_id, number, amount_fen, "PENDING", "channel", "")
        limit = "REFUND_COUNT" if payment.refund_count >= MAX_REFUNDS_PER_PAYMENT else "PAYMENT_TOO_OLD"
        if advance(BY_OTHER_MEANS, pk=payment_id, params={**params, "route_reason": limit}) is None:
            raise errors.VersionConflict(payment_id=str(payment_id))
        return RefundRequested(request_id, "", amount_fen, "FAILED", "offline", limit)


def _replay(known: RefundRequest, *, amount_fen: int) -> RefundRequested:
    if known.amount_fen != amount_fen:
        raise RefundAlreadyRequested(owner_no=known.owner_no, asked_fen=amount_fen, known_fen=known.amount_fen)
    newest = RefundAttempt.objects.filter(request=known).order_by("-seq").first()
    return RefundRequested(
        refund_request_id=known.id,
        refund_no=newest.number if newest else "",
        amount_fen=known.amount_fen,
        status=known.status,
        route=known.route,
        route_reason=known.route_reason,
        replayed=True,
    )
