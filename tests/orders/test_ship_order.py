"""ship_order, sign_shipment, completion: parcels of units, never a unit that is claimed or refunded."""

from datetime import timedelta

import pytest

from kernel.errors import IdempotencyKeyReused, IllegalTransition, InvalidInput, NotFound
from orders.commands.complete_order import complete_order, confirm_receipt
from orders.commands.deliver_order import finish_fulfilment
from orders.commands.hold_units import UnitsTaken, free_units, give_back_units, hold_units
from orders.commands.ship_order import AlreadyShippedSo, CouponNotSettled, UnitsNotFree
from orders.commands.sign_due_shipment import sign_due_shipment
from orders.commands.sign_shipment import sign_shipment
from orders.models import Order, OrderBill, OrderLine, Shipment, ShipmentLine
from tests.orders.factories import AskedLine, Shop, commands_of, events, order_of, race, snapshot, stock_of

MANY = AskedLine(sku="TEA", title="茶叶", unit_price_fen=20000, qty=5)


def line_of(ordered, number: int = 1) -> OrderLine:
    return OrderLine.objects.get(order_id=ordered.order_id, line_no=number)


def sign(shop: Shop, ordered, **values):
    values = {"key": shop.key(), "now": shop.now, **values}
    return sign_shipment(merchant_id=shop.id, order_no=ordered.order_no, **values)


def test_everything_at_once_delivers_with_the_bill(shop: Shop) -> None:
    ordered = shop.paid()
    shipped = shop.ship(ordered)
    assert (shipped.status, [line.ordinals for line in shipped.lines]) == (20, [[1], [1]])
    bill = OrderBill.objects.get(order_id=ordered.order_id)
    order = order_of(ordered)
    assert (bill.amount_fen, bill.trade_no, bill.channel) == (31000, order.trade_no, "wechat")
    assert (order.fulfilment, order.delivered_at) == ("done", shop.now)
    assert (stock_of(shop, "NUT"), stock_of(shop, "TEA")) == ((9, 0), (9, 0))
    assert len(events("order.delivered")) == 1


def test_parcels_take_the_lowest_free_units_and_the_last_one_delivers(shop: Shop) -> None:
    ordered = shop.paid(MANY)
    first = shop.ship(ordered, (1, 2))
    assert (first.status, order_of(ordered).fulfilment) == (10, "partial")
    assert stock_of(shop, "TEA") == (5, 3)
    second = shop.ship(ordered)
    assert (second.status, second.lines[0].ordinals) == (20, [3, 4, 5])
    assert [row.ordinals for row in ShipmentLine.objects.order_by("shipment__shipped_at", "id")] == [[1, 2], [3, 4, 5]]


def test_refusals_write_nothing(shop: Shop) -> None:
    ordered, pending = shop.paid(MANY), shop.order()
    shop.ship(ordered, (1, 1), tracking_no="SAME")
    before = snapshot()
    for target, lines, error, values in [
        (ordered, [(1, 5)], UnitsNotFree, {}),
        (ordered, [(2, 1)], InvalidInput, {}),
        (ordered, [(1, 0)], InvalidInput, {}),
        (ordered, [(1, 1)], AlreadyShippedSo, {"tracking_no": "SAME"}),
        (pending, [], IllegalTransition, {}),
    ]:
        with pytest.raises(error):
            shop.ship(target, *lines, **values)
    assert snapshot() == before


def test_an_order_whose_coupon_is_gone_is_never_shipped(shop: Shop) -> None:
    ordered = shop.paid(coupon_id=shop.coupon())
    Order.objects.filter(id=ordered.order_id).update(coupon_state="conflict")
    with pytest.raises(CouponNotSettled):
        shop.ship(ordered)


def test_replay(shop: Shop) -> None:
    ordered = shop.paid()
    key = shop.key("ship", body=1)
    first = shop.ship(ordered, key=key, tracking_no="A")
    again = shop.ship(ordered, key=key, tracking_no="A")
    assert (again.replayed, again.shipment_id) == (True, first.shipment_id)
    with pytest.raises(IdempotencyKeyReused):
        shop.ship(ordered, key=shop.key("ship", body=2))
    assert Shipment.objects.count() == 1


def test_race_ships_every_unit_once(shop: Shop) -> None:
    ordered = shop.paid(MANY)
    results = race(*[lambda: shop.ship(ordered, (1, 1)) for _ in range(8)])
    shipped = [result for result in results if not isinstance(result, BaseException)]
    assert len(shipped) == 5
    assert sorted(unit for result in shipped for unit in result.lines[0].ordinals) == [1, 2, 3, 4, 5]
    assert (order_of(ordered).status, OrderBill.objects.count()) == (20, 1)


def test_units_under_a_claim_stay_and_the_rest_goes(shop: Shop) -> None:
    ordered = shop.paid(MANY)
    hold_units(line_id=line_of(ordered).id, ordinals=[2], unshipped=True)
    shipped = shop.ship(ordered)
    assert (shipped.lines[0].ordinals, shipped.status) == ([1, 3, 4, 5], 10)
    with pytest.raises(UnitsNotFree):
        shop.ship(ordered)
    free_units(line_id=line_of(ordered).id, ordinals=[2])
    assert shop.ship(ordered).status == 20


