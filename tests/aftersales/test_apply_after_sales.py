"""apply_after_sales: what it writes, what it refuses (and then writes nothing), replay."""

from datetime import timedelta

import pytest

from aftersales.drafts import AboveEntitlement, Item, NoSuchUnits, OrderNotPaid, TypeDoesNotFit, WindowOver
from aftersales.models import AfterSalesLog, AfterSalesOrder, AfterSalesUnit
from kernel.errors import InvalidInput, NotFound
from kernel.models import OutboxEvent
from orders.models import Order
from tests.aftersales.build import Line, a_key, a_paid_order, nut_and_tea

pytestmark = pytest.mark.django_db


def nothing_written() -> bool:
    return not any(model.objects.exists() for model in (AfterSalesOrder, AfterSalesUnit, AfterSalesLog))


def test_a_return_of_the_tea_at_the_merchants_fault(now):
    paid = nut_and_tea(now)
    paid.ship(2)
    item = paid.apply(2, type=2, reason="quality")
    claim = paid.claim(item.after_sales_no)
    assert (claim.applied_goods_fen, claim.applied_freight_fen) == (16667, 500)
    assert item.goods_fen + item.freight_fen == 17167
    assert (claim.status, claim.version, claim.due_at) == ("WAIT_AUDIT", 1, now + timedelta(hours=48))
    assert paid.line(2).held_ordinals == [1]
    assert [unit.ordinal for unit in claim.units.all()] == [1]
    assert [(row.command, row.to_status, row.actor_kind) for row in claim.log.all()] == [
        ("apply", "WAIT_AUDIT", "buyer")
    ]
    assert OutboxEvent.objects.filter(name="after_sales.applied", subject=claim.after_sales_no).count() == 1


def test_the_buyers_fault_keeps_the_freight_once_shipped(now):
    paid = nut_and_tea(now)
    paid.ship(2)
    assert paid.apply(2, type=2, reason="changed_mind").freight_fen == 0


def test_unshipped_gives_freight_back_whoever_is_at_fault(now):
    assert nut_and_tea(now).apply(2, reason="changed_mind").freight_fen == 500


def test_several_lines_are_one_application_and_several_orders(now):
    paid = nut_and_tea(now)
    done = paid.apply_all([Item(line_no=n, type=1, qty=1, reason_code="changed_mind") for n in (1, 2)])
    assert done.refund_fen == 26000
    assert len({item.after_sales_no for item in done.after_sales}) == 2
    assert AfterSalesOrder.objects.values("batch_id").distinct().count() == 1


def test_one_bad_line_refuses_the_whole_application(now):
    paid = nut_and_tea(now)
    with pytest.raises(NoSuchUnits):
        paid.apply_all(
            [
                Item(line_no=1, type=1, qty=1, reason_code="quality"),
                Item(line_no=2, type=1, qty=2, reason_code="quality"),
            ]
        )
    assert nothing_written()
    assert paid.line(1).held_ordinals == []


def test_items_of_one_application_see_each_other(now):
    paid = a_paid_order(now, Line(1000, qty=3))
    done = paid.apply_all(
        [Item(line_no=1, type=1, qty=1, reason_code="quality"), Item(line_no=1, type=1, qty=2, reason_code="quality")]
    )
    assert [item.ordinals for item in done.after_sales] == [[1], [2, 3]]


def test_the_same_key_replays_the_first_answer(now):
    paid = nut_and_tea(now)
    key = a_key(paid.merchant.pk)
    items = [Item(line_no=1, type=1, qty=1, reason_code="quality")]
    first = paid.apply_all(items, key=key)
    again = paid.apply_all(items, key=key)
    assert again.replayed
    assert again.after_sales == first.after_sales
    assert AfterSalesOrder.objects.count() == 1


@pytest.mark.parametrize("qty", [0, -1])
def test_a24_no_units(now, qty):
    paid = nut_and_tea(now)
    with pytest.raises(InvalidInput):
        paid.apply(1, qty=qty)
    assert nothing_written()


def test_a24_negative_amount(now):
    paid = nut_and_tea(now)
    with pytest.raises(InvalidInput):
        paid.apply(1, goods_fen=-100)
    assert nothing_written()


def test_more_than_the_units_are_worth(now):
    paid = nut_and_tea(now)
    with pytest.raises(AboveEntitlement):
        paid.apply(1, goods_fen=8334)
    assert nothing_written()


def test_more_units_than_are_left(now):
    paid = nut_and_tea(now)
    paid.apply(1)
    with pytest.raises(NoSuchUnits):
        paid.apply(1)
    assert AfterSalesOrder.objects.count() == 1


def test_nothing_to_send_back_before_it_was_shipped(now):
    paid = nut_and_tea(now)
    with pytest.raises(TypeDoesNotFit):
        paid.apply(1, type=2)
    assert nothing_written()


def test_a_reason_fits_its_types_only(now):
    paid = nut_and_tea(now)
    for wish in ({"type": 1, "reason": "price_drop"}, {"type": 5, "reason": "quality", "goods_fen": 1}):
        with pytest.raises(TypeDoesNotFit):
            paid.apply(1, **wish)
    for unknown in ("arbitration", "no such reason"):
        with pytest.raises(InvalidInput):
            paid.apply(1, reason=unknown)
    assert nothing_written()


def test_the_window_ends_fifteen_days_after_signing(now):
    paid = nut_and_tea(now)
    paid.ship(1)
    items = [Item(line_no=1, type=2, qty=1, reason_code="quality")]
    with pytest.raises(WindowOver):
        paid.apply_all(items, now=now + timedelta(days=15, seconds=1))
    assert nothing_written()
    assert paid.apply_all(items, now=now + timedelta(days=15)).after_sales


def test_somebody_elses_order_does_not_exist(now):
    paid, other = nut_and_tea(now), nut_and_tea(now)
    paid.merchant = other.merchant
    with pytest.raises(NotFound):
        paid.apply(1)
    with pytest.raises(NotFound):
        nut_and_tea(now).apply(3)
    assert nothing_written()


def test_an_unpaid_order_has_no_after_sales(now, monkeypatch):
    paid = nut_and_tea(now)
    monkeypatch.setattr(Order, "PAID_OR_LATER", (Order.Status.COMPLETED,))
    with pytest.raises(OrderNotPaid):
        paid.apply(1)
    assert nothing_written()


def test_a_part_of_the_worth_of_kept_goods_is_compensation(now):
    paid = nut_and_tea(now)
    paid.ship(1)
    item = paid.apply(1, goods_fen=500, reason="damaged")
    assert (item.goods_fen, item.freight_fen) == (500, 0)
    assert paid.claim(item.after_sales_no).hold == "deducts"
    assert paid.line(1).held_ordinals == []


def test_unshipped_and_shipped_units_are_told_apart(now):
    paid = a_paid_order(now, Line(1000, qty=3))
    paid.ship(1, qty=1)
    assert paid.apply(1, qty=2, type=1).ordinals == [2, 3]
    assert paid.apply(1, qty=1, type=2).ordinals == [1]
