"""Close: the system ends a pending order, after asking the channel whether it was paid."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel.errors import NotFound, Refusal
from kernel.statemachine import Edge, advance
from kernel.transactions import unit_of_work
from orders.actors import SYSTEM, Actor
from orders.commands._end_order import CLOSE, PaymentMovedOn, end_params, end_what_it_held, open_payments
from orders.commands.open_anomaly import open_anomaly
from orders.commands.settle_charge import settle_charge
from orders.models import Anomaly, Order, PayMethod
from orders.moves import move_params
from orders.tender import Answer, Heard, ask_and_close
from payments.commands.close_payment import PrepayInFlight
from payments.models import Payment

CHECK_BACKOFF_SECONDS = (10, 30, 60, 120, 300, 600)
ALARM_AFTER_TRIES = 3
ROUNDS = 5
"""So often an order's payments are asked about at once, when clients place them again meanwhile."""


class GatewayUndecided(Refusal):
    code = "GATEWAY_UNDECIDED"
    status = 503
    message = _("The payment channel does not say whether the order was paid. Try again shortly.")


class Ending(StrEnum):
    """What became of an attempt to end a pending order."""

    ENDED = "ended"
    PAID = "paid"
    UNDECIDED = "undecided"
    ALREADY = "already"


@dataclass(frozen=True)
class OrderEnded:
    """ENDED now, PAID at the channel (and settled so), UNDECIDED (asked again later), or ALREADY not pending."""

    order_no: str
    ending: str
    status: int
    version: int
    closed_reason: str = ""
    detail: str = ""


def close_order(
    *,
    order_id: UUID,
    reason: str,
    now: datetime,
    actor: Actor = SYSTEM,
    note: str = "",
    prepay_answered: bool = False,
) -> OrderEnded:
    """PENDING → CLOSED with a reason. Asks the channel first (query, close, query), with no transaction open: paid
    there → the payment is settled instead; no answer → PENDING stays, asked again with back-off, and an anomaly
    after three tries. Coupon and stock are released in the closing transaction. `prepay_answered`: the channel has
    just answered (refused) the prepay, so that none is on its way. Raises NotFound."""
    return end_pending(
        order_id=order_id,
        edge=CLOSE,
        closed_reason=reason,
        now=now,
        actor=actor,
        note=note,
        prepay_answered=prepay_answered,
    )


def end_pending(
    *,
    order_id: UUID,
    edge: Edge,
    now: datetime,
    actor: Actor,
    closed_reason: str = "",
    note: str = "",
    prepay_answered: bool = False,
) -> OrderEnded:
    """Close and cancel share this: ask, then end, or settle, or wait. A payment that was placed anew in between is
    asked about again, so often and no more."""
    for _round in range(ROUNDS):
        with suppress(PaymentMovedOn):
            return _ask_and_end(order_id, edge, now, actor, closed_reason, note, prepay_answered)
    return _told(_read(order_id), Ending.UNDECIDED, PaymentMovedOn.code)


def _ask_and_end(
    order_id: UUID, edge: Edge, now: datetime, actor: Actor, closed_reason: str, note: str, prepay_answered: bool
) -> OrderEnded:
    """Raises PaymentMovedOn."""
    order = _read(order_id)
    if order.status != Order.Status.PENDING:
        return _told(order, Ending.ALREADY)
    # Our own wallet closes a number for good, in the ledger that charges it: what is on its way there comes too late.
    prepay_answered = prepay_answered or order.pay_method == PayMethod.BALANCE
    asked: dict[UUID, int] = {}
    for payment in open_payments(order).select_related("account"):
        heard = ask_and_close(payment, now=now, answered=prepay_answered)
        asked[payment.id] = payment.version
        if heard.answer is Answer.UNKNOWN:
            _postpone(order, payment, heard, now=now)
            return _told(_read(order_id), Ending.UNDECIDED, heard.detail)
        if heard.answer is not Answer.OVER:
            settle_charge(payment_id=payment.id, heard=heard, now=now)
            order = _read(order_id)
            paid = order.status != Order.Status.PENDING
            return _told(order, Ending.PAID if paid else Ending.UNDECIDED, heard.answer)
    params = {
        **move_params(actor=actor, now=now, reason=note or closed_reason),
        **end_params(asked=asked, now=now, closed_reason=closed_reason),
    }
    try:
        with unit_of_work(now=now):
            if advance(edge, pk=order.id, params=params) is None:
                return _told(_read(order.id), Ending.ALREADY)
            end_what_it_held(
                order,
                asked=asked,
                reason=closed_reason or "cancelled",
                now=now,
                prepay_answered=prepay_answered,
            )
    except PrepayInFlight as refusal:
        return _told(_read(order_id), Ending.UNDECIDED, refusal.code)
    return _told(_read(order_id), Ending.ENDED)


def _postpone(order: Order, payment: Payment, heard: Heard, *, now: datetime) -> None:
    """Nothing is known: look again later, and say so to people once it has lasted."""
    wait = CHECK_BACKOFF_SECONDS[min(order.check_tries, len(CHECK_BACKOFF_SECONDS) - 1)]
    with unit_of_work(now=now):
        Order.objects.filter(pk=order.pk, status=Order.Status.PENDING).update(
            next_check_at=now + timedelta(seconds=wait), check_tries=order.check_tries + 1
        )
        if order.check_tries + 1 >= ALARM_AFTER_TRIES:
            open_anomaly(
                merchant_id=order.merchant_id,
                kind=Anomaly.Kind.GATEWAY_QUERY_FAILED,
                order=order,
                out_trade_no=payment.out_trade_no,
                facts={"while": "closing"},
                evidence={"detail": heard.detail},
                outcome="stays_pending",
                now=now,
            )


def _read(order_id: UUID) -> Order:
    order = Order.objects.filter(id=order_id).first()
    if order is None:
        raise NotFound(order_id=str(order_id))
    return order


def _told(order: Order, ending: Ending, detail: str = "") -> OrderEnded:
    return OrderEnded(order.order_no, ending, order.status, order.version, order.closed_reason, str(detail))
