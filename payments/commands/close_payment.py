"""Close a payment on our side, once the channel was asked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel import errors
from kernel.statemachine import Edge, P, Sql, advance
from kernel.transactions import unit_of_work
from payments.models import Payment

PREPAY_GRACE = timedelta(seconds=60)
"""A prepay call that began less than this long ago may still be under way."""

CLOSE = {
    source: Edge(
        Payment,
        "close",
        source=source,
        guards=(
            {"prepay": Sql("t.prepay_started_at < %(prepay_before)s")} if source == Payment.Status.PREPAYING else {}
        ),
        changes={"closed_at": P("now"), "version": Sql("t.version + 1")},
        returning=["version"],
    )
    for source in (Payment.Status.CREATED, Payment.Status.PREPAYING, Payment.Status.AWAITING)
}


class PrepayInFlight(errors.Refusal):
    code = "PREPAY_IN_FLIGHT"
    message = _("The payment is being placed at the channel right now. Try again in a minute.")


class PaymentIsPaid(errors.Refusal):
    code = "ORDER_ALREADY_PAID"
    message = _("The payment is already paid.")


@dataclass(frozen=True)
class PaymentClosed:
    payment_id: UUID
    out_trade_no: str
    replayed: bool = False


def close_payment(*, payment_id: UUID, now: datetime, prepay_answered: bool = False) -> PaymentClosed:
    """CREATED, AWAITING or an old PREPAYING → CLOSED. Joins the caller's transaction. The caller has asked the channel:
    whoever may still pay there (AWAITING) was closed and then queried. CLOSED already → replay.
    `prepay_answered`: the channel's answer to the prepay is known (a refusal), so none is on its way.
    Raises NotFound, PaymentIsPaid, PrepayInFlight."""
    with unit_of_work(now=now):
        payment = Payment.objects.select_for_update().filter(id=payment_id).first()
        if payment is None:
            raise errors.NotFound(payment_id=str(payment_id))
        if payment.status == Payment.Status.CLOSED:
            return PaymentClosed(payment.id, payment.out_trade_no, replayed=True)
        edge = CLOSE.get(Payment.Status(payment.status))
        if edge is None:
            raise PaymentIsPaid(out_trade_no=payment.out_trade_no)
        before = now + PREPAY_GRACE if prepay_answered else now - PREPAY_GRACE
        if advance(edge, pk=payment.id, params={"now": now, "prepay_before": before}) is None:
            raise PrepayInFlight(out_trade_no=payment.out_trade_no)
        return PaymentClosed(payment.id, payment.out_trade_no)
