"""A merchant's backend says who earns from an order's lines: before it completes, or late."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aftersales.commands.reward_order import reward_order
from kernel import idempotency
from kernel.errors import InvalidInput, NotFound
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work
from ledgers.commands.declare_commission import Share, declare_commission
from orders.models import Order


@dataclass(frozen=True)
class OrderCommissionDeclared:
    """`booked_fen`: what was booked at once because the order is completed already."""

    order_no: str
    shares: int
    booked_fen: int
    replayed: bool = False


def declare_order_commission(
    *, merchant_id: UUID, order_no: str, shares: Sequence[Share], key: BusinessKey, now: datetime
) -> OrderCommissionDeclared:
    """Shares of the lines that were ordered; they are booked when the order completes, or now if it has. Raises
    NotFound, InvalidInput (a line that is not there, a rate that makes no sense), CommissionKeyReused."""
    with unit_of_work(now=now):
        done = idempotency.begin(key, OrderCommissionDeclared, now=now)
        if done is not None:
            return done
        # Locked: an order that completes in this moment sees the shares, or is seen completed here.
        order = Order.objects.select_for_update().filter(merchant_id=merchant_id, order_no=order_no).first()
        if order is None:
            raise NotFound(order_no=order_no)
        lines = set(order.lines.filter(born_of_exchange__isnull=True).values_list("line_no", flat=True))
        if not lines.issuperset(share.line_no for share in shares):
            raise InvalidInput(line_no="not an ordered line")
        declared = declare_commission(merchant_id=merchant_id, order_no=order_no, shares=shares, now=now)
        booked = 0
        if order.completed_at is not None:
            booked = reward_order(merchant_id=merchant_id, order_no=order_no, now=now).commission_fen
        result = OrderCommissionDeclared(order_no, declared.shares, booked)
        idempotency.finish(key, result)
        return result
