"""Sign: a parcel has arrived. From here the return window of its units runs."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from kernel import idempotency, outbox
from kernel.errors import NotFound
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work
from orders.models import Order, OrderLine, Shipment, ShipmentLine

AUTO_COMPLETE_DAYS = 7


@dataclass(frozen=True)
class Signed:
    """The parcels that are signed for now, and when the order completes by itself (None: parcels are on their way)."""

    order_no: str
    shipment_ids: list[UUID]
    signed_at: datetime
    complete_at: datetime | None
    replayed: bool = False


def sign_shipment(
    *,
    merchant_id: UUID,
    order_no: str,
    key: BusinessKey,
    now: datetime,
    shipment_id: UUID | None = None,
    signed_at: datetime | None = None,
    by: str = "",
) -> Signed:
    """Signs for one parcel of an order, or (None) for all that are on their way. Signed already → the same answer.

    `signed_at` is the carrier's time, never later than `now`. Raises NotFound.
    """
    moment = min(signed_at or now, now)
    with unit_of_work(now=now):
        replay = idempotency.begin(key, Signed, now=now)
        if replay is not None:
            return replay
        order = Order.objects.select_for_update(no_key=True).filter(merchant_id=merchant_id, order_no=order_no).first()
        if order is None:
            raise NotFound(order_no=order_no)
        parcels = Shipment.objects.filter(order=order)
        if shipment_id is not None:
            parcels = parcels.filter(id=shipment_id)
        found = list(parcels.order_by("shipped_at"))
        if not found:
            raise NotFound(order_no=order_no, shipment_id=str(shipment_id) if shipment_id else None)
        complete_at = sign_parcels(order, found, signed_at=moment, by=by, now=now)
        signed = Signed(order.order_no, [parcel.id for parcel in found], moment, complete_at)
        idempotency.finish(key, signed)
        return signed


def sign_parcels(
    order: Order, parcels: list[Shipment], *, signed_at: datetime, by: str, now: datetime
) -> datetime | None:
    """Sign parcels of an order whose row the caller holds; joins. Returns when the order completes by itself."""
    fresh = [parcel for parcel in parcels if parcel.signed_at is None]
    for parcel in fresh:
        Shipment.objects.filter(pk=parcel.pk, signed_at=None).update(
            signed_at=max(signed_at, parcel.shipped_at), signed_by=by[:80]
        )
    for line in OrderLine.objects.filter(order=order, signed_at=None, shipments__shipment__in=fresh).distinct():
        on_the_way = ShipmentLine.objects.filter(line=line, shipment__signed_at=None).exists()
        if (
            not on_the_way
            and line.shipped_qty + len(set(line.refunded_ordinals) - set(line.shipped_ordinals)) >= line.qty
        ):
            OrderLine.objects.filter(pk=line.pk).update(signed_at=signed_at)
    for parcel in fresh:
        outbox.append(
            name="order.signed",
            merchant_id=order.merchant_id,
            subject=order.order_no,
            payload={
                "order_no": order.order_no,
                "order_id": str(order.id),
                "shipment_id": str(parcel.id),
                "signed_at": signed_at.isoformat(),
            },
            now=now,
        )
    return plan_completion(order, now=now)


def plan_completion(order: Order, *, now: datetime) -> datetime | None:
    """Set the time at which a delivered order completes by itself, once nothing of it is on its way."""
    order = Order.objects.get(pk=order.pk)
    if order.status != Order.Status.DELIVERED:
        return None
    if Shipment.objects.filter(order=order, signed_at=None).exists():
        return None
    if order.complete_at is None:
        Order.objects.filter(pk=order.pk).update(complete_at=now + timedelta(days=AUTO_COMPLETE_DAYS))
        return now + timedelta(days=AUTO_COMPLETE_DAYS)
    return order.complete_at
