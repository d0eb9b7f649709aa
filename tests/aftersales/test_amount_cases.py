"""The amount cases that are pure arithmetic, each with its exact figure in fen."""

import pytest

from aftersales.amounts import (
    Entitlement,
    FrozenLine,
    goods_entitlement,
    lower_to,
    lowest_free_ordinals,
)
from kernel import money
from ledgers.shares import points_of_units, share_of_money
from orders.allocation import AllocatedLine, Discounts, PricedLine, allocate


def frozen(line: AllocatedLine) -> FrozenLine:
    return FrozenLine(
        line_no=line.line_no,
        qty=line.qty,
        net_fen=line.net_fen,
        freight_share_fen=line.freight_share_fen,
        points_used=line.points_used,
    )


def order(
    *lines: tuple[int, int] | tuple[int, int, int],
    coupon: int = 0,
    points_fen: int = 0,
    points: int = 0,
    freight: int = 0,
    policy: str = "by_amount",
    shares: list[int] | None = None,
) -> list[FrozenLine]:
    """Lines as (unit price, qty[, line discount]) in fen, frozen as an order freezes them."""
    allocation = allocate(
        lines=[
            PricedLine(
                line_no=number,
                unit_price_fen=line[0],
                qty=line[1],
                line_discount_fen=line[2] if len(line) > 2 else 0,
                freight_share_fen=shares[number - 1] if shares else None,
            )
            for number, line in enumerate(lines, 1)
        ],
        discounts=Discounts(coupon_fen=coupon, points_fen=points_fen, points_used=points),
        freight_fen=freight,
        freight_policy=policy,
    )
    return [frozen(line) for line in allocation.lines]


def refund(line: FrozenLine, *ordinals: int, freight: bool = False, earlier: dict[int, int] | None = None) -> int:
    return claim(line, *ordinals, freight=freight, earlier=earlier).total_fen


def claim(
    line: FrozenLine, *ordinals: int, freight: bool = False, earlier: dict[int, int] | None = None
) -> Entitlement:
    return goods_entitlement(line=line, ordinals=ordinals, freight_refundable=freight, earlier_fen=earlier)


def test_a1_stored_freight_shares():
    nut, tea = order((10000, 1), (20000, 1), coupon=5000, freight=1000, shares=[500, 500])
    assert refund(tea, 1, freight=True) == 17167
    assert refund(nut, 1, freight=True) == 8833
    assert refund(tea, 1, freight=True) + refund(nut, 1, freight=True) == 26000


def test_a2_freight_by_amount():
    nut, tea = order((10000, 1), (20000, 1), coupon=5000, freight=1000)
    assert refund(tea, 1, freight=True) == 17334
    assert refund(nut, 1, freight=True) == 8666


def test_a3_line_discount_never_enters_the_second_split():
    nut, tea = order((10000, 1), (20000, 1, 2000), coupon=5000)
    assert 10000 - nut.net_fen == 1786
    assert 18000 - tea.net_fen == 3214


