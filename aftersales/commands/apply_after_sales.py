"""A buyer applies for one or several lines: one after-sales order each, all or none."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from aftersales.actors import By
from aftersales.commands._write_claim import AppliedItem, write_claim
from aftersales.drafts import Item, draft_claims, facts_of
from aftersales.models import Actor
from kernel import idempotency, numbers
from kernel.errors import NotFound
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work
from orders.models import Order, OrderLine


@dataclass(frozen=True)
class Applied:
    order_no: str
    user_id: str
    refund_fen: int
    after_sales: list[AppliedItem] = field(default_factory=list)
    replayed: bool = False


def apply_after_sales(
    *,
    merchant_id: UUID,
    order_no: str,
    user_id: str,
    items: Sequence[Item],
    key: BusinessKey,
    now: datetime,
    by: By | None = None,
    origin: str = "buyer",
) -> Applied:
    """Write the claims, put their units under hold, start the audit's clock.

    Raises NotFound (order, line), and every refusal of aftersales.drafts: OrderNotPaid, NoSuchUnits, WindowOver,
    TypeDoesNotFit, AboveEntitlement, InvalidInput.
    """
    by = by or By(Actor.BUYER, user_id)
    with unit_of_work(now=now):
        done = idempotency.begin(key, Applied, now=now)
        if done is not None:
            return done
        order = Order.objects.select_related("merchant").filter(
            merchant_id=merchant_id, order_no=order_no, user_id=user_id
        ).first()  # fmt: skip
        if order is None:
            raise NotFound(order_no=order_no)
        numbers_of_lines = {item.line_no for item in items}
        lines = OrderLine.objects.select_for_update().filter(order=order, line_no__in=numbers_of_lines)
        drafts = draft_claims(
            order=order,
            facts=facts_of(lines.order_by("line_no")),
            items=items,
            window_days=order.merchant.return_window_days,
            by_system=origin != "buyer",
            now=now,
        )
        batch_id = numbers.uuid7()
        applied = [
            write_claim(draft, order=order, merchant=order.merchant, batch_id=batch_id, origin=origin, by=by, now=now)
            for draft in drafts
        ]
        result = Applied(
            order_no=order_no,
            user_id=user_id,
            refund_fen=sum(item.goods_fen + item.freight_fen for item in applied),
            after_sales=applied,
        )
        idempotency.finish(key, result)
        return result
