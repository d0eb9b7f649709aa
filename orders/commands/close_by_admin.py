"""Close by an operator: a reason is mandatory, the payment window does not matter; such an order never reopens."""

from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel.errors import IllegalTransition, InvalidInput
from orders.actors import staff
from orders.commands.close_order import Ending, GatewayUndecided, OrderEnded, close_order
from orders.commands.create_order import OrderAlreadyPaid
from orders.models import Order


class ReasonMissing(InvalidInput):
    code = "REASON_MISSING"
    message = _("Say why the order is closed.")


def close_by_admin(*, order_id: UUID, username: str, reason: str, now: datetime) -> OrderEnded:
    """PENDING → CLOSED (`manual`), after asking the channel. CLOSED as manual already → the same answer.

    Raises ReasonMissing, NotFound, OrderAlreadyPaid (settled instead), GatewayUndecided, IllegalTransition.
    """
    if not reason.strip():
        raise ReasonMissing()
    ended = close_order(
        order_id=order_id,
        reason=Order.ClosedReason.MANUAL.value,
        now=now,
        actor=staff(username),
        note=reason.strip(),
    )
    if ended.status in Order.PAID_OR_LATER:
        raise OrderAlreadyPaid(order_no=ended.order_no, status=ended.status)
    if ended.ending == Ending.UNDECIDED:
        raise GatewayUndecided(order_no=ended.order_no)
    if ended.status != Order.Status.CLOSED or ended.closed_reason != Order.ClosedReason.MANUAL:
        raise IllegalTransition(order_no=ended.order_no, status=ended.status, closed_reason=ended.closed_reason)
    return ended
