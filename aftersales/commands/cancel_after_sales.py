"""The buyer takes the application back, before the audit or before the parcel is sent."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aftersales.actors import By
from aftersales.claims import get_claim
from aftersales.commands._end_claim import end_claim
from aftersales.commands._transition import declare
from aftersales.models import Status
from kernel import idempotency
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work

CANCEL = declare("cancel", event="after_sales.canceled")
CANCEL_RETURN = declare("cancel_return", event="after_sales.canceled")


@dataclass(frozen=True)
class Canceled:
    after_sales_no: str
    status: str
    version: int
    replayed: bool = False


def cancel_after_sales(
    *,
    merchant_id: UUID,
    after_sales_no: str,
    user_id: str | None,
    expected_version: int | None = None,
    reason: str = "",
    by: By,
    key: BusinessKey,
    now: datetime,
) -> Canceled:
    """Cancel for the buyer (`user_id`), or by the timer (None). The version is optional: the buyer says no anyway.

    Raises NotFound, VersionConflict, IllegalTransition, InArbitration.
    """
    with unit_of_work(now=now):
        done = idempotency.begin(key, Canceled, now=now)
        if done is not None:
            return done
        claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no, user_id=user_id)
        edge = CANCEL_RETURN if claim.status == Status.WAIT_BUYER_RETURN else CANCEL
        expected = claim.version if expected_version is None else expected_version
        version = end_claim(edge, claim, expected_version=expected, by=by, now=now, reason=reason)
        result = Canceled(after_sales_no=after_sales_no, status=str(Status.CANCELED), version=version)
        idempotency.finish(key, result)
        return result
