"""The two ways a pending order ends unpaid, and what it gives up with that."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from kernel.errors import Refusal
from kernel.statemachine import Edge, P
from orders.commands._coordinate_coupon import release_for_order
from orders.commands._hold_points import return_points_of
from orders.commands._hold_stock import release_stock_of
from orders.models import Order, OrderStatusLog
from orders.moves import NEXT_VERSION, event, log_row
from orders.tender import OPEN
from payments.commands.close_payment import close_payment
from payments.models import Payment

CLOSE = Edge(
    Order,
    "close",
    changes={
        "version": NEXT_VERSION,
        "closed_reason": P("closed_reason"),
        "closed_at": P("now"),
        "next_check_at": P("look_again_at"),
        "check_tries": 0,
    },
    writes=[log_row(OrderStatusLog.Command.CLOSE, source=Order.Status.PENDING)],
    emit=event("order.closed", reason=P("closed_reason")),
    returning=["version"],
)
CANCEL = Edge(
    Order,
    "cancel",
    changes={
        "version": NEXT_VERSION,
        "cancelled_at": P("now"),
        "next_check_at": P("look_again_at"),
        "check_tries": 0,
    },
    writes=[log_row(OrderStatusLog.Command.CANCEL, source=Order.Status.PENDING)],
    emit=event("order.cancelled"),
    returning=["version"],
)


LOOK_AGAIN = (timedelta(minutes=2), timedelta(minutes=30), timedelta(hours=6))
"""An order that ended with a payment placed at the channel is asked about this long after: the money may have come
in the very moment of the ending, and its callback may be lost. Then it is for the channel's bill to tell."""


class PaymentMovedOn(Refusal):
    code = "PAYMENT_MOVED_ON"
    message = _("A payment of the order was opened or placed since the channel was asked.")


def open_payments(order: Order) -> QuerySet[Payment]:
    """The payments of an order that somebody may still pay."""
    return Payment.objects.filter(
        merchant_id=order.merchant_id, order_no=order.order_no, kind=Payment.Kind.ORDER, status__in=OPEN
    )


def end_params(*, asked: Mapping[UUID, int], now: datetime, closed_reason: str = "") -> dict[str, Any]:
    """The parameters of CLOSE and CANCEL beside those of every move: when to look again, if anything was placed."""
    reason = {"closed_reason": closed_reason} if closed_reason else {}
    return {"look_again_at": now + LOOK_AGAIN[0] if asked else None, **reason}


def end_what_it_held(
    order: Order, *, asked: Mapping[UUID, int], reason: str, now: datetime, prepay_answered: bool = False
) -> None:
    """Close the open payments; coupon, points and stock go back. Joins the transaction that ends the order.

    `asked` names the payments, with their versions, that the channel was asked about. Any other one (opened or
    placed since) raises PaymentMovedOn, and the order does not end: it is asked about again.
    """
    for payment in open_payments(order):
        if asked.get(payment.id) != payment.version:
            raise PaymentMovedOn(out_trade_no=payment.out_trade_no)
        close_payment(payment_id=payment.id, now=now, prepay_answered=prepay_answered)
    if order.coupon_id is not None:
        release_for_order(order, reason=reason, now=now)
    return_points_of(order, now=now)
    release_stock_of(order, now=now)
