"""Finding a claim, and how long it may stay where it is."""

from datetime import datetime, timedelta
from uuid import UUID

from aftersales.models import AfterSalesOrder, AfterSalesSettings, Status
from kernel.errors import NotFound
from merchants.models import Merchant


def get_claim(*, merchant_id: UUID, after_sales_no: str, user_id: str | None = None) -> AfterSalesOrder:
    """The claim with its line and merchant. Raises NotFound, also for another merchant's or another buyer's."""
    claims = AfterSalesOrder.objects.select_related("line", "merchant")
    if user_id is not None:
        claims = claims.filter(user_id=user_id)
    claim = claims.filter(merchant_id=merchant_id, after_sales_no=after_sales_no).first()
    if claim is None:
        raise NotFound(after_sales_no=after_sales_no)
    return claim


def deadline(merchant: Merchant, status: Status, *, now: datetime) -> datetime | None:
    """Until when this status may last; None where something else has to happen first."""
    spans = {
        Status.WAIT_AUDIT: timedelta(hours=merchant.audit_hours),
        Status.WAIT_BUYER_RETURN: timedelta(days=merchant.send_back_days),
        Status.WAIT_BUYER_PAY: timedelta(hours=merchant.supplement_hours),
        Status.WAIT_MERCHANT_SHIP: timedelta(hours=merchant.ship_exchange_hours),
        Status.WAIT_BUYER_CONFIRM: timedelta(days=merchant.buyer_confirm_days),
    }
    return now + spans[status] if status in spans else None


def settings_of(merchant: Merchant) -> AfterSalesSettings:
    """What the merchant set, or the defaults of the fields."""
    found = AfterSalesSettings.objects.filter(merchant_id=merchant.pk).first()
    return found or AfterSalesSettings(merchant_id=merchant.pk)
