"""Send a refund on that the channel parked, under its own number: the only way it may ever be finished."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel import errors
from kernel.statemachine import Edge, Insert, New, P, Sql, Touch, advance
from kernel.transactions import is_outermost, unit_of_work
from payments.accounts import pace_of
from payments.commands.record_refund_fact import record_refund_fact
from payments.gateway import AbnormalRefundTo, ChannelRefused, ChannelUnknown, RefundState
from payments.models import Payment, RefundAttempt, RefundFact, RefundRequest
from payments.registry import gateway_for

UNPARK = Edge(
    RefundAttempt,
    "unpark",
    guards={"version": P("version")},
    changes={
        "next_action_at": Sql("clock_timestamp() + %(query_after)s::int * interval '1 second'"),
        "queries": 0,
        "finished_at": None,
        "last_error": "",
        "version": Sql("t.version + 1"),
    },
    writes=[
        Insert(
            RefundFact,
            {
                "merchant": New("merchant_id"),
                "attempt": New("id"),
                "source": RefundFact.Source.ANSWER,
                "state": "PROCESSING",
                "amount_fen": P("said_fen"),
                "from_status": "ABNORMAL",
                "outcome": RefundFact.Outcome.MOVED,
                "detail": P("detail"),
                "heard_at": P("now"),
            },
        ),
        Touch(
            RefundRequest,
            where={"id": New("request_id"), "status": Sql("s.status = 'FAILED'")},
            changes={"status": RefundRequest.Status.PENDING, "failure_code": "", "version": Sql("s.version + 1")},
        ),
    ],
    returning=["version"],
)


class RefundNotAbnormal(errors.Refusal):
    code = "REFUND_NOT_ABNORMAL"
    message = _("Only a refund that the channel parked can be sent on.")


class AbnormalRefundRefused(errors.Refusal):
    code = "ABNORMAL_REFUND_REFUSED"
    status = 422
    message = _("The channel did not take the parked refund on. Finish it on the channel's own page.")


@dataclass(frozen=True)
class AbnormalRefundApplied:
    refund_no: str
    status: str


def apply_abnormal_refund(
    *,
    merchant_id: UUID,
    refund_request_id: UUID,
    to: str,
    bank_type: str = "",
    bank_account: str = "",
    real_name: str = "",
    person: str,
    now: datetime,
) -> AbnormalRefundApplied:
    """Ask the channel to pay the parked money to a card of the user or of the merchant; the number does not change.

    Never inside a transaction: it is HTTP. Taken on → PROCESSING again and asked about as usual. Bank details go to
    the channel (encrypted there) and are not kept. Raises NotFound, RefundNotAbnormal, AbnormalRefundRefused (a no),
    ServiceAway (no answer: the attempt stays ABNORMAL, asking again is safe).
    """
    if not is_outermost():
        raise RuntimeError("a channel is never asked inside a transaction")
    attempt = (
        RefundAttempt.objects.select_related("payment__account")
        .filter(merchant_id=merchant_id, request_id=refund_request_id)
        .order_by("-seq")
        .first()
    )
    if attempt is None:
        raise errors.NotFound(refund_request_id=str(refund_request_id))
    account = attempt.payment.account
    if attempt.status != RefundAttempt.Status.ABNORMAL or account is None:
        raise RefundNotAbnormal(refund_no=attempt.number, status=attempt.status)
    try:
        said = gateway_for(account).apply_abnormal_refund(
            refund_no=attempt.number,
            refund_id=attempt.channel_refund_id,
            to=AbnormalRefundTo(to),
            bank_type=bank_type,
            bank_account=bank_account,
            real_name=real_name,
            now=now,
        )
    except ChannelRefused as refusal:
        raise AbnormalRefundRefused(refund_no=attempt.number, channel_code=refusal.code) from refusal
    except ChannelUnknown as unknown:
        raise errors.ServiceAway(refund_no=attempt.number) from unknown
    if said.state is not RefundState.PROCESSING or said.amount_fen not in (None, attempt.amount_fen):
        recorded = record_refund_fact(merchant_id=merchant_id, said=said, source="answer", now=now)
        return AbnormalRefundApplied(attempt.number, recorded.status)
    with unit_of_work(now=now):
        Payment.objects.select_for_update().get(id=attempt.payment_id)
        params = {
            "version": attempt.version,
            "query_after": pace_of(account).query_after,
            "said_fen": said.amount_fen,
            "detail": f"parked refund sent on to {to} by {person}"[:200],
            "now": now,
        }
        if advance(UNPARK, pk=attempt.id, params=params) is None:
            after = RefundAttempt.objects.get(id=attempt.id)
            return AbnormalRefundApplied(attempt.number, after.status)
    return AbnormalRefundApplied(attempt.number, RefundAttempt.Status.PROCESSING)
