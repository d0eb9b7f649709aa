"""Set pieces aside for an order."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from ledgers.commands.move_stock import Bucket, StockMoved, move_stock, pieces
from ledgers.models import StockEntry


def reserve_stock(
    *, merchant_id: UUID, sku: str, qty: int, business_key: str, reference: str, now: datetime
) -> StockMoved:
    """Sellable → reserved, never below zero. Joins the caller's transaction.
    The same `business_key` again → replay. Raises OutOfStock, StockKeyReused, InvalidInput."""
    return move_stock(
        merchant_id=merchant_id,
        sku=sku,
        kind=StockEntry.Kind.RESERVE,
        deltas={Bucket.SELLABLE: -pieces(qty), Bucket.RESERVED: qty},
        business_key=business_key,
        reference=reference,
        now=now,
    )
