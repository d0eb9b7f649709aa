"""Record money the channel took that no open payment of ours asked for: a charge of its own, to be refunded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel import errors, outbox
from kernel.transactions import unit_of_work
from payments.models import Payment


@dataclass(frozen=True)
class SecondChargeRecorded:
    payment_id: UUID
    trade_no: str
    amount_fen: int
    replayed: bool = False


def record_second_charge(
    *, payment_id: UUID, trade_no: str, amount_fen: int, paid_at: datetime, now: datetime
) -> SecondChargeRecorded:
    """A payment of kind `extra`, PAID, beside the payment whose number it came under. Joins the caller's transaction.

    Use it for another trade number on a paid payment, and for a paid amount that differs from ours: the row carries
    what the channel has, so that a refund can be asked for within exactly that. The same trade number again → replay.
    Raises NotFound, InvalidInput.
    """
    if not trade_no or amount_fen <= 0:
        raise errors.InvalidInput(trade_no=trade_no, amount_fen=amount_fen)
    with unit_of_work(now=now):
        asked = Payment.objects.select_for_update().filter(id=payment_id).first()
        if asked is None:
            raise errors.NotFound(payment_id=str(payment_id))
        known = Payment.objects.filter(merchant_id=asked.merchant_id, channel=asked.channel, trade_no=trade_no).first()
        if known is not None:
            return SecondChargeRecorded(known.id, known.trade_no, known.amount_fen, replayed=True)
        extra = Payment.objects.create(
            merchant_id=asked.merchant_id,
            account_id=asked.account_id,
            order_no=asked.order_no,
            out_trade_no=asked.out_trade_no,
            kind=Payment.Kind.EXTRA,
            channel=asked.channel,
            amount_fen=amount_fen,
            status=Payment.Status.PAID,
            trade_no=trade_no,
            paid_at=paid_at,
            created_at=now,
        )
        outbox.append(
            name="payment.succeeded",
            merchant_id=extra.merchant_id,
            subject=extra.order_no,
            payload={
                "payment_id": str(extra.id),
                "order_no": extra.order_no,
                "out_trade_no": extra.out_trade_no,
                "trade_no": trade_no,
                "kind": extra.kind,
                "channel": extra.channel,
                "amount_fen": amount_fen,
                "paid_at": paid_at.isoformat(),
            },
            now=now,
        )
        return SecondChargeRecorded(extra.id, trade_no, amount_fen)
