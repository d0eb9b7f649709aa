"""Sign by itself: nobody signed for a parcel in ten days."""

from datetime import datetime
from uuid import UUID

from kernel.transactions import unit_of_work
from orders.commands.sign_shipment import sign_parcels
from orders.models import Order, Shipment


def sign_due_shipment(*, shipment_id: UUID, now: datetime) -> bool:
    """Sign a parcel whose `auto_sign_at` has come. False: not due, or signed meanwhile."""
    with unit_of_work(now=now):
        parcel = Shipment.objects.get(id=shipment_id)
        order = Order.objects.select_for_update(no_key=True).get(id=parcel.order_id)
        parcel = Shipment.objects.get(id=shipment_id)
        if parcel.signed_at is not None or parcel.auto_sign_at > now:
            return False
        sign_parcels(order, [parcel], signed_at=now, by="time", now=now)
        return True
