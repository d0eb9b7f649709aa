"""Ship: a parcel with some units of an order leaves the house."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel import idempotency, numbers, outbox
from kernel.errors import IllegalTransition, InvalidInput, NotFound, Refusal, refuse_on_constraint
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work
from orders.actors import SYSTEM, Actor
from orders.commands._hold_stock import ship_stock_of
from orders.commands.deliver_order import deliver_order
from orders.models import Order, OrderLine, Shipment, ShipmentLine

AUTO_SIGN_DAYS = 10


class UnitsNotFree(Refusal):
    code = "UNITS_NOT_FREE"
    message = _("Not that many units are left to ship: shipped, refunded or under an after-sales claim.")


class CouponNotSettled(Refusal):
    code = "COUPON_NOT_SETTLED"
    message = _("The order's coupon is not settled; the order must not be shipped.")


class AlreadyShippedSo(Refusal):
    code = "TRACKING_NUMBER_USED"
    message = _("This order has a parcel with that carrier and tracking number already.")


refuse_on_constraint("shipment_is_named_once_per_order", AlreadyShippedSo)


@dataclass(frozen=True)
class ShipLine:
    """So many units of one line. The lowest free ordinals go."""

    line_no: int
    qty: int


@dataclass(frozen=True)
class ShippedLine:
    line_no: int
    qty: int
    ordinals: list[int]


@dataclass(frozen=True)
class Shipped:
    """`status` is DELIVERED once this parcel was the last."""

    order_no: str
    shipment_id: UUID
    carrier: str
    tracking_no: str
    lines: list[ShippedLine]
    status: int
    version: int
    shipped_at: datetime
    auto_sign_at: datetime
    replayed: bool = False


def ship_order(
    *,
    merchant_id: UUID,
    order_no: str,
    carrier: str,
    tracking_no: str,
    key: BusinessKey,
    now: datetime,
    lines: Sequence[ShipLine] | None = None,
    actor: Actor = SYSTEM,
) -> Shipped:
    """A parcel of a PAID order, with these lines or (None) everything physical that is left; the last one delivers.

    Units under a live claim are refused, and the rows are held in the order in which a claim holds them, so of a
    claim and a shipment of the same unit one wins. Raises NotFound, IllegalTransition, CouponNotSettled, UnitsNotFree,
    InvalidInput.
    """
    with unit_of_work(now=now):
        replay = idempotency.begin(key, Shipped, now=now)
        if replay is not None:
            return replay
        order = _shippable(merchant_id=merchant_id, order_no=order_no)
        parcel = _units_of(order, lines)
        shipment = Shipment.objects.create(
            merchant_id=merchant_id,
            order=order,
            carrier=carrier,
            tracking_no=tracking_no,
            shipped_at=now,
            auto_sign_at=now + timedelta(days=AUTO_SIGN_DAYS),
        )
        pieces: Counter[str] = Counter()
        for line, ordinals in parcel:
            pieces[line.sku] += len(ordinals)
            ship_units(line, ordinals)
            ShipmentLine.objects.create(
                id=numbers.uuid7(), shipment=shipment, line=line, qty=len(ordinals), ordinals=ordinals
            )
        ship_stock_of(order, units=pieces, shipment_id=shipment.id, now=now)
        outbox.append(
            name="order.shipped",
            merchant_id=merchant_id,
            subject=order_no,
            payload={"order_no": order_no, "order_id": str(order.id), "shipment_id": str(shipment.id)},
            now=now,
        )
        if not deliver_order(order_id=order.id, now=now, actor=actor):
            Order.objects.filter(pk=order.pk).update(fulfilment=Order.Fulfilment.PARTIAL)
        shipped = _told(Order.objects.get(id=order.id), shipment, parcel)
        idempotency.finish(key, shipped)
        return shipped


def _shippable(*, merchant_id: UUID, order_no: str) -> Order:
    order = Order.objects.select_for_update(no_key=True).filter(merchant_id=merchant_id, order_no=order_no).first()
    if order is None:
        raise NotFound(order_no=order_no)
    if order.status != Order.Status.PAID or order.fulfilment == Order.Fulfilment.VOID:
        raise IllegalTransition(order_no=order_no, status=order.status, fulfilment=order.fulfilment)
    if order.coupon_state not in Order.COUPON_IN_ORDER:
        raise CouponNotSettled(order_no=order_no, coupon_state=order.coupon_state)
    return order


def _units_of(order: Order, asked: Sequence[ShipLine] | None) -> list[tuple[OrderLine, list[int]]]:
    """The lines, held, with the ordinals that go. Raises UnitsNotFree, InvalidInput."""
    held = {
        line.line_no: line
        for line in OrderLine.objects.select_for_update(no_key=True)
        .filter(order=order, kind=OrderLine.Kind.PHYSICAL)
        .order_by("line_no")
    }
    if asked is None:
        parcel = [(line, free_ordinals(line)) for line in held.values()]
        parcel = [(line, ordinals) for line, ordinals in parcel if ordinals]
        if not parcel:
            raise UnitsNotFree(order_no=order.order_no)
        return parcel
    wanted: Counter[int] = Counter()
    for each in asked:
        if each.qty < 1 or each.line_no not in held:
            raise InvalidInput(line_no=each.line_no, qty=each.qty)
        wanted[each.line_no] += each.qty
    chosen = []
    for line_no, qty in sorted(wanted.items()):
        free = free_ordinals(held[line_no])
        if len(free) < qty:
            raise UnitsNotFree(order_no=order.order_no, line_no=line_no, wanted=qty, free=len(free))
        chosen.append((held[line_no], free[:qty]))
    return chosen


def free_ordinals(line: OrderLine) -> list[int]:
    """The units of a line that may leave: not shipped, not refunded, under no live claim."""
    taken = {*line.shipped_ordinals, *line.held_ordinals, *line.refunded_ordinals}
    return [ordinal for ordinal in range(1, line.qty + 1) if ordinal not in taken]


def ship_units(line: OrderLine, ordinals: list[int]) -> None:
    """Mark units of a line, whose row the caller holds, as shipped or granted."""
    OrderLine.objects.filter(pk=line.pk).update(
        shipped_ordinals=sorted([*line.shipped_ordinals, *ordinals]),
        shipped_qty=line.shipped_qty + len(ordinals),
    )


def _told(order: Order, shipment: Shipment, parcel: list[tuple[OrderLine, list[int]]]) -> Shipped:
    return Shipped(
        order_no=order.order_no,
        shipment_id=shipment.id,
        carrier=shipment.carrier,
        tracking_no=shipment.tracking_no,
        lines=[ShippedLine(line.line_no, len(ordinals), ordinals) for line, ordinals in parcel],
        status=order.status,
        version=order.version,
        shipped_at=shipment.shipped_at,
        auto_sign_at=shipment.auto_sign_at,
    )
