"""The shop of the orders tests, at the simulator, with clients that are never throttled."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from merchants.commands.create_client import KeyIssued
from tests.merchants.factories import a_client
from tests.orders.conftest import keys, now, shop, simulator, simulator_process
from tests.orders.factories import Shop

__all__ = ["keys", "now", "shop", "simulator", "simulator_process"]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of refused requests are no news."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def issued(shop: Shop) -> KeyIssued:
    return a_client(merchant=shop.merchant, now=shop.now, name="fuzz", requests_per_minute=10_000_000)


@pytest.fixture
def reader(shop: Shop) -> KeyIssued:
    return a_client(
        merchant=shop.merchant, now=shop.now, name="reader", scopes=["read"], requests_per_minute=10_000_000
    )
