"""What a carrier says about a parcel: a fact kept once, and the clocks that follow from it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from aftersales.models import AfterSalesOrder, CarrierEvent, ReturnShipment, Status
from kernel import outbox
from kernel.errors import InvalidInput
from kernel.transactions import unit_of_work


@dataclass(frozen=True)
class CarrierEventRecorded:
    """`after_sales_no` is the claim whose parcel it is; empty when no claim knows the number."""

    carrier: str
    tracking_no: str
    what: str
    after_sales_no: str
    replayed: bool = False


def record_carrier_event(
    *, merchant_id: UUID, carrier: str, tracking_no: str, what: str, happened_at: datetime, now: datetime
) -> CarrierEventRecorded:
    """The same event again → replay. A delivered return starts the merchant's clock for receipt.

    Raises InvalidInput (unknown event, or one from the future).
    """
    if what not in CarrierEvent.What.values or happened_at > now + timedelta(minutes=5):
        raise InvalidInput(what=what, happened_at=happened_at.isoformat())
    with unit_of_work(now=now):
        _event, fresh = CarrierEvent.objects.get_or_create(
            merchant_id=merchant_id,
            carrier=carrier,
            tracking_no=tracking_no,
            what=what,
            happened_at=happened_at,
            defaults={"heard_at": now},
        )
        parcel = (
            ReturnShipment.objects.select_related("after_sales__merchant")
            .filter(after_sales__merchant_id=merchant_id, carrier=carrier, tracking_no=tracking_no)
            .order_by("-entered_at")
            .first()
        )
        if parcel is not None and fresh:
            _move_clocks(parcel, what, happened_at, now=now)
        number = parcel.after_sales.after_sales_no if parcel else ""
        return CarrierEventRecorded(carrier, tracking_no, what, number, replayed=not fresh)


def _move_clocks(parcel: ReturnShipment, what: str, happened_at: datetime, *, now: datetime) -> None:
    mine = ReturnShipment.objects.filter(pk=parcel.pk)
    mine.filter(first_moved_at=None).update(first_moved_at=happened_at)
    if what != CarrierEvent.What.DELIVERED:
        return
    mine.filter(delivered_at=None).update(delivered_at=happened_at)
    claim = parcel.after_sales
    if parcel.direction == ReturnShipment.Direction.TO_MERCHANT:
        due_at = happened_at + timedelta(days=claim.merchant.receive_days)
        AfterSalesOrder.objects.filter(pk=claim.pk, status=Status.WAIT_MERCHANT_RECEIVE, is_disputed=False).update(
            due_at=due_at, updated_at=now
        )
        outbox.append(
            name="after_sales.return_delivered",
            merchant_id=claim.merchant_id,
            subject=claim.after_sales_no,
            payload={"after_sales_no": claim.after_sales_no, "order_no": claim.order_no},
            now=now,
        )
