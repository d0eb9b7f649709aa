"""Fulfil: run the handler of each product kind of a paid order. A failure leaves the order PAID and tries again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import structlog

from kernel import numbers
from kernel.transactions import unit_of_work
from orders.actors import SYSTEM
from orders.commands._coordinate_coupon import refund_conflict
from orders.commands.deliver_order import deliver_order
from orders.commands.open_anomaly import open_anomaly
from orders.commands.resolve_anomaly import resolve_decided
from orders.commands.ship_order import free_ordinals, ship_units
from orders.commands.sign_shipment import plan_completion
from orders.models import Anomaly, Entitlement, Order, OrderLine

BACKOFF_SECONDS = (30, 60, 300, 600, 1800, 3600)

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Fulfilled:
    """`outcome`: delivered, waiting (for a shipment), failed (tried again later), refund (its coupon is gone)
    or nothing (not its turn)."""

    order_no: str
    outcome: str


def fulfil_order(*, order_id: UUID, now: datetime) -> Fulfilled:
    """Grant what is virtual, leave what is physical to its shipments, deliver when that was all. Idempotent: a replay,
    the sweeper and the usual way may all call it. Never rolls the payment back: what fails is put off, with an
    anomaly. Not inside a transaction of the caller's."""
    order = Order.objects.get(id=order_id)
    if order.status != Order.Status.PAID or order.fulfilment == Order.Fulfilment.VOID:
        return Fulfilled(order.order_no, "nothing")
    if order.coupon_state not in Order.COUPON_IN_ORDER:
        refunded = refund_conflict(order_id=order_id, now=now)
        return Fulfilled(order.order_no, "refund" if refunded else "nothing")
    kinds = set(order.lines.values_list("kind", flat=True))
    try:
        with unit_of_work(now=now):
            held = Order.objects.select_for_update(no_key=True).get(id=order_id)
            if held.status != Order.Status.PAID:
                return Fulfilled(order.order_no, "nothing")
            for kind in sorted(kinds):
                HANDLERS[kind](held, now)
            delivered = deliver_order(order_id=order_id, now=now, actor=SYSTEM)
            if delivered:
                plan_completion(held, now=now)
            else:
                Order.objects.filter(pk=order_id).update(next_fulfil_at=None)
    except Exception as error:  # whatever a handler raises: the order stays PAID and is tried again
        log.exception("order.fulfilment_failed", order_no=order.order_no)
        _put_off(order, error, now=now)
        return Fulfilled(order.order_no, "failed")
    if order.fulfil_tries:
        resolve_decided(order=order, kind=Anomaly.Kind.DELIVERY_FAILED, how="delivered at a later try", now=now)
    return Fulfilled(order.order_no, "delivered" if delivered else "waiting")


def _put_off(order: Order, error: Exception, *, now: datetime) -> None:
    wait = BACKOFF_SECONDS[min(order.fulfil_tries, len(BACKOFF_SECONDS) - 1)]
    with unit_of_work(now=now):
        Order.objects.filter(pk=order.pk, status=Order.Status.PAID).update(
            next_fulfil_at=now + timedelta(seconds=wait), fulfil_tries=order.fulfil_tries + 1
        )
        open_anomaly(
            merchant_id=order.merchant_id,
            kind=Anomaly.Kind.DELIVERY_FAILED,
            order=order,
            facts={"while": "fulfilment"},
            evidence={"error": f"{type(error).__name__}: {error}"[:500]},
            outcome="stays_paid",
            now=now,
        )


def grant_entitlements(order: Order, now: datetime) -> None:
    """Virtual lines: one entitlement per line, for its units under no claim. Joins; a line is granted once."""
    for line in (
        OrderLine.objects.select_for_update(no_key=True)
        .filter(order=order, kind=OrderLine.Kind.VIRTUAL, shipped_qty=0)
        .order_by("line_no")
    ):
        ordinals = free_ordinals(line)
        if not ordinals:
            continue
        Entitlement.objects.create(
            id=numbers.uuid7(),
            merchant_id=order.merchant_id,
            order=order,
            line=line,
            user_id=order.user_id,
            sku=line.sku,
            qty=len(ordinals),
            ordinals=ordinals,
            granted_at=now,
        )
        ship_units(line, ordinals)
        OrderLine.objects.filter(pk=line.pk).update(signed_at=now)


def wait_for_shipment(order: Order, now: datetime) -> None:
    """Physical lines: the merchant ships (`ship_order`); nothing is due until then."""


HANDLERS: Mapping[str, Callable[[Order, datetime], None]] = {
    OrderLine.Kind.PHYSICAL: wait_for_shipment,
    OrderLine.Kind.VIRTUAL: grant_entitlements,
}
"""What paying sets off, by the kind of product. A new kind of product is a new entry (and its CHECK)."""
