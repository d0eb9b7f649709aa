"""What every end without money does: the units are free again. Joined by reject, cancel and their relatives."""

from datetime import datetime
from typing import Any

from aftersales.actors import By
from aftersales.commands._transition import blaming_the_state, move
from aftersales.models import AfterSalesOrder, AfterSalesUnit, Hold
from aftersales.rewards import ordered_line
from kernel.statemachine import Edge
from ledgers.commands.release_commission import release_commission
from orders.commands.hold_units import free_units
from orders.models import OrderLine


def end_claim(
    edge: Edge,
    claim: AfterSalesOrder,
    *,
    expected_version: int,
    by: By,
    now: datetime,
    reason: str = "",
    evidence: dict[str, Any] | None = None,
    **params: Any,
) -> int:
    """Move a claim to an end without money, in the fixed order of locks: line, claim, ledgers. Returns the version.

    Its units may be shipped and claimed again, and the commission it froze is free. Raises what `move` raises.
    """
    OrderLine.objects.select_for_update().get(pk=claim.line_id)  # before its order is rewarded, or after
    rows = list(claim.units.filter(live=True))
    held = sorted(row.ordinal for row in rows if row.hold == Hold.CONSUMES)
    if held:
        with blaming_the_state(edge, claim.pk, expected_version=expected_version):
            free_units(line_id=claim.line_id, ordinals=held)
    version = move(
        edge, claim, expected_version=expected_version, by=by, now=now, reason=reason, evidence=evidence, **params
    )
    AfterSalesUnit.objects.filter(pk__in=[row.pk for row in rows]).update(live=False, is_open=False)
    release_commission(
        merchant_id=claim.merchant_id,
        order_no=claim.order_no,
        line_no=ordered_line(claim.line).line_no,
        after_sales_no=claim.after_sales_no,
        now=now,
    )
    return version
