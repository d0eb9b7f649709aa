"""The merchant's parcel of an exchange or a reship."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aftersales.actors import By
from aftersales.claims import deadline, get_claim
from aftersales.commands._transition import declare, move
from aftersales.models import ReturnShipment, Status, Type
from kernel import idempotency
from kernel.errors import InvalidInput
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work
from ledgers.commands.ship_stock import ship_stock

SHIP = declare("ship_replacement", event="after_sales.replacement_shipped")


@dataclass(frozen=True)
class ReplacementShipped:
    after_sales_no: str
    status: str
    version: int
    carrier: str
    tracking_no: str
    replayed: bool = False


def ship_replacement(
    *,
    merchant_id: UUID,
    after_sales_no: str,
    expected_version: int,
    carrier: str,
    tracking_no: str,
    by: By,
    key: BusinessKey,
    now: datetime,
) -> ReplacementShipped:
    """WAIT_MERCHANT_SHIP → WAIT_BUYER_CONFIRM; the reserved pieces leave the house.

    Raises NotFound, InvalidInput, VersionConflict, IllegalTransition, InArbitration.
    """
    if not carrier.strip() or not tracking_no.strip():
        raise InvalidInput(carrier=carrier, tracking_no=tracking_no)
    with unit_of_work(now=now):
        done = idempotency.begin(key, ReplacementShipped, now=now)
        if done is not None:
            return done
        claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no)
        version = move(
            SHIP,
            claim,
            expected_version=expected_version,
            by=by,
            now=now,
            due_at=deadline(claim.merchant, Status.WAIT_BUYER_CONFIRM, now=now),
            evidence={"carrier": carrier, "tracking_no": tracking_no},
        )
        ReturnShipment.objects.create(
            after_sales=claim,
            direction=ReturnShipment.Direction.REPLACEMENT,
            carrier=carrier,
            tracking_no=tracking_no,
            entered_at=now,
        )
        ship_stock(
            merchant_id=merchant_id,
            sku=claim.exchange.sku if claim.type == Type.EXCHANGE else claim.line.sku,
            qty=claim.accepted_qty or claim.qty,
            business_key=f"{after_sales_no}:replacement:out",
            reference=after_sales_no,
            now=now,
        )
        result = ReplacementShipped(
            after_sales_no=after_sales_no,
            status=str(Status.WAIT_BUYER_CONFIRM),
            version=version,
            carrier=carrier,
            tracking_no=tracking_no,
        )
        idempotency.finish(key, result)
        return result
