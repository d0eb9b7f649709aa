"""A paid order counts as sold, line by line."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel.errors import NotFound
from kernel.transactions import unit_of_work
from ledgers.commands.count_sale import count_sale
from orders.models import Order


@dataclass(frozen=True)
class SalesOfOrderCounted:
    order_no: str
    lines: int


def count_order_sales(*, merchant_id: UUID, order_no: str, now: datetime) -> SalesOfOrderCounted:
    """Units and net goods of every ordered line, on the day of payment; once per line, whoever comes twice. A
    replacement is no sale. Joins the caller. Raises NotFound (no such order, or it is not paid)."""
    with unit_of_work(now=now):
        order = Order.objects.filter(merchant_id=merchant_id, order_no=order_no, paid_at__isnull=False).first()
        if order is None or order.paid_at is None:
            raise NotFound(order_no=order_no)
        # By SKU: two orders that share goods take the day's rows in one order.
        lines = order.lines.filter(born_of_exchange__isnull=True).order_by("sku", "line_no")
        for line in lines:
            count_sale(
                merchant_id=merchant_id,
                sku=line.sku,
                qty=line.qty,
                amount_fen=line.net_fen,
                business_key=f"{order_no}:{line.line_no}:sale",
                reference=order_no,
                at=order.paid_at,
                now=now,
            )
        return SalesOfOrderCounted(order_no, len(lines))
