"""Ask the channel about an order's charges now, and act on the answer by the matrix: what the anomaly queue's button
does, for whoever will not wait for the next automatic try."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orders.commands.close_order import close_order
from orders.commands.resolve_anomaly import resolve_decided
from orders.commands.settle_charge import settle_charge, situation_of
from orders.matrix import Action, Said, asks
from orders.models import Anomaly, Order
from orders.tender import ask
from payments.models import Payment


@dataclass(frozen=True)
class ChannelAsked:
    """What the channel answered about each payment (payment number → answer) and what was done about it."""

    order_no: str
    answers: dict[str, str]
    outcomes: dict[str, str]
    status: int


def ask_channel(*, order_id: UUID, now: datetime) -> ChannelAsked:
    """Query every payment of the order that was ever placed and is not accounted for; settle, reopen or refund what
    the answer calls for. Not inside a transaction; idempotent."""
    order = Order.objects.get(id=order_id)
    answers: dict[str, str] = {}
    outcomes: dict[str, str] = {}
    placed = Payment.objects.filter(
        merchant_id=order.merchant_id, order_no=order.order_no, kind=Payment.Kind.ORDER
    ).exclude(status__in=[Payment.Status.PAID, Payment.Status.CREATED])
    for payment in placed.select_related("account").order_by("created_at"):
        order = Order.objects.get(id=order_id)
        if not asks(situation_of(order), Said.NOTHING):
            break
        heard = ask(payment, now=now)
        settled = settle_charge(payment_id=payment.id, heard=heard, evidence={"asked_by": "a person"}, now=now)
        outcome = settled.outcome
        if settled.action is Action.CLOSE:
            ended = close_order(order_id=order.id, reason=Order.ClosedReason.TIMEOUT.value, now=now)
            outcome = ended.ending
        elif settled.action is not Action.LATER:
            resolve_decided(
                order=order,
                kind=Anomaly.Kind.GATEWAY_QUERY_FAILED,
                how=f"the channel answered: {outcome}",
                now=now,
            )
        answers[payment.out_trade_no], outcomes[payment.out_trade_no] = heard.answer, outcome
    return ChannelAsked(order.order_no, answers, outcomes, Order.objects.get(id=order_id).status)
