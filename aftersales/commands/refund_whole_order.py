"""The house sends a whole paid order back: type 1 on every unit that is left, approved as it is made."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from aftersales.actors import SYSTEM
from aftersales.commands.apply_after_sales import apply_after_sales
from aftersales.commands.approve_after_sales import approve_after_sales
from aftersales.drafts import Item, facts_of
from aftersales.models import Type
from kernel import idempotency
from kernel.errors import NotFound
from kernel.idempotency import business_key
from kernel.transactions import unit_of_work
from orders.models import Order, OrderLine


@dataclass(frozen=True)
class WholeOrderRefunded:
    order_no: str
    after_sales: list[str] = field(default_factory=list)
    replayed: bool = False


def refund_whole_order(*, merchant_id: UUID, order_no: str, reason: str, now: datetime) -> WholeOrderRefunded:
    """Once per order and reason. Joins the caller's transaction. Raises NotFound, OrderNotPaid, RefundExceedsPaid."""
    key = business_key(merchant_id=merchant_id, key=f"refund-whole:{order_no}:{reason}")
    with unit_of_work(now=now):
        done = idempotency.begin(key, WholeOrderRefunded, now=now)
        if done is not None:
            return done
        order = Order.objects.filter(merchant_id=merchant_id, order_no=order_no).first()
        if order is None:
            raise NotFound(order_no=order_no)
        facts = facts_of(OrderLine.objects.select_for_update().filter(order=order).order_by("line_no"))
        items = [
            Item(line_no=number, type=Type.REFUND_ONLY, qty=len(free), reason_code="order_refund", description=reason)
            for number, line in facts.items()
            for free in (line.free(shipped=False), line.free(shipped=True))
            if free
        ]
        numbers = []
        if items:
            applied = apply_after_sales(
                merchant_id=merchant_id,
                order_no=order_no,
                user_id=order.user_id,
                items=items,
                key=business_key(merchant_id=merchant_id, key=f"{key.key}:apply"),
                by=SYSTEM,
                origin="system",
                now=now,
            )
            numbers = [item.after_sales_no for item in applied.after_sales]
        for number in numbers:
            approve_after_sales(
                merchant_id=merchant_id,
                after_sales_no=number,
                expected_version=1,
                by=SYSTEM,
                key=business_key(merchant_id=merchant_id, key=f"{number}:approve"),
                now=now,
            )
        result = WholeOrderRefunded(order_no=order_no, after_sales=numbers)
        idempotency.finish(key, result)
        return result
