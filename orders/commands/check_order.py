"""Look after an order whose callback may be lost: ask shortly before its time is over, end it when it is, and look a
few times more when it has ended."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from kernel.transactions import unit_of_work
from orders.commands._end_order import LOOK_AGAIN, open_payments
from orders.commands.close_order import close_order
from orders.commands.settle_charge import settle_charge, situation_of
from orders.matrix import Said, asks
from orders.models import Order
from orders.tender import Answer, ask
from payments.models import Payment

CAME = (Answer.PAID_EQUAL, Answer.PAID_DIFFERENT, Answer.REFUNDED)
ASK_AGAIN = timedelta(minutes=1)


@dataclass(frozen=True)
class Checked:
    """`outcome`: paid, pending, how the ending went (ended, paid, undecided, already), or, of an order that has ended:
    settled (money came after all), quiet, unknown."""

    order_no: str
    outcome: str


def check_order(*, order_id: UUID, now: datetime) -> Checked:
    """Before the payment window's end: query what was placed and settle what was paid. After it: close (`timeout`),
    which asks first. Ended: ask what was placed, as often as LOOK_AGAIN says. Not inside a transaction; idempotent."""
    order = Order.objects.get(id=order_id)
    if order.status in (Order.Status.CLOSED, Order.Status.CANCELLED):
        return _look_again(order, now=now)
    if order.status != Order.Status.PENDING:
        return Checked(order.order_no, "already")
    if order.pay_expires_at <= now:
        ended = close_order(order_id=order_id, reason=Order.ClosedReason.TIMEOUT.value, now=now)
        return Checked(order.order_no, ended.ending)
    placed = (Payment.Status.PREPAYING, Payment.Status.AWAITING)
    for payment in open_payments(order).filter(status__in=placed).select_related("account"):
        heard = ask(payment, now=now)
        if heard.answer in CAME:
            settle_charge(payment_id=payment.id, heard=heard, now=now)
    with unit_of_work(now=now):
        waiting = Order.objects.filter(id=order_id, status=Order.Status.PENDING).update(
            next_check_at=order.pay_expires_at
        )
    return Checked(order.order_no, "pending" if waiting else "paid")


def _look_again(order: Order, *, now: datetime) -> Checked:
    """Ask about what an ended order had placed: money that came in the moment of the ending is settled (reopened or
    sent back) although its callback was lost."""
    outcome = "quiet"
    placed = Payment.objects.filter(
        merchant_id=order.merchant_id, order_no=order.order_no, kind=Payment.Kind.ORDER, status=Payment.Status.CLOSED
    ).exclude(prepay_started_at=None)
    for payment in placed.select_related("account"):
        if not asks(situation_of(order), Said.NOTHING):
            break
        heard = ask(payment, now=now)
        if heard.answer in CAME:
            settle_charge(payment_id=payment.id, heard=heard, now=now)
            outcome = "settled"
        elif heard.answer is Answer.UNKNOWN:
            outcome = "unknown"
    tries = order.check_tries if outcome == "unknown" else order.check_tries + 1
    ended_at = order.closed_at or order.cancelled_at or now
    later = ended_at + LOOK_AGAIN[tries] if tries < len(LOOK_AGAIN) and outcome != "settled" else None
    if outcome == "unknown":
        later = now + ASK_AGAIN
    with unit_of_work(now=now):
        Order.objects.filter(id=order.id, version=order.version).update(
            next_check_at=later if later is None else max(later, now + ASK_AGAIN), check_tries=tries
        )
    return Checked(order.order_no, outcome)
