"""Cancel: the user ends a pending order. Paid at the channel after all → it stays and is told so."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel import idempotency
from kernel.errors import IllegalTransition, NotFound
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work
from orders.actors import user
from orders.commands._end_order import CANCEL
from orders.commands.close_order import Ending, GatewayUndecided, end_pending
from orders.commands.create_order import OrderAlreadyPaid
from orders.models import Order


@dataclass(frozen=True)
class Cancelled:
    order_no: str
    status: int
    version: int
    cancelled_at: datetime
    replayed: bool = False


def cancel_order(
    *, merchant_id: UUID, order_no: str, user_id: str, key: BusinessKey, now: datetime, reason: str = ""
) -> Cancelled:
    """PENDING → CANCELLED, after asking the channel with no transaction open. CANCELLED already → the same answer.

    Raises NotFound (also for another user's order), OrderAlreadyPaid, GatewayUndecided, IllegalTransition (CLOSED).
    """
    replay = idempotency.find(key, Cancelled)
    if replay is not None:
        return replay
    order = Order.objects.filter(merchant_id=merchant_id, order_no=order_no, user_id=user_id).first()
    if order is None:
        raise NotFound(order_no=order_no)
    ended = end_pending(order_id=order.id, edge=CANCEL, now=now, actor=user(user_id), note=reason)
    order = Order.objects.get(id=order.id)
    if order.status in Order.PAID_OR_LATER:
        raise OrderAlreadyPaid(order_no=order_no, status=order.status)
    if ended.ending == Ending.UNDECIDED:
        raise GatewayUndecided(order_no=order_no, retry_after_seconds=10)
    if order.status != Order.Status.CANCELLED or order.cancelled_at is None:
        raise IllegalTransition(order_no=order_no, status=order.status, closed_reason=order.closed_reason)
    result = Cancelled(order.order_no, order.status, order.version, order.cancelled_at)
    with unit_of_work(now=now):
        earlier = idempotency.begin(key, Cancelled, now=now)
        if earlier is None:
            idempotency.finish(key, result)
    return earlier or result
