"""Reads of quotes and orders, always inside one merchant."""

from collections.abc import Sequence
from uuid import UUID

from django.db.models import Prefetch, QuerySet

from orders.models import Order, OrderStatusLog, Quote, ShipmentLine
from payments.models import Payment


def get_quote(*, merchant_id: UUID, quote_id: UUID) -> Quote | None:
    """A quote with its breakdown."""
    return Quote.objects.filter(merchant_id=merchant_id, id=quote_id).first()


def list_orders(*, merchant_id: UUID, user_id: str | None = None, status: int | None = None) -> QuerySet[Order]:
    """The orders of a merchant, of one user or in one status if asked."""
    found = Order.objects.filter(merchant_id=merchant_id)
    if user_id:
        found = found.filter(user_id=user_id)
    if status is not None:
        found = found.filter(status=status)
    return found


def get_order(*, merchant_id: UUID, order_no: str) -> Order | None:
    """An order with lines, parcels and coupon evidence, in a constant number of queries."""
    parcel_lines = ShipmentLine.objects.select_related("line").order_by("line__line_no")
    return (
        Order.objects.filter(merchant_id=merchant_id, order_no=order_no)
        .select_related("coupon", "bill")
        .prefetch_related("lines", Prefetch("shipments__lines", parcel_lines), "entitlements__line")
        .first()
    )


def get_timeline(*, merchant_id: UUID, order_no: str, user_id: str) -> Sequence[OrderStatusLog] | None:
    """The status log of an order in order of version, for its owner only; None for anybody else."""
    order = Order.objects.filter(merchant_id=merchant_id, order_no=order_no, user_id=user_id).first()
    if order is None:
        return None
    return list(order.status_logs.order_by("to_version"))


def payments_of(order: Order) -> QuerySet[Payment]:
    """Every charge asked for or found for an order, oldest first."""
    return Payment.objects.filter(merchant_id=order.merchant_id, order_no=order.order_no).order_by("created_at", "id")


def is_wholly_refunded(order_id: UUID) -> bool:
    """Whether every unit of every line was refunded (by quantity)."""
    lines = Order.objects.get(id=order_id).lines.values_list("qty", "refunded_ordinals")
    return all(len(set(refunded)) == qty for qty, refunded in lines)
