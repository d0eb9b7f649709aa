"""A channel's word about a supplement's payment."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel import outbox
from kernel.transactions import unit_of_work
from payments.commands.record_payment_paid import AmountDiffers, TradeNoDiffers, record_payment_paid
from payments.commands.record_second_charge import record_second_charge
from payments.commands.request_refund import request_refund
from payments.gateway import PaymentFact, PaymentState
from payments.models import Payment, RefundRequest


@dataclass(frozen=True)
class SupplementSettled:
    """`outcome`: paid, unpaid, second_charge (sent back) or amount_differs (an anomaly, nothing moved)."""

    outcome: str


def settle_supplement(*, payment_id: UUID, fact: PaymentFact, now: datetime) -> SupplementSettled:
    """SUCCESS with exactly our amount is money (also late: its claim then sends it back); the rest moves nothing."""
    if fact.state is not PaymentState.SUCCESS or fact.amount_fen is None or not fact.trade_no:
        return SupplementSettled("unpaid")
    try:
        record_payment_paid(
            payment_id=payment_id,
            trade_no=fact.trade_no,
            amount_fen=fact.amount_fen,
            paid_at=fact.paid_at or now,
            payer_paid_fen=fact.payer_paid_fen,
            now=now,
        )
    except TradeNoDiffers:
        return _send_second_charge_back(payment_id, fact.trade_no, fact.amount_fen, fact.paid_at or now, now=now)
    except AmountDiffers as refusal:
        payment = Payment.objects.get(pk=payment_id)
        with unit_of_work(now=now):
            outbox.append(
                name="after_sales.anomaly",
                merchant_id=payment.merchant_id,
                subject=payment.order_no,
                payload={"kind": "supplement_amount_differs", **refusal.data},
                now=now,
            )
        return SupplementSettled("amount_differs")
    return SupplementSettled("paid")


def _send_second_charge_back(
    payment_id: UUID, trade_no: str, amount_fen: int, paid_at: datetime, *, now: datetime
) -> SupplementSettled:
    with unit_of_work(now=now):
        extra = record_second_charge(
            payment_id=payment_id, trade_no=trade_no, amount_fen=amount_fen, paid_at=paid_at, now=now
        )
        payment = Payment.objects.get(pk=extra.payment_id)
        request_refund(
            merchant_id=payment.merchant_id,
            payment_id=payment.pk,
            owner_kind=RefundRequest.OwnerKind.ORDER_PAYMENT,
            owner_no=trade_no,
            amount_fen=amount_fen,
            reason="second_charge",
            now=now,
        )
    return SupplementSettled("second_charge")
