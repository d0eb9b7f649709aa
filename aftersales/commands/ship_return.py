"""The buyer says with which parcel the goods come back."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from aftersales.actors import By
from aftersales.claims import get_claim, settings_of
from aftersales.commands._transition import declare, move
from aftersales.models import ReturnShipment, Status
from kernel import idempotency
from kernel.errors import IllegalTransition, refuse_on_constraint
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work

SHIP_RETURN = declare("ship_return", event="after_sales.return_shipped")

refuse_on_constraint("claim_has_one_parcel_per_direction", IllegalTransition)


@dataclass(frozen=True)
class ReturnShipped:
    after_sales_no: str
    status: str
    version: int
    carrier: str
    tracking_no: str
    replayed: bool = False


def ship_return(
    *,
    merchant_id: UUID,
    after_sales_no: str,
    user_id: str,
    carrier: str,
    tracking_no: str,
    expected_version: int | None = None,
    by: By,
    key: BusinessKey,
    now: datetime,
) -> ReturnShipped:
    """Record the buyer's parcel. The clock for receipt starts when the carrier says delivered; until then the
    carrier's silence is what runs out.

    Raises NotFound, VersionConflict, IllegalTransition, InArbitration.
    """
    with unit_of_work(now=now):
        done = idempotency.begin(key, ReturnShipped, now=now)
        if done is not None:
            return done
        claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no, user_id=user_id)
        version = move(
            SHIP_RETURN,
            claim,
            expected_version=claim.version if expected_version is None else expected_version,
            by=by,
            now=now,
            due_at=now + timedelta(days=settings_of(claim.merchant).carrier_silence_days),
            evidence={"carrier": carrier, "tracking_no": tracking_no},
        )
        ReturnShipment.objects.create(
            after_sales=claim,
            direction=ReturnShipment.Direction.TO_MERCHANT,
            carrier=carrier,
            tracking_no=tracking_no,
            entered_at=now,
        )
        result = ReturnShipped(
            after_sales_no=after_sales_no,
            status=str(Status.WAIT_MERCHANT_RECEIVE),
            version=version,
            carrier=carrier,
            tracking_no=tracking_no,
        )
        idempotency.finish(key, result)
        return result
