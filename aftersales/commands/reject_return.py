"""Inspection refuses the parcel: the goods go back to the buyer, with proof."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aftersales.actors import By
from aftersales.claims import get_claim
from aftersales.commands._end_claim import end_claim
from aftersales.commands._transition import declare
from aftersales.models import ReturnShipment, Status
from aftersales.settlement import ReasonNeeded
from kernel import idempotency
from kernel.errors import InvalidInput
from kernel.idempotency import BusinessKey
from kernel.statemachine import P
from kernel.transactions import unit_of_work

REJECT_RETURN = declare("reject_return", event="after_sales.rejected", changes={"decided_at": P("now")})


@dataclass(frozen=True)
class ReturnRejected:
    after_sales_no: str
    status: str
    version: int
    carrier: str
    tracking_no: str
    replayed: bool = False


def reject_return(
    *,
    merchant_id: UUID,
    after_sales_no: str,
    expected_version: int,
    reason: str,
    carrier: str,
    tracking_no: str,
    by: By,
    key: BusinessKey,
    now: datetime,
) -> ReturnRejected:
    """Refuse what arrived. The finding (`reason`) and the number of the parcel that takes it back are mandatory.

    Raises NotFound, ReasonNeeded, InvalidInput, VersionConflict, IllegalTransition, InArbitration.
    """
    if not reason.strip():
        raise ReasonNeeded(after_sales_no=after_sales_no)
    if not carrier.strip() or not tracking_no.strip():
        raise InvalidInput(carrier=carrier, tracking_no=tracking_no)
    with unit_of_work(now=now):
        done = idempotency.begin(key, ReturnRejected, now=now)
        if done is not None:
            return done
        claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no)
        version = end_claim(
            REJECT_RETURN,
            claim,
            expected_version=expected_version,
            by=by,
            now=now,
            reason=reason,
            evidence={"carrier": carrier, "tracking_no": tracking_no},
        )
        ReturnShipment.objects.create(
            after_sales=claim,
            direction=ReturnShipment.Direction.SENT_BACK,
            carrier=carrier,
            tracking_no=tracking_no,
            entered_at=now,
        )
        result = ReturnRejected(
            after_sales_no=after_sales_no,
            status=str(Status.REJECTED),
            version=version,
            carrier=carrier,
            tracking_no=tracking_no,
        )
        idempotency.finish(key, result)
        return result
