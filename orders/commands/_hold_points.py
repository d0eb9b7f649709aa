"""The points of an order: spent when it is made, returned when it ends unpaid, spent again when it is reopened.

All of it joins the caller's transaction and comes before the stock in the lock order.
"""

from datetime import datetime

from ledgers.commands.give_points_back import return_spent_points
from ledgers.commands.move_points import NotEnoughPoints
from ledgers.commands.spend_points import spend_points
from ledgers.commands.spend_points_again import spend_points_again
from orders.models import Order

__all__ = ["NotEnoughPoints", "return_points_of", "spend_points_again_for", "spend_points_for"]


def spend_points_for(order: Order, *, now: datetime) -> None:
    """Take the points that pay for a part of the order, line by line. Raises NotEnoughPoints."""
    if order.points_used:
        spend_points(
            merchant_id=order.merchant_id,
            user_id=order.user_id,
            order_no=order.order_no,
            lines={line.line_no: (line.points_used, line.qty) for line in order.lines.all()},
            now=now,
        )


def return_points_of(order: Order, *, now: datetime) -> None:
    """Give back what the order spent."""
    if order.points_used:
        return_spent_points(merchant_id=order.merchant_id, order_no=order.order_no, now=now)


def spend_points_again_for(order: Order, *, now: datetime) -> None:
    """Take the points again for an order that comes back. Raises NotEnoughPoints."""
    if order.points_used:
        spend_points_again(merchant_id=order.merchant_id, order_no=order.order_no, now=now)
