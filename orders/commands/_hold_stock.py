"""The stock of an order: set aside when it is made, given back when it ends unpaid, out when it is shipped.

All of it joins the caller's transaction, comes last in the lock order and goes by SKU, so that two orders with the
same articles wait for each other and never deadlock.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from uuid import UUID

from ledgers.commands.move_stock import OutOfStock
from ledgers.commands.release_stock import release_stock
from ledgers.commands.reserve_stock import reserve_stock
from ledgers.commands.ship_stock import ship_stock
from ledgers.models import StockEntry
from orders.models import Order, OrderLine

__all__ = ["OutOfStock", "release_stock_of", "reserve_stock_for", "ship_stock_of"]


def reserve_stock_for(order: Order, *, now: datetime) -> None:
    """Set aside every physical unit, once when the order is made and once when it is reopened. Raises OutOfStock."""
    for sku, qty in _units(order.lines.filter(kind=OrderLine.Kind.PHYSICAL)):
        reserve_stock(
            merchant_id=order.merchant_id,
            sku=sku,
            qty=qty,
            business_key=f"order:{order.order_no}:reserve:{sku}:v{order.version}",
            reference=order.order_no,
            now=now,
        )


def release_stock_of(order: Order, *, now: datetime) -> None:
    """Give back what the order set aside. A SKU that was not tracked at the time has nothing to give back."""
    for sku, qty in _reserved(order.merchant_id, order.order_no):
        release_stock(
            merchant_id=order.merchant_id,
            sku=sku,
            qty=qty,
            business_key=f"order:{order.order_no}:release:{sku}",
            reference=order.order_no,
            now=now,
        )


def ship_stock_of(order: Order, *, units: Mapping[str, int], shipment_id: UUID, now: datetime) -> None:
    """Let shipped units ({SKU: pieces}) leave, as far as this order had set them aside."""
    held = dict(_reserved(order.merchant_id, order.order_no))
    for sku, qty in sorted(units.items()):
        if sku in held:
            ship_stock(
                merchant_id=order.merchant_id,
                sku=sku,
                qty=qty,
                business_key=f"shipment:{shipment_id}:{sku}",
                reference=order.order_no,
                now=now,
            )


def _units(lines: Iterable[OrderLine]) -> list[tuple[str, int]]:
    wanted: Counter[str] = Counter()
    for line in lines:
        wanted[line.sku] += line.qty
    return sorted(wanted.items())


def _reserved(merchant_id: UUID, order_no: str) -> list[tuple[str, int]]:
    """What the order's newest reservation set aside: {SKU: pieces}, by SKU."""
    entries = StockEntry.objects.filter(
        merchant_id=merchant_id,
        reference=order_no,
        kind=StockEntry.Kind.RESERVE,
        bucket=StockEntry.Bucket.RESERVED,
    ).select_related("item")
    return sorted({entry.item.sku: entry.delta for entry in entries.order_by("created_at")}.items())
