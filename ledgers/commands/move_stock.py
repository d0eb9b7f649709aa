"""The one statement behind every stock movement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import F
from django.utils.translation import gettext_lazy as _

from kernel import errors
from kernel.transactions import unit_of_work
from ledgers.models import StockEntry, StockItem

Bucket = StockEntry.Bucket


class OutOfStock(errors.Refusal):
    code = "OUT_OF_STOCK"
    status = 422
    message = _("There is not enough stock.")


class StockKeyReused(errors.Refusal):
    code = "IDEMPOTENCY_KEY_REUSED"
    status = 422
    message = _("This business key was used for another stock movement.")


errors.refuse_on_constraint("stock_movement_happens_once", StockKeyReused)


@dataclass(frozen=True)
class StockMoved:
    """`tracked` is False for a SKU without a stock item: nothing was moved and nothing had to be."""

    sku: str
    qty: int
    tracked: bool
    replayed: bool = False


def move_stock(
    *,
    merchant_id: UUID,
    sku: str,
    kind: str,
    deltas: Mapping[str, int],
    business_key: str,
    reference: str,
    now: datetime,
) -> StockMoved:
    """Add `deltas` (bucket → pieces) to an item and write one entry per bucket. Joins the caller's transaction.

    The item's row is locked first, so the same key twice is told as a replay and never as a violation; callers that
    move several SKUs go by SKU order. Raises OutOfStock (a bucket would fall below zero), StockKeyReused.
    """
    qty = max(abs(delta) for delta in deltas.values())
    with unit_of_work(now=now):
        item = StockItem.objects.select_for_update().filter(merchant_id=merchant_id, sku=sku).first()
        if item is None:
            return StockMoved(sku, qty, tracked=False)
        done = {
            entry.bucket: (entry.item_id, entry.kind, entry.delta)
            for entry in StockEntry.objects.filter(merchant_id=merchant_id, business_key=business_key)
        }
        if done:
            if done != {bucket: (item.id, kind, delta) for bucket, delta in deltas.items()}:
                raise StockKeyReused(business_key=business_key, sku=sku)
            return StockMoved(sku, qty, tracked=True, replayed=True)
        after = {bucket: getattr(item, bucket) + delta for bucket, delta in deltas.items()}
        short = [bucket for bucket, balance in after.items() if balance < 0]
        if short:
            raise OutOfStock(sku=sku, bucket=short[0], wanted=qty, have=getattr(item, short[0]))
        StockItem.objects.filter(id=item.id).update(
            version=F("version") + 1, **{bucket: F(bucket) + delta for bucket, delta in deltas.items()}
        )
        StockEntry.objects.bulk_create(
            StockEntry(
                merchant_id=merchant_id,
                item=item,
                kind=kind,
                bucket=bucket,
                delta=delta,
                balance_after=after[bucket],
                business_key=business_key,
                reference=reference,
                created_at=now,
            )
            for bucket, delta in deltas.items()
        )
        return StockMoved(sku, qty, tracked=True)


def pieces(qty: int) -> int:
    """A quantity to move: at least one. Raises InvalidInput."""
    if qty < 1:
        raise errors.InvalidInput(qty=qty)
    return qty