def test_race_of_refund_and_ship_of_one_unit_has_one_winner(shop: Shop) -> None:
    """C36."""
    for number in range(6):
        ordered = shop.paid(AskedLine(sku=f"S{number}", title="s", unit_price_fen=100, qty=1))
        line_id = line_of(ordered).id
        results = race(
            lambda ordered=ordered: shop.ship(ordered),
            lambda line_id=line_id: hold_units(line_id=line_id, ordinals=[1], unshipped=True),
        )
        refused = [result for result in results if isinstance(result, UnitsNotFree | UnitsTaken)]
        assert len(refused) == 1, results
        line = line_of(ordered)
        assert bool(line.shipped_ordinals) != bool(line.held_ordinals)


def test_when_only_refunded_units_were_missing_it_delivers(shop: Shop) -> None:
    ordered = shop.paid(MANY)
    line_id = line_of(ordered).id
    hold_units(line_id=line_id, ordinals=[5], unshipped=True)
    shop.ship(ordered)
    give_back_units(line_id=line_id, ordinals=[5])
    assert finish_fulfilment(order_id=ordered.order_id, now=shop.now) == "delivered"
    assert order_of(ordered).status == 20


def test_a_wholly_refunded_order_is_void_and_stays_paid(shop: Shop) -> None:
    ordered = shop.paid(MANY)
    line_id = line_of(ordered).id
    hold_units(line_id=line_id, ordinals=[1, 2, 3, 4, 5], unshipped=True)
    give_back_units(line_id=line_id, ordinals=[1, 2, 3, 4, 5])
    assert finish_fulfilment(order_id=ordered.order_id, now=shop.now) == "void"
    order = order_of(ordered)
    assert (order.status, order.fulfilment, order.next_fulfil_at) == (10, "void", None)
    assert finish_fulfilment(order_id=ordered.order_id, now=shop.now) == "waiting"
    with pytest.raises(IllegalTransition):
        shop.ship(ordered)


def test_signing_dates_each_line_by_its_last_parcel(shop: Shop) -> None:
    ordered = shop.paid(MANY)
    first, second = shop.ship(ordered, (1, 2)), shop.ship(ordered)
    signed = sign(shop, ordered, shipment_id=first.shipment_id)
    assert (signed.complete_at, line_of(ordered).signed_at) == (None, None)
    later = shop.later(days=1)
    signed = sign(later, ordered, shipment_id=second.shipment_id)
    assert line_of(ordered).signed_at == later.now
    assert signed.complete_at == order_of(ordered).complete_at == later.now + timedelta(days=7)
    assert {parcel.signed_at for parcel in Shipment.objects.all()} == {shop.now, later.now}


def test_signing_again_changes_nothing(shop: Shop) -> None:
    ordered = shop.paid()
    shop.ship(ordered)
    key = shop.key("sign", body=1)
    first = sign(shop, ordered, key=key)
    assert sign(shop, ordered, key=key).replayed
    sign(shop.later(days=1), ordered)
    assert Shipment.objects.get().signed_at == first.signed_at
    with pytest.raises(NotFound):
        sign(shop, ordered, shipment_id=shop.id)


def test_race_of_signatures_signs_once(shop: Shop) -> None:
    ordered = shop.paid()
    shop.ship(ordered)
    race(*[lambda: sign(shop, ordered) for _ in range(4)])
    assert len(events("order.signed")) == 1


def test_nobody_signs_for_ten_days(shop: Shop) -> None:
    ordered = shop.paid()
    shipped = shop.ship(ordered)
    assert not sign_due_shipment(shipment_id=shipped.shipment_id, now=shop.now + timedelta(days=9))
    assert sign_due_shipment(shipment_id=shipped.shipment_id, now=shop.now + timedelta(days=10))
    assert not sign_due_shipment(shipment_id=shipped.shipment_id, now=shop.now + timedelta(days=11))
    assert Shipment.objects.get().signed_by == "time"


def receive(shop: Shop, ordered, **values):
    values = {"user_id": "user-1", "key": shop.key(), "now": shop.now, **values}
    return confirm_receipt(merchant_id=shop.id, order_no=ordered.order_no, **values)


def test_receipt_completes_and_signs_what_was_on_its_way(shop: Shop) -> None:
    ordered = shop.paid()
    shop.ship(ordered)
    assert receive(shop, ordered).status == 30
    assert Shipment.objects.get().signed_at == shop.now
    assert commands_of(ordered) == ["create", "confirm_paid", "deliver", "complete"]


def test_receipt_refusals_and_replay(shop: Shop) -> None:
    ordered = shop.paid()
    before = snapshot()
    with pytest.raises(IllegalTransition):
        receive(shop, ordered)
    with pytest.raises(NotFound):
        receive(shop, ordered, user_id="somebody-else")
    assert snapshot() == before
    shop.ship(ordered)
    key = shop.key("receive", body=1)
    first = receive(shop, ordered, key=key)
    assert receive(shop, ordered, key=key).replayed
    assert receive(shop, ordered).completed_at == first.completed_at
    assert commands_of(ordered).count("complete") == 1


def test_race_of_receipts_completes_once(shop: Shop) -> None:
    ordered = shop.paid()
    shop.ship(ordered)
    race(*[lambda: receive(shop, ordered) for _ in range(4)])
    assert commands_of(ordered).count("complete") == 1


def test_time_completes(shop: Shop) -> None:
    ordered = shop.paid()
    shop.ship(ordered)
    signed = sign(shop, ordered)
    assert not complete_order(order_id=ordered.order_id, now=signed.complete_at - timedelta(seconds=1))
    assert complete_order(order_id=ordered.order_id, now=signed.complete_at)
    assert not complete_order(order_id=ordered.order_id, now=signed.complete_at)
    assert order_of(ordered).status == 30
