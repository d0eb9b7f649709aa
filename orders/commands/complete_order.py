"""Complete: the user confirms receipt, or time does."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel import idempotency
from kernel.errors import IllegalTransition, NotFound
from kernel.idempotency import BusinessKey
from kernel.statemachine import Edge, P, Sql, advance
from kernel.transactions import unit_of_work
from orders.actors import SYSTEM, user
from orders.commands.sign_shipment import sign_parcels
from orders.models import Order, OrderStatusLog, Shipment
from orders.moves import NEXT_VERSION, event, log_row, move_params

COMPLETE = Edge(
    Order,
    "complete",
    changes={"version": NEXT_VERSION, "completed_at": P("now"), "complete_at": None},
    writes=[log_row(OrderStatusLog.Command.COMPLETE, source=Order.Status.DELIVERED)],
    emit=event("order.completed"),
    returning=["version"],
)
COMPLETE_DUE = Edge(
    Order,
    "complete",
    guards={"due": Sql("t.complete_at <= %(now)s::timestamptz")},
    changes={"version": NEXT_VERSION, "completed_at": P("now"), "complete_at": None},
    writes=[log_row(OrderStatusLog.Command.COMPLETE, source=Order.Status.DELIVERED)],
    emit=event("order.completed"),
    returning=["version"],
)


@dataclass(frozen=True)
class Completed:
    order_no: str
    status: int
    version: int
    completed_at: datetime
    replayed: bool = False


def confirm_receipt(*, merchant_id: UUID, order_no: str, user_id: str, key: BusinessKey, now: datetime) -> Completed:
    """DELIVERED → COMPLETED by the buyer; parcels still on their way count as signed for. COMPLETED already → the
    same answer. Raises NotFound (also for another user's order), IllegalTransition."""
    with unit_of_work(now=now):
        replay = idempotency.begin(key, Completed, now=now)
        if replay is not None:
            return replay
        order = (
            Order.objects.select_for_update(no_key=True)
            .filter(merchant_id=merchant_id, order_no=order_no, user_id=user_id)
            .first()
        )
        if order is None:
            raise NotFound(order_no=order_no)
        if order.status == Order.Status.DELIVERED:
            on_the_way = list(Shipment.objects.filter(order=order, signed_at=None))
            sign_parcels(order, on_the_way, signed_at=now, by=f"user {user_id}", now=now)
            advance(COMPLETE, pk=order.id, params=move_params(actor=user(user_id), now=now))
        order = Order.objects.get(id=order.id)
        if order.completed_at is None:
            raise IllegalTransition(order_no=order_no, status=order.status)
        completed = Completed(order.order_no, order.status, order.version, order.completed_at)
        idempotency.finish(key, completed)
        return completed


def complete_order(*, order_id: UUID, now: datetime) -> bool:
    """DELIVERED → COMPLETED because its time has come. False: not due, or moved on."""
    with unit_of_work(now=now):
        params = move_params(actor=SYSTEM, now=now, reason="not confirmed in time")
        return advance(COMPLETE_DUE, pk=order_id, params=params) is not None
