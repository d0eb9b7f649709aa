"""Deliver: every unit that was not refunded is shipped or granted; the bill is written in the same statement."""

from datetime import datetime
from uuid import UUID

from kernel.statemachine import Edge, Insert, New, P, Sql, advance
from kernel.transactions import unit_of_work
from orders.actors import SYSTEM, Actor
from orders.models import Order, OrderBill, OrderStatusLog
from orders.moves import NEXT_VERSION, event, log_row, move_params

UNITS = "ARRAY(SELECT generate_series(1, l.qty))"
EVERY_UNIT_LEFT_OR_REFUNDED = Sql(
    "NOT EXISTS (SELECT 1 FROM order_line l WHERE l.order_id = t.id"
    f" AND NOT (l.shipped_ordinals || l.refunded_ordinals) @> {UNITS})"
    " AND EXISTS (SELECT 1 FROM order_line l WHERE l.order_id = t.id AND l.shipped_qty > 0)"
)
WHOLLY_REFUNDED = Sql(
    "NOT EXISTS (SELECT 1 FROM order_line l WHERE l.order_id = t.id"
    f" AND (l.shipped_qty > 0 OR NOT l.refunded_ordinals @> {UNITS}))"
)
DELIVER = Edge(
    Order,
    "deliver",
    guards={
        "coupon": Sql("t.coupon_state IN ('none', 'redeemed', 'honoured')"),
        "fulfilment": Sql("t.fulfilment <> 'void'"),
        "units": EVERY_UNIT_LEFT_OR_REFUNDED,
    },
    changes={
        "version": NEXT_VERSION,
        "fulfilment": Order.Fulfilment.DONE,
        "delivered_at": P("now"),
        "next_fulfil_at": None,
    },
    writes=[
        log_row(OrderStatusLog.Command.DELIVER, source=Order.Status.PAID),
        Insert(
            OrderBill,
            {
                "merchant": New("merchant_id"),
                "order": New("id"),
                "order_no": New("order_no"),
                "out_trade_no": New("out_trade_no"),
                "trade_no": New("trade_no"),
                "channel": New("paid_channel"),
                "amount_fen": New("payable_fen"),
                "paid_at": New("paid_at"),
                "created_at": P("now"),
            },
        ),
    ],
    emit=event("order.delivered"),
    returning=["version"],
)
VOID = Edge(
    Order,
    "void_fulfilment",
    guards={"fulfilment": Sql("t.fulfilment <> 'void'"), "units": WHOLLY_REFUNDED},
    changes={"version": NEXT_VERSION, "fulfilment": Order.Fulfilment.VOID, "next_fulfil_at": None},
    writes=[log_row(OrderStatusLog.Command.VOID_FULFILMENT, source=Order.Status.PAID)],
    emit=event("order.fulfilment_void"),
    returning=["version"],
)


def deliver_order(*, order_id: UUID, now: datetime, actor: Actor = SYSTEM) -> bool:
    """PAID → DELIVERED with its bill, once every unit has left or was refunded and the coupon is the order's. Joins
    the caller's transaction. False: not yet (nothing is written)."""
    with unit_of_work(now=now):
        return advance(DELIVER, pk=order_id, params=move_params(actor=actor, now=now)) is not None


def finish_fulfilment(*, order_id: UUID, now: datetime, actor: Actor = SYSTEM) -> str:
    """After units were refunded: deliver when only they were missing, or make the fulfilment void when nothing was
    ever shipped and nothing is left to ship (status stays PAID). Joins. Returns delivered, void or waiting."""
    with unit_of_work(now=now):
        Order.objects.select_for_update(no_key=True).get(id=order_id)
        if deliver_order(order_id=order_id, now=now, actor=actor):
            return "delivered"
        params = move_params(actor=actor, now=now, reason="wholly refunded")
        if advance(VOID, pk=order_id, params=params) is not None:
            return "void"
        return "waiting"
