"""What was in the buyer's parcel; joined by the commands that receive one."""

from collections.abc import Mapping
from datetime import datetime

from aftersales.actors import By
from aftersales.models import AfterSalesOrder, Disposition, Inspection
from kernel.errors import InvalidInput


def assign_dispositions(claim: AfterSalesOrder, counts: Mapping[str, int]) -> dict[int, str]:
    """Name the ordinals behind the counts: the lowest are sellable, then defect, and the highest are missing.

    Raises InvalidInput when the counts do not add up or nothing arrived.
    """
    if set(counts) - set(Disposition.values) or any(count < 0 for count in counts.values()):
        raise InvalidInput(dispositions=dict(counts))
    if sum(counts.values()) != claim.qty or counts.get(Disposition.MISSING, 0) == claim.qty:
        raise InvalidInput(dispositions=dict(counts), qty=claim.qty)
    outcome = [what for what in Disposition.values for _ in range(counts.get(what, 0))]
    ordinals = claim.units.order_by("ordinal").values_list("ordinal", flat=True)
    return dict(zip(ordinals, outcome, strict=True))


def record_inspection(
    claim: AfterSalesOrder, counts: Mapping[str, int], *, note: str, by: By, now: datetime
) -> Inspection:
    return Inspection.objects.create(
        after_sales=claim,
        sellable_qty=counts.get(Disposition.SELLABLE, 0),
        defect_qty=counts.get(Disposition.DEFECT, 0),
        missing_qty=counts.get(Disposition.MISSING, 0),
        note=note,
        inspected_by=by.id,
        inspected_at=now,
    )
