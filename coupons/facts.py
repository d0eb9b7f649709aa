"""What coupons have to ask about orders. Orders stand above: they register an `OrderFacts`, coupons import nothing.

Answers come from local tables only (no HTTP): the scanner asks for a page of orders at a time.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID


class LeaseVerdict(StrEnum):
    """What may happen to a lease whose time is over."""

    RELEASE = "RELEASE"
    """No order, or one that ended without a payment: nobody will come for the coupon."""
    WAIT = "WAIT"
    """The order is alive and its own timer will end it or renew the lease: leave it alone."""
    COORDINATE = "COORDINATE"
    """Paid, or unknown at the gateway: never release, tell the order coordinator."""


@dataclass(frozen=True)
class OrderMoment:
    """One dated fact of an order, its payment or its refund, for the timeline of a coupon."""

    at: datetime
    kind: str
    order_no: str
    title: str
    reference: str = ""
    amount_fen: int | None = None


class OrderFacts(Protocol):
    """What orders answer."""

    def lease_verdicts(
        self, *, merchant_id: UUID, order_nos: Collection[str], now: datetime
    ) -> Mapping[str, LeaseVerdict]:
        """The verdict per order number; a number that is not in the answer is no order (a quote's): RELEASE."""
        ...

    def moments(self, *, merchant_id: UUID, order_nos: Collection[str]) -> list[OrderMoment]:
        """Order, payment and refund facts of these orders, in order of time."""
        ...


class NoOrders:
    """Coupons without an order app above them: no lease belongs to an order, no order has facts."""

    def lease_verdicts(
        self, *, merchant_id: UUID, order_nos: Collection[str], now: datetime
    ) -> Mapping[str, LeaseVerdict]:
        return {}

    def moments(self, *, merchant_id: UUID, order_nos: Collection[str]) -> list[OrderMoment]:
        return []


_registered: list[OrderFacts] = []


def register(facts: OrderFacts) -> None:
    """Called once by the app that owns orders, when it is ready."""
    if _registered and type(_registered[0]) is not type(facts):
        raise ValueError("order facts are registered already")
    _registered[:] = [facts]


def order_facts() -> OrderFacts:
    """The registered facts."""
    return _registered[0] if _registered else NoOrders()
