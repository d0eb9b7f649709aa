"""Count what came back, on the day its money did."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from ledgers.commands._count import SalesCounted, count
from ledgers.models import SalesEntry


def count_sale_return(
    *,
    merchant_id: UUID,
    sku: str,
    qty: int,
    amount_fen: int,
    business_key: str,
    reference: str,
    at: datetime,
    now: datetime,
) -> SalesCounted:
    """Units and goods money down, on the day the refund succeeded (`at`), whenever they were sold. Price protection and
    compensation come with qty 0. Joins the caller. The same key again → replay. Raises SalesKeyReused, InvalidInput."""
    return count(
        kind=SalesEntry.Kind.RETURN,
        merchant_id=merchant_id,
        sku=sku,
        qty=qty,
        amount_fen=amount_fen,
        business_key=business_key,
        reference=reference,
        at=at,
        now=now,
    )
