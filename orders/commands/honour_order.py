"""Honour: an operator keeps a paid order at its price although its coupon went to someone else, with evidence."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel.errors import IllegalTransition, InvalidInput, NotFound, Refusal
from kernel.transactions import unit_of_work
from orders.actors import staff
from orders.commands._coordinate_coupon import Decision, facts_of, record_decision
from orders.models import CouponState, Order, OrderCoupon, OrderLine


class HonourReasonMissing(InvalidInput):
    code = "REASON_MISSING"
    message = _("Say why the price is kept without the coupon.")


class RefundUnderWay(Refusal):
    code = "REFUND_UNDER_WAY"
    message = _("The order is being refunded already.")


@dataclass(frozen=True)
class OrderHonoured:
    order_no: str
    coupon_state: str
    replayed: bool = False


def honour_order(*, order_id: UUID, username: str, reason: str, now: datetime) -> OrderHonoured:
    """coupon_state conflict → honoured on a PAID order of which nothing is being refunded; fulfilment goes on.

    The decision is recorded with who and why. Honoured already → replay. Raises HonourReasonMissing, NotFound,
    IllegalTransition, RefundUnderWay.
    """
    if not reason.strip():
        raise HonourReasonMissing()
    with unit_of_work(now=now):
        order = Order.objects.select_for_update(no_key=True).filter(id=order_id).first()
        if order is None:
            raise NotFound(order_id=str(order_id))
        if order.coupon_state == CouponState.HONOURED:
            return OrderHonoured(order.order_no, order.coupon_state, replayed=True)
        if order.status != Order.Status.PAID or order.coupon_state != CouponState.CONFLICT:
            raise IllegalTransition(order_no=order.order_no, status=order.status, coupon_state=order.coupon_state)
        lines = OrderLine.objects.select_for_update(no_key=True).filter(order=order).order_by("line_no")
        asked_for = order.next_fulfil_at is None  # by refund_conflict, once the time to honour was over
        if asked_for or any(line.held_ordinals or line.refunded_ordinals for line in lines):
            raise RefundUnderWay(order_no=order.order_no)
        record_decision(
            order,
            Decision.HONOUR,
            cause="OPERATOR",
            inputs={**facts_of(order, OrderCoupon.objects.get(order=order)), "reason": reason.strip()},
            now=now,
            actor=staff(username),
        )
        Order.objects.filter(pk=order.pk).update(coupon_state=CouponState.HONOURED, next_fulfil_at=now)
    return OrderHonoured(order.order_no, CouponState.HONOURED)
