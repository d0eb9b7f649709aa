"""One message and one row for each system that a refund turns back."""

from datetime import datetime

from aftersales.models import ALWAYS_TURNED_BACK, AfterSalesOrder, Hold, Rollback, System
from kernel import outbox
from orders.models import Entitlement


def ask_rollbacks(claim: AfterSalesOrder, *, now: datetime) -> list[str]:
    """Ask for what has not been asked for yet; joins the caller's transaction. Returns the systems asked.

    Granted rights only where something was granted, and only when the unit is given back.
    """
    granted = claim.hold == Hold.CONSUMES and Entitlement.objects.filter(line_id=claim.line_id).exists()
    asked = set(claim.rollbacks.values_list("system", flat=True))
    wanted = (*ALWAYS_TURNED_BACK, System.ENTITLEMENT) if granted else ALWAYS_TURNED_BACK
    missing = [str(system) for system in wanted if system not in asked]
    for system in missing:
        event = outbox.append(
            name="rollback.requested",
            merchant_id=claim.merchant_id,
            subject=claim.after_sales_no,
            payload={"after_sales_no": claim.after_sales_no, "system": system},
            now=now,
        )
        Rollback.objects.create(
            merchant_id=claim.merchant_id, after_sales=claim, system=system, event_id=event.id, requested_at=now
        )
    return missing
