"""Look after a pending order whose callback may be lost: ask shortly before its time is over, end it when it is."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel.transactions import unit_of_work
from orders.commands._end_order import open_payments
from orders.commands.close_order import close_order
from orders.commands.settle_charge import settle_charge
from orders.models import Order
from orders.tender import Answer, ask
from payments.models import Payment


@dataclass(frozen=True)
class Checked:
    """`outcome`: paid, pending, or how the ending went (ended, paid, undecided, already)."""

    order_no: str
    outcome: str


def check_order(*, order_id: UUID, now: datetime) -> Checked:
    """Before the payment window's end: query what was placed and settle what was paid. After it: close (`timeout`),
    which asks first. Not inside a transaction; idempotent."""
    order = Order.objects.get(id=order_id)
    if order.status != Order.Status.PENDING:
        return Checked(order.order_no, "already")
    if order.pay_expires_at <= now:
        ended = close_order(order_id=order_id, reason=Order.ClosedReason.TIMEOUT.value, now=now)
        return Checked(order.order_no, ended.ending)
    placed = (Payment.Status.PREPAYING, Payment.Status.AWAITING)
    for payment in open_payments(order).filter(status__in=placed).select_related("account"):
        heard = ask(payment, now=now)
        if heard.answer in (Answer.PAID_EQUAL, Answer.PAID_DIFFERENT, Answer.REFUNDED):
            settle_charge(payment_id=payment.id, heard=heard, now=now)
    with unit_of_work(now=now):
        waiting = Order.objects.filter(id=order_id, status=Order.Status.PENDING).update(
            next_check_at=order.pay_expires_at
        )
    return Checked(order.order_no, "pending" if waiting else "paid")
