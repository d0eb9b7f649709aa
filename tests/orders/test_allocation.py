"""The shares an order freezes: the amount cases, and properties that hold for any order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel import money
from orders.allocation import (
    Allocation,
    DiscountExceedsGoods,
    Discounts,
    FreightSharesDoNotAddUp,
    PricedLine,
    allocate,
)


def priced(*prices: int | tuple[int, int] | tuple[int, int, int]) -> list[PricedLine]:
    """Lines from (unit price fen, qty, line discount fen)."""
    made = []
    for number, price in enumerate(prices, start=1):
        unit, qty, off = (*(price if isinstance(price, tuple) else (price,)), 1, 0)[:3]
        if isinstance(price, tuple) and len(price) == 2:
            unit, qty, off = price[0], price[1], 0
        made.append(PricedLine(line_no=number, unit_price_fen=unit, qty=qty, line_discount_fen=off))
    return made


def nets(allocation: Allocation) -> list[int]:
    return [line.net_fen for line in allocation.lines]


def freight(allocation: Allocation) -> list[int]:
    return [line.freight_share_fen for line in allocation.lines]


def units(allocation: Allocation, index: int, *, with_freight: bool = False) -> list[int]:
    line = allocation.lines[index]
    return [
        money.unit_worth(line.net_fen, line.qty, ordinal)
        + (money.unit_worth(line.freight_share_fen, line.qty, ordinal) if with_freight else 0)
        for ordinal in range(1, line.qty + 1)
    ]


F1 = ((10000, 1), (20000, 1))


def test_a1_freight_shares_given_by_the_caller():
    lines = [
        PricedLine(line_no=1, unit_price_fen=10000, qty=1, freight_share_fen=500),
        PricedLine(line_no=2, unit_price_fen=20000, qty=1, freight_share_fen=500),
    ]
    made = allocate(lines=lines, discounts=Discounts(coupon_fen=5000), freight_fen=1000)
    assert [line.coupon_share_fen for line in made.lines] == [1667, 3333]
    assert nets(made) == [8333, 16667]
    assert [line.net_fen + line.freight_share_fen for line in made.lines] == [8833, 17167]
    assert made.payable_fen == 26000


def test_the_story_splits_freight_equally_by_policy():
    made = allocate(lines=priced(*F1), discounts=Discounts(coupon_fen=5000), freight_fen=1000, freight_policy="equal")
    assert freight(made) == [500, 500]
    assert made.payable_fen == 26000


def test_a2_freight_by_amount():
    made = allocate(lines=priced(*F1), discounts=Discounts(coupon_fen=5000), freight_fen=1000)
    assert freight(made) == [333, 667]
    assert [line.net_fen + line.freight_share_fen for line in made.lines] == [8666, 17334]


def test_a3_a_line_discount_never_enters_the_second_split():
    made = allocate(lines=priced(10000, (20000, 1, 2000)), discounts=Discounts(subsidy_fen=5000))
    assert [line.subsidy_share_fen for line in made.lines] == [1786, 3214]
    assert made.line_discount_fen == 2000


@pytest.mark.parametrize(
    ("case", "lines", "discounts", "expected"),
    [
        ("A4", [10000, 10000, 10000], Discounts(coupon_fen=5000), [8333, 8333, 8334]),
        ("A7", [600, 400], Discounts(coupon_fen=100), [540, 360]),
        ("A8", [1000, 1000, 1000], Discounts(coupon_fen=1000), [666, 667, 667]),
        ("A10", [15000, 6000], Discounts(coupon_fen=4200), [12000, 4800]),
        ("A11", [10000], Discounts(coupon_fen=2000), [8000]),
        ("A12", [10000, 10000], Discounts(coupon_fen=2000), [9000, 9000]),
    ],
)
def test_net_shares(case, lines, discounts, expected):
    made = allocate(lines=priced(*lines), discounts=discounts)
    assert sorted(nets(made)) == sorted(expected), case
    assert sum(nets(made)) == sum(lines) - discounts.coupon_fen


def test_a4_each_line_keeps_its_own_share_whatever_the_order_of_returns():
    made = allocate(lines=priced(10000, 10000, 10000), discounts=Discounts(coupon_fen=5000))
    assert [line.coupon_share_fen for line in made.lines] == [1667, 1667, 1666]
    assert nets(made) == [8333, 8333, 8334]


def test_a5_units_of_one_line_add_up():
    made = allocate(lines=priced((400, 3)), discounts=Discounts(coupon_fen=200))
    assert units(made, 0) == [333, 334, 333]


def test_a6_units_with_freight():
    made = allocate(lines=priced((10000, 3)), discounts=Discounts(), freight_fen=1000)
    assert units(made, 0, with_freight=True) == [10333, 10334, 10333]


def test_a9_two_of_three_units():
    made = allocate(lines=priced((10000, 3)), discounts=Discounts(coupon_fen=3000))
    assert (sum(units(made, 0)[:2]), units(made, 0)[2]) == (18000, 9000)


def test_a13_percentage():
    made = allocate(lines=priced((10000, 3)), discounts=Discounts(coupon_fen=3000))
    assert sum(units(made, 0)[:2]) == 18000


def test_a14_goods_discount_and_freight_by_unit():
    made = allocate(lines=priced((550, 5)), discounts=Discounts(coupon_fen=275), freight_fen=50)
    worth = units(made, 0, with_freight=True)
    assert (sum(worth[:2]), sum(worth[2:])) == (1010, 1515)


def test_a15_whole_order_with_freight():
    made = allocate(lines=priced(3999), discounts=Discounts(), freight_fen=750)
    assert made.payable_fen == 4749
    assert units(made, 0, with_freight=True) == [4749]


def test_a16_freight_by_amount_over_both_lines():
    made = allocate(lines=priced(6000, 4000), discounts=Discounts(), freight_fen=1000)
    assert [line.net_fen + line.freight_share_fen for line in made.lines] == [6600, 4400]


def test_a20_points_used_follow_the_points_shares():
    made = allocate(lines=priced(*F1), discounts=Discounts(points_fen=100, points_used=100))
    assert [line.points_used for line in made.lines] == [33, 67]


def test_a29_two_discounts_one_after_the_other_leave_no_line_below_zero():
    made = allocate(lines=priced(1, 999), discounts=Discounts(coupon_fen=500, points_fen=500, points_used=500))
    assert nets(made) == [0, 0]
    assert [line.coupon_share_fen for line in made.lines] == [1, 499]
    assert [line.points_share_fen for line in made.lines] == [0, 500]


def test_a32_all_goods_free_splits_the_freight_equally():
    made = allocate(lines=priced(0, 0), discounts=Discounts(), freight_fen=1000)
    assert freight(made) == [500, 500]


def test_ineligible_lines_take_no_share_of_the_coupon():
    made = allocate(lines=priced(10000, 20000, 5000), discounts=Discounts(coupon_fen=5000, coupon_lines=(1, 2)))
    assert [line.coupon_share_fen for line in made.lines] == [1667, 3333, 0]


@pytest.mark.parametrize(
    "discounts",
    [
        Discounts(coupon_fen=1001),
        Discounts(coupon_fen=501, coupon_lines=(1,)),
        Discounts(coupon_fen=600, subsidy_fen=401),
        Discounts(coupon_fen=600, subsidy_fen=400, points_fen=1),
        Discounts(coupon_fen=-1),
    ],
)
def test_a_discount_above_what_is_left_is_refused(discounts):
    with pytest.raises(DiscountExceedsGoods):
        allocate(lines=priced(500, 500), discounts=discounts)


def test_a_line_discount_above_its_line_is_refused():
    with pytest.raises(DiscountExceedsGoods):
        allocate(lines=priced((500, 1, 501)), discounts=Discounts())


@pytest.mark.parametrize("shares", [(500, 499), (1001, -1), (None, 1000)])
def test_given_freight_shares_must_add_up(shares):
    lines = [
        PricedLine(line_no=n, unit_price_fen=100, qty=1, freight_share_fen=share)
        for n, share in enumerate(shares, start=1)
    ]
    with pytest.raises(FreightSharesDoNotAddUp):
        allocate(lines=lines, discounts=Discounts(), freight_fen=1000)


@st.composite
def orders(draw):
    lines = [
        PricedLine(
            line_no=number,
            unit_price_fen=price,
            qty=qty,
            line_discount_fen=draw(st.integers(0, price * qty)),
        )
        for number, (price, qty) in enumerate(
            draw(st.lists(st.tuples(st.integers(0, 50_000), st.integers(1, 30)), min_size=1, max_size=12)), 1
        )
    ]
    eligible = draw(st.none() | st.sets(st.integers(1, len(lines))))
    room = sum(line.base_fen for line in lines if eligible is None or line.line_no in eligible)
    coupon = draw(st.integers(0, room))
    left = sum(line.base_fen for line in lines) - coupon
    subsidy = draw(st.integers(0, left))
    points = draw(st.integers(0, left - subsidy))
    used = draw(st.integers(0, 10_000)) if points else 0
    return lines, Discounts(
        coupon_fen=coupon, coupon_lines=eligible, subsidy_fen=subsidy, points_fen=points, points_used=used
    )


@given(orders(), st.integers(0, 100_000), st.sampled_from(["by_amount", "equal"]))
def test_shares_are_exact_and_no_line_is_negative(order, freight_fen, policy):
    lines, discounts = order
    made = allocate(lines=lines, discounts=discounts, freight_fen=freight_fen, freight_policy=policy)
    assert made.coupon_fen == discounts.coupon_fen
    assert made.subsidy_fen == discounts.subsidy_fen
    assert made.points_fen == discounts.points_fen
    assert made.points_used == discounts.points_used
    assert sum(freight(made)) == freight_fen
    assert made.payable_fen == (
        made.goods_fen - discounts.coupon_fen - discounts.subsidy_fen - discounts.points_fen + freight_fen
    )
    for line in made.lines:
        shares = (line.coupon_share_fen, line.subsidy_share_fen, line.points_share_fen, line.net_fen)
        assert min(*shares, line.freight_share_fen, line.points_used) >= 0
        assert line.base_fen == sum(shares)
        if discounts.coupon_lines is not None and line.line_no not in discounts.coupon_lines:
            assert line.coupon_share_fen == 0


@given(orders(), st.integers(0, 100_000))
def test_units_add_up_to_their_line(order, freight_fen):
    lines, discounts = order
    made = allocate(lines=lines, discounts=discounts, freight_fen=freight_fen)
    total = sum(sum(units(made, index, with_freight=True)) for index in range(len(made.lines)))
    assert total == made.payable_fen


@given(orders())
def test_no_share_is_more_than_a_fen_off_its_exact_part(order):
    lines, discounts = order
    made = allocate(lines=lines, discounts=Discounts(coupon_fen=discounts.coupon_fen))
    whole = made.goods_fen
    for line in made.lines:
        assert abs(line.coupon_share_fen * whole - discounts.coupon_fen * line.base_fen) <= whole
