"""Take pieces back that had left the house, into the bucket an inspection chose."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from kernel import errors
from ledgers.commands.move_stock import Bucket, StockMoved, move_stock, pieces
from ledgers.models import StockEntry


def restock(
    *, merchant_id: UUID, sku: str, qty: int, bucket: str, business_key: str, reference: str, now: datetime
) -> StockMoved:
    """Outside → `sellable` or `defect`. Joins the caller's transaction.
    The same `business_key` again → replay. Raises StockKeyReused, InvalidInput."""
    if bucket not in (Bucket.SELLABLE, Bucket.DEFECT):
        raise errors.InvalidInput(bucket=bucket)
    return move_stock(
        merchant_id=merchant_id,
        sku=sku,
        kind=StockEntry.Kind.RESTOCK,
        deltas={bucket: pieces(qty)},
        business_key=business_key,
        reference=reference,
        now=now,
    )
