"""REFUND_SUCCESS: the units are given back for good, and the rollbacks are asked for, one message each."""

from datetime import datetime
from uuid import UUID

from aftersales.actors import By
from aftersales.commands._ask_rollbacks import ask_rollbacks
from aftersales.commands._transition import declare, move
from aftersales.models import AfterSalesOrder, AfterSalesUnit, Hold, Status
from orders.commands.hold_units import give_back_units
from orders.models import OrderLine

SUCCEED = {
    source: declare("succeed", source=source, event="after_sales.refunded", during_dispute=True)
    for source in (Status.REFUNDING, Status.REFUND_FAILED)
}


def finish_refund(claim_id: UUID, *, by: By, now: datetime, refund_no: str = "", amount_fen: int = 0) -> int:
    """End a claim whose money has arrived (or was zero). Joins the caller; once, whoever comes twice.

    Returns the version. Raises IllegalTransition when the claim is in a state no refund can end.
    """
    line_id = AfterSalesOrder.objects.values_list("line_id", flat=True).get(pk=claim_id)
    OrderLine.objects.select_for_update().get(pk=line_id)  # the order's rows are locked before the claim's
    claim = AfterSalesOrder.objects.get(pk=claim_id)
    if claim.status == Status.REFUND_SUCCESS:
        return claim.version
    if claim.hold == Hold.CONSUMES:
        ordinals = claim.units.filter(live=True).order_by("ordinal").values_list("ordinal", flat=True)
        give_back_units(line_id=line_id, ordinals=list(ordinals))
    version = move(
        SUCCEED.get(Status(claim.status), SUCCEED[Status.REFUNDING]),
        claim,
        expected_version=claim.version,
        by=by,
        now=now,
        evidence={"refund_no": refund_no, "amount_fen": amount_fen},
    )
    AfterSalesUnit.objects.filter(after_sales=claim, live=True).update(is_open=False)
    ask_rollbacks(claim, now=now)
    return version