@pytest.mark.parametrize("first_to_last", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a4_each_line_keeps_its_own_share(first_to_last):
    lines = order((10000, 1), (10000, 1), (10000, 1), coupon=5000)
    paid = {index: refund(lines[index], 1) for index in first_to_last}
    assert [paid[0], paid[1], paid[2]] == [8333, 8333, 8334]
    assert sum(paid.values()) == 25000


def test_a5_three_units_one_by_one():
    (line,) = order((1000, 1))
    line = FrozenLine(line_no=1, qty=3, net_fen=1000, freight_share_fen=0)
    assert [refund(line, ordinal) for ordinal in (1, 2, 3)] == [333, 334, 333]


def test_a6_partial_freight():
    (line,) = order((10000, 3), freight=1000)
    assert [refund(line, ordinal, freight=True) for ordinal in (1, 2, 3)] == [10333, 10334, 10333]


def test_a7_six_and_four():
    six, four = order((600, 1), (400, 1), coupon=100)
    assert (refund(six, 1), refund(four, 1)) == (540, 360)


def test_a8_tens():
    lines = order((1000, 1), (1000, 1), (1000, 1), coupon=1000)
    assert sorted(line.net_fen for line in lines) == [666, 667, 667]
    assert sum(refund(line, 1) for line in lines) == 2000


def test_a9_two_then_one():
    (line,) = order((10000, 3), coupon=3000)
    assert (refund(line, 1, 2), refund(line, 3)) == (18000, 9000)


def test_a10_prestashop():
    lines = order((15000, 1), (6000, 1), coupon=4200)
    assert [refund(line, 1) for line in lines] == [12000, 4800]


def test_a11_one_line():
    (line,) = order((10000, 1), coupon=2000)
    assert refund(line, 1) == 8000


def test_a12_one_of_two_lines():
    first, _second = order((10000, 1), (10000, 1), coupon=2000)
    assert refund(first, 1) == 9000


def test_a13_ten_percent():
    (line,) = order((10000, 3), coupon=3000)
    assert refund(line, 1, 2) == 18000


def test_a14_cancel_two_then_three_with_freight():
    (line,) = order((550, 5), coupon=275, freight=50)
    assert (refund(line, 1, 2, freight=True), refund(line, 3, 4, 5, freight=True)) == (1010, 1515)


def test_a15_whole_order_with_freight():
    (line,) = order((3999, 1), freight=750)
    assert refund(line, 1, freight=True) == 4749


def test_a16_merchants_fault_returns_freight():
    lines = order((6000, 1), (4000, 1), freight=1000)
    assert [refund(line, 1, freight=True) for line in lines] == [6600, 4400]


def test_a17_two_of_three_arrive():
    (line,) = order((8999, 3))
    assert line.net_fen == 26997
    assert refund(line, 1, 2) == 17998


def test_a18_used_points_one_by_one():
    assert [points_of_units(100, 3, [ordinal]) for ordinal in (1, 2, 3)] == [34, 33, 33]


def test_a19_earned_points_in_proportion():
    assert share_of_money(1000, 100000, 10000) == 100


def test_a20_used_points_over_lines():
    nut, tea = order((10000, 1), (20000, 1), points_fen=100, points=100)
    assert points_of_units(tea.points_used, 1, [1]) == 67
    assert points_of_units(nut.points_used, 1, [1]) == 33


def test_a22_commission_by_line():
    assert share_of_money(1000, 10000, 10000) == 1000


@pytest.mark.parametrize(("yuan", "fen"), [("0.03", 3), ("1.67", 167), ("19.90", 1990)])
def test_a23_yuan_to_fen(yuan, fen):
    assert money.yuan_to_fen(yuan) == fen


def test_a25_freight_stays_when_the_buyer_is_at_fault():
    nut, tea = order((10000, 1), (20000, 1), coupon=5000, freight=1000, shares=[500, 500])
    assert refund(nut, 1) + refund(tea, 1) == 25000


def test_a27_price_protection_comes_off_a_later_return():
    line = FrozenLine(line_no=1, qty=1, net_fen=16667, freight_share_fen=0)
    assert refund(line, 1, earlier={1: 2000}) == 14667


def test_a28_free_line():
    (line,) = order((1000, 1), coupon=1000)
    assert refund(line, 1, freight=True) == 0


def test_a29_no_share_is_negative():
    lines = order((1, 1), (999, 1), coupon=500, points_fen=500)
    assert [line.net_fen for line in lines] == [0, 0]


def test_a30_a_rejected_ordinal_is_taken_again():
    line = FrozenLine(line_no=1, qty=3, net_fen=200, freight_share_fen=0)
    held: set[int] = set()
    first = lowest_free_ordinals(qty=3, held=held, wanted=1)
    held |= set(first)
    middle = lowest_free_ordinals(qty=3, held=held, wanted=1)
    held |= set(middle)
    held -= set(middle)
    again = lowest_free_ordinals(qty=3, held=held, wanted=1)
    held |= set(again)
    third = lowest_free_ordinals(qty=3, held=held, wanted=1)
    assert (first, again, third) == ((1,), (2,), (3,))
    assert [refund(line, *ordinals) for ordinals in (first, again, third)] == [67, 66, 67]
    assert lowest_free_ordinals(qty=3, held={1, 2, 3}, wanted=1) == ()


def test_a31_price_protection_never_reaches_another_line():
    nut, tea = order((10000, 1), (20000, 1), coupon=5000, freight=1000, shares=[500, 500])
    back = refund(tea, 1, freight=True, earlier={1: 2000}), refund(nut, 1, freight=True)
    assert back == (15167, 8833)
    assert sum(back) + 2000 == 26000


def test_a32_only_freight_was_paid():
    lines = order((1000, 1, 1000), (500, 1, 500), freight=1000)
    assert [refund(line, 1, freight=True) for line in lines] == [500, 500]


def test_a33_compensation_is_subtracted_later():
    nut, _tea = order((10000, 1), (20000, 1), coupon=5000)
    paid = lower_to(units=claim(nut, 1).units, goods_fen=500, freight_fen=0)
    assert refund(nut, 1, earlier={unit.ordinal: unit.goods_fen for unit in paid}) == 7833


def test_an_amount_above_the_entitlement_does_not_fit():
    line = FrozenLine(line_no=1, qty=2, net_fen=1001, freight_share_fen=0)
    with pytest.raises(ValueError, match="do not fit"):
        lower_to(units=claim(line, 1, 2).units, goods_fen=1002, freight_fen=0)
    with pytest.raises(ValueError, match="worth"):
        refund(line, 1, earlier={1: 502})


def test_a_lowered_amount_names_every_unit():
    line = FrozenLine(line_no=1, qty=3, net_fen=200, freight_share_fen=100)
    units = claim(line, 1, 2, 3, freight=True).units
    lowered = lower_to(units=units, goods_fen=100, freight_fen=50)
    assert sum(unit.goods_fen for unit in lowered) == 100
    assert sum(unit.freight_fen for unit in lowered) == 50
    assert all(after.goods_fen <= before.goods_fen for before, after in zip(units, lowered, strict=True))
