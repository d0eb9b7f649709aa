"""When two carts are the same, and when two quotes ask for the same."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from kernel.idempotency import request_hash


def cart_fingerprint(
    *, merchant_id: UUID, user_id: str, units: Iterable[tuple[str, int]], address: Mapping[str, Any]
) -> str:
    """Merchant, user, goods (SKU and quantity, in any order) and address: one live pending order for each."""
    goods: Counter[str] = Counter()
    for sku, qty in units:
        goods[sku] += qty
    return request_hash([str(merchant_id), user_id, sorted(goods.items()), address])


def content_hash(content: Mapping[str, Any]) -> str:
    """Everything that makes a price: the same content and pay method reuse the pending order."""
    return request_hash(content)
