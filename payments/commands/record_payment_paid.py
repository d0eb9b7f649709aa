"""Record that the channel has the money of a payment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel import errors
from kernel.statemachine import Edge, Emit, New, P, Sql, advance
from kernel.transactions import unit_of_work
from payments.models import Payment

SUCCEEDED = Emit(
    "payment.succeeded",
    subject=New("order_no"),
    payload={
        "payment_id": New("id"),
        "order_no": New("order_no"),
        "out_trade_no": New("out_trade_no"),
        "trade_no": New("trade_no"),
        "kind": New("kind"),
        "channel": New("channel"),
        "amount_fen": New("amount_fen"),
        "paid_at": New("paid_at"),
    },
)

PAY = {
    source: Edge(
        Payment,
        "record_paid",
        source=source,
        guards={"amount_fen": P("amount_fen")},
        changes={
            "trade_no": P("trade_no"),
            "paid_at": P("paid_at"),
            "payer_ref": Sql("coalesce(nullif(%(payer_ref)s, ''), t.payer_ref)"),
            "payer_paid_fen": P("payer_paid_fen"),
            "version": Sql("t.version + 1"),
        },
        emit=SUCCEEDED,
        returning=["out_trade_no"],
    )
    for source in (
        Payment.Status.CREATED,
        Payment.Status.PREPAYING,
        Payment.Status.AWAITING,
        Payment.Status.CLOSED,
    )
}


class AmountDiffers(errors.Refusal):
    code = "AMOUNT_MISMATCH"
    message = _("The channel names another amount than our record.")


class TradeNoDiffers(errors.Refusal):
    code = "TRADE_NO_MISMATCH"
    message = _("This payment was already paid under another trade number.")


@dataclass(frozen=True)
class PaymentPaid:
    payment_id: UUID
    out_trade_no: str
    trade_no: str
    amount_fen: int
    paid_at: datetime
    replayed: bool = False


def record_payment_paid(
    *,
    payment_id: UUID,
    trade_no: str,
    amount_fen: int,
    paid_at: datetime,
    payer_ref: str = "",
    payer_paid_fen: int | None = None,
    now: datetime,
) -> PaymentPaid:
    """→ PAID (also from CLOSED: a late payment is still money) and `payment.succeeded`. Joins the caller's transaction.

    Only a fact that the channel's signature vouches for may come here. `amount_fen` is the order's amount at the
    channel and has to equal ours inside the update. The same trade number again → replay.
    Raises NotFound, AmountDiffers, TradeNoDiffers (a second charge: `record_second_charge`).
    """
    if not trade_no:
        raise errors.InvalidInput(trade_no=trade_no)
    params = {
        "trade_no": trade_no,
        "amount_fen": amount_fen,
        "paid_at": paid_at,
        "payer_ref": payer_ref,
        "payer_paid_fen": payer_paid_fen,
        "now": now,
    }
    with unit_of_work(now=now):
        # The usual source first: nothing is read unless it does not match.
        moved = advance(PAY[Payment.Status.AWAITING], pk=payment_id, params=params)
        if moved is None:
            payment = Payment.objects.select_for_update().filter(id=payment_id).first()
            if payment is None:
                raise errors.NotFound(payment_id=str(payment_id))
            edge = PAY.get(Payment.Status(payment.status))
            if edge is None:
                return _replay(payment, trade_no=trade_no, amount_fen=amount_fen)
            moved = advance(edge, pk=payment_id, params=params)
            if moved is None:
                raise AmountDiffers(
                    ours_fen=payment.amount_fen, theirs_fen=amount_fen, out_trade_no=payment.out_trade_no
                )
        return PaymentPaid(
            payment_id=payment_id,
            out_trade_no=moved["out_trade_no"],
            trade_no=trade_no,
            amount_fen=amount_fen,
            paid_at=paid_at,
        )


def _replay(payment: Payment, *, trade_no: str, amount_fen: int) -> PaymentPaid:
    if payment.trade_no != trade_no:
        raise TradeNoDiffers(ours=payment.trade_no, theirs=trade_no, out_trade_no=payment.out_trade_no)
    if payment.amount_fen != amount_fen:
        raise AmountDiffers(ours_fen=payment.amount_fen, theirs_fen=amount_fen, out_trade_no=payment.out_trade_no)
    assert payment.paid_at is not None
    return PaymentPaid(
        payment_id=payment.id,
        out_trade_no=payment.out_trade_no,
        trade_no=payment.trade_no,
        amount_fen=payment.amount_fen,
        paid_at=payment.paid_at,
        replayed=True,
    )
