"""fulfil_order: virtual lines are granted once; a failure leaves the order PAID and is tried again."""

from datetime import timedelta

import pytest
from django.db import connection

from orders.commands.fulfil_order import fulfil_order
from orders.commands.hold_units import hold_units
from orders.models import Anomaly, Entitlement, Order, OrderLine
from tests.orders.factories import CARD, NUT, AskedLine, Shop, commands_of, drain, order_of, race


def test_a_virtual_order_is_granted_and_delivered(shop: Shop) -> None:
    ordered = shop.paid(CARD)
    assert fulfil_order(order_id=ordered.order_id, now=shop.now).outcome == "delivered"
    grant = Entitlement.objects.get()
    assert (grant.user_id, grant.sku, grant.ordinals, grant.granted_at) == ("user-1", "CARD", [1], shop.now)
    order = order_of(ordered)
    assert (order.status, order.fulfilment) == (20, "done")
    assert order.complete_at == shop.now + timedelta(days=7)


def test_the_event_does_it(shop: Shop) -> None:
    ordered = shop.paid(CARD)
    drain()
    assert order_of(ordered).status == 20


def test_a_mixed_order_waits_for_its_parcel(shop: Shop) -> None:
    ordered = shop.paid(
        NUT,
        AskedLine(sku="CARD", title="卡", kind="virtual", unit_price_fen=1, qty=2, freight_share_fen=0),
        freight_fen=500,
    )
    assert fulfil_order(order_id=ordered.order_id, now=shop.now).outcome == "waiting"
    assert Entitlement.objects.get().qty == 2
    assert shop.ship(ordered).status == 20


def test_a_claimed_unit_is_not_granted(shop: Shop) -> None:
    ordered = shop.paid(AskedLine(sku="CARD", title="卡", kind="virtual", unit_price_fen=100, qty=2))
    hold_units(line_id=OrderLine.objects.get().id, ordinals=[1], unshipped=True)
    fulfil_order(order_id=ordered.order_id, now=shop.now)
    assert Entitlement.objects.get().ordinals == [2]
    assert order_of(ordered).status == 10


def test_replay_and_race_grant_once(shop: Shop) -> None:
    ordered = shop.paid(CARD)
    results = race(*[lambda: fulfil_order(order_id=ordered.order_id, now=shop.now) for _ in range(5)])
    assert [result.outcome for result in results].count("delivered") == 1
    assert fulfil_order(order_id=ordered.order_id, now=shop.now).outcome == "nothing"
    assert Entitlement.objects.count() == 1
    assert commands_of(ordered).count("deliver") == 1


def test_an_unpaid_order_grants_nothing(shop: Shop) -> None:
    ordered = shop.order(CARD)
    assert fulfil_order(order_id=ordered.order_id, now=shop.now).outcome == "nothing"
    assert Entitlement.objects.count() == 0


@pytest.fixture
def broken_grants(shop: Shop):
    """The table of entitlements refuses every row, as a full disk would."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE entitlement ADD CONSTRAINT nothing_goes CHECK (qty < 0)")
    yield
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE entitlement DROP CONSTRAINT IF EXISTS nothing_goes")


def test_a_failure_leaves_it_paid_and_the_sweep_tries_again(shop: Shop, broken_grants: None) -> None:
    ordered = shop.paid(CARD)
    assert fulfil_order(order_id=ordered.order_id, now=shop.now).outcome == "failed"
    order = order_of(ordered)
    assert (order.status, order.fulfil_tries, order.next_fulfil_at) == (10, 1, shop.now + timedelta(seconds=30))
    assert Anomaly.objects.get().kind == "delivery_failed"
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE entitlement DROP CONSTRAINT nothing_goes")
    later = shop.later(seconds=31)
    assert fulfil_order(order_id=ordered.order_id, now=later.now).outcome == "delivered"
    assert Anomaly.objects.get().state == "RESOLVED"
    assert Order.objects.get().fulfilment == "done"
