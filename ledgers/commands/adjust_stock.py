"""Count stock anew, or track a SKU for the first time."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from kernel import errors, numbers
from kernel.transactions import unit_of_work
from ledgers.commands.move_stock import Bucket, StockMoved, move_stock
from ledgers.models import StockEntry, StockItem


def adjust_stock(
    *,
    merchant_id: UUID,
    sku: str,
    delta: int,
    bucket: str = Bucket.SELLABLE,
    title: str = "",
    business_key: str,
    reference: str,
    now: datetime,
) -> StockMoved:
    """Add `delta` (may be negative, not zero) to a bucket; a SKU that was not tracked is from now on. May join.
    The same `business_key` again → replay. Raises OutOfStock, StockKeyReused, InvalidInput."""
    if delta == 0 or bucket not in Bucket.values or not sku:
        raise errors.InvalidInput(delta=delta, bucket=bucket, sku=sku)
    with unit_of_work(now=now):
        StockItem.objects.bulk_create(
            [StockItem(id=numbers.uuid7(), merchant_id=merchant_id, sku=sku, title=title, created_at=now)],
            ignore_conflicts=True,
        )
        return move_stock(
            merchant_id=merchant_id,
            sku=sku,
            kind=StockEntry.Kind.ADJUST,
            deltas={bucket: delta},
            business_key=business_key,
            reference=reference,
            now=now,
        )
