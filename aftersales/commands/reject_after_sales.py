"""The merchant refuses at audit."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aftersales.actors import By
from aftersales.claims import get_claim
from aftersales.commands._end_claim import end_claim
from aftersales.commands._transition import declare
from aftersales.models import Status
from aftersales.settlement import ReasonNeeded
from kernel import idempotency
from kernel.idempotency import BusinessKey
from kernel.statemachine import P
from kernel.transactions import unit_of_work

REJECT = declare("reject", event="after_sales.rejected", changes={"decided_at": P("now")})


@dataclass(frozen=True)
class Rejected:
    after_sales_no: str
    status: str
    version: int
    replayed: bool = False


def reject_after_sales(
    *,
    merchant_id: UUID,
    after_sales_no: str,
    expected_version: int,
    reason: str,
    by: By,
    key: BusinessKey,
    now: datetime,
) -> Rejected:
    """Refuse a claim that waits for audit; its units are free again, the buyer may apply anew or go to arbitration.

    Raises NotFound, ReasonNeeded, VersionConflict, IllegalTransition, InArbitration.
    """
    if not reason.strip():
        raise ReasonNeeded(after_sales_no=after_sales_no)
    with unit_of_work(now=now):
        done = idempotency.begin(key, Rejected, now=now)
        if done is not None:
            return done
        claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no)
        version = end_claim(REJECT, claim, expected_version=expected_version, by=by, now=now, reason=reason)
        result = Rejected(after_sales_no=after_sales_no, status=str(Status.REJECTED), version=version)
        idempotency.finish(key, result)
        return result
