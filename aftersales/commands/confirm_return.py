"""The merchant opened the parcel: what became of each unit, who is at fault, and the money that follows."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aftersales.actors import By
from aftersales.claims import get_claim
from aftersales.commands._inspection import assign_dispositions, record_inspection
from aftersales.commands._start_refund import AMOUNTS, start_refund
from aftersales.commands._transition import declare
from aftersales.models import AfterSalesOrder, Disposition
from aftersales.settlement import Ask, settle
from kernel import idempotency
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work

CONFIRM_RETURN = declare("confirm_return", event="after_sales.return_confirmed", changes=AMOUNTS)


@dataclass(frozen=True)
class ReturnConfirmed:
    after_sales_no: str
    status: str
    version: int
    accepted_qty: int
    goods_fen: int | None
    freight_fen: int | None
    replayed: bool = False


def confirm_return(
    *,
    merchant_id: UUID,
    after_sales_no: str,
    expected_version: int,
    dispositions: Mapping[str, int],
    note: str = "",
    ask: Ask = Ask(),  # noqa: B008 (frozen, and it means: what the rules give)
    by: By,
    key: BusinessKey,
    now: datetime,
) -> ReturnConfirmed:
    """Accept what arrived: `dispositions` counts units as sellable, defect or missing; missing ones are not refunded.

    Raises NotFound, InvalidInput (the counts do not add up, nothing arrived), VersionConflict, IllegalTransition,
    InArbitration, AboveEntitlement, ReasonNeeded, RefundExceedsPaid.
    """
    with unit_of_work(now=now):
        done = idempotency.begin(key, ReturnConfirmed, now=now)
        if done is not None:
            return done
        claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no)
        by_ordinal = assign_dispositions(claim, dispositions)
        accepted = [ordinal for ordinal, what in by_ordinal.items() if what != Disposition.MISSING]
        settled = settle(claim, ask, accepted=accepted)
        start_refund(
            CONFIRM_RETURN,
            claim,
            settled,
            expected_version=expected_version,
            by=by,
            now=now,
            reason=note,
            liability_reason=ask.liability_reason,
            reduction_reason=ask.reduction_reason,
            dispositions=by_ordinal,
        )
        record_inspection(claim, dispositions, note=note, by=by, now=now)
        now_is = AfterSalesOrder.objects.get(pk=claim.pk)
        result = ReturnConfirmed(
            after_sales_no=after_sales_no,
            status=str(now_is.status),
            version=now_is.version,
            accepted_qty=len(accepted),
            goods_fen=now_is.approved_goods_fen,
            freight_fen=now_is.approved_freight_fen,
        )
        idempotency.finish(key, result)
        return result
