"""Open a payment: the number the channel will know the charge by, stored before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel import errors
from kernel.transactions import unit_of_work
from payments.models import ChannelAccount, Payment

OPEN = (Payment.Status.CREATED, Payment.Status.PREPAYING, Payment.Status.AWAITING)


class ChannelNotAvailable(errors.Refusal):
    code = "CHANNEL_NOT_AVAILABLE"
    status = 422
    message = _("The merchant has no active account at this channel.")


class PaymentAlreadyOpen(errors.Refusal):
    code = "PAYMENT_ALREADY_OPEN"
    message = _("Another payment of this order is open. Close it first.")


class OrderAlreadyCharged(errors.Refusal):
    code = "ORDER_ALREADY_PAID"
    message = _("This order is already paid.")


errors.refuse_on_constraint("one_open_payment_per_order", PaymentAlreadyOpen)
errors.refuse_on_constraint("out_trade_no_is_used_once", PaymentAlreadyOpen)


@dataclass(frozen=True)
class Opened:
    payment_id: UUID
    out_trade_no: str
    channel: str
    amount_fen: int
    status: str
    replayed: bool = False


def open_payment(
    *,
    merchant_id: UUID,
    order_no: str,
    channel: str,
    amount_fen: int,
    kind: str = Payment.Kind.ORDER,
    expires_at: datetime | None = None,
    now: datetime,
) -> Opened:
    """Joins the caller's transaction; the caller holds the order's row.

    The same channel and amount while one is open → that one (`replayed`). An amount of 0 fen is PAID at once with
    kind and channel `none`. Payment numbers are `{order_no}P{n}`, so every charge of an order has its own.
    Raises ChannelNotAvailable, PaymentAlreadyOpen, OrderAlreadyCharged, InvalidInput (negative amount).
    """
    if amount_fen < 0:
        raise errors.InvalidInput(amount_fen=amount_fen)
    if amount_fen == 0:
        kind = Payment.Kind.NONE
    with unit_of_work(now=now):
        earlier = list(
            Payment.objects.filter(merchant_id=merchant_id, order_no=order_no).exclude(kind="extra").order_by("id")
        )
        for payment in earlier:
            if payment.kind != kind:
                continue
            if payment.status == Payment.Status.PAID:
                if kind == Payment.Kind.NONE:
                    return _opened(payment, replayed=True)
                raise OrderAlreadyCharged(order_no=order_no)
            if payment.status in OPEN:
                if (payment.channel, payment.amount_fen) == (channel, amount_fen):
                    return _opened(payment, replayed=True)
                raise PaymentAlreadyOpen(order_no=order_no, out_trade_no=payment.out_trade_no)
        free = kind == Payment.Kind.NONE
        account = None if free else _account(merchant_id, channel)
        payment = Payment.objects.create(
            merchant_id=merchant_id,
            account=account,
            order_no=order_no,
            out_trade_no=f"{order_no}P{len(earlier) + 1}",
            kind=kind,
            channel="none" if free else channel,
            amount_fen=amount_fen,
            status=Payment.Status.PAID if free else Payment.Status.CREATED,
            paid_at=now if free else None,
            expires_at=None if free else expires_at,
            created_at=now,
        )
        return _opened(payment)


def _account(merchant_id: UUID, channel: str) -> ChannelAccount:
    account = ChannelAccount.objects.filter(merchant_id=merchant_id, channel=channel, is_active=True).first()
    if account is None:
        raise ChannelNotAvailable(channel=channel)
    return account


def _opened(payment: Payment, *, replayed: bool = False) -> Opened:
    return Opened(
        payment_id=payment.id,
        out_trade_no=payment.out_trade_no,
        channel=payment.channel,
        amount_fen=payment.amount_fen,
        status=payment.status,
        replayed=replayed,
    )
