"""A line that an exchange puts in the place of units of another: shipped, signed for, with a window of its own."""

from datetime import datetime
from uuid import UUID

from django.db.models import Max

from kernel.transactions import unit_of_work
from orders.models import Order, OrderLine


def add_replacement_line(
    *, line_id: UUID, sku: str, title: str, unit_price_fen: int, qty: int, freight_share_fen: int, now: datetime
) -> OrderLine:
    """Joins the caller's transaction. What was paid for it is its price: the credit of the old units, plus the
    supplement or less the difference. The order's own sums stay as they were placed. That it happens once per exchange
    is the caller's business.
    """
    with unit_of_work(now=now):
        old = OrderLine.objects.get(pk=line_id)
        Order.objects.select_for_update().get(pk=old.order_id)
        highest = OrderLine.objects.filter(order_id=old.order_id).aggregate(no=Max("line_no"))["no"]
        paid_fen = unit_price_fen * qty
        return OrderLine.objects.create(
            merchant_id=old.merchant_id,
            order_id=old.order_id,
            line_no=highest + 1,
            sku=sku,
            title=title,
            kind=old.kind,
            unit_price_fen=unit_price_fen,
            qty=qty,
            base_fen=paid_fen,
            net_fen=paid_fen,
            freight_share_fen=freight_share_fen,
            algorithm_version=old.algorithm_version,
            shipped_qty=qty,
            shipped_ordinals=list(range(1, qty + 1)),
            signed_at=now,
        )
