"""Count what was sold."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from ledgers.commands._count import SalesCounted, count
from ledgers.models import SalesEntry


def count_sale(
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
    """Units and goods money up, on the day (of the merchant's calendar) of `at`. Joins the caller. The same key again
    → replay. Raises SalesKeyReused, InvalidInput."""
    return count(
        kind=SalesEntry.Kind.SALE,
        merchant_id=merchant_id,
        sku=sku,
        qty=qty,
        amount_fen=amount_fen,
        business_key=business_key,
        reference=reference,
        at=at,
        now=now,
    )
