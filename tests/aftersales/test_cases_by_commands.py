"""The amount cases once more, through the real commands: applied for, approved, inspected, paid by the channel.

`test_amount_cases` holds the figures against the engine alone; here an order is written as payment leaves it and every
refund goes the whole way, so that what reaches the channel is the figure of the case. Amounts in fen.
"""

from dataclasses import dataclass, field

import pytest

from aftersales.models import AfterSalesOrder
from payments.models import Payment, RefundRequest
from tests.aftersales.build import Line, a_paid_order

pytestmark = pytest.mark.django_db


@dataclass(frozen=True)
class Back:
    """One claim: line, units, and what has to reach the channel."""

    line_no: int
    fen: int
    qty: int = 1
    reason: str = "quality"


@dataclass(frozen=True)
class Case:
    lines: list[Line]
    backs: list[Back]
    total: int | None = None
    shipped: bool = True
    order: dict = field(default_factory=dict)


NUT, TEA = Line(10000), Line(20000)
F1 = {"coupon": 5000, "freight": 1000}

CASES = {
    "A1": Case([NUT, TEA], [Back(2, 17167), Back(1, 8833)], 26000, order={**F1, "freight_policy": "equal"}),
    "A1 stored shares": Case(
        [Line(10000, freight=500), Line(20000, freight=500)], [Back(2, 17167), Back(1, 8833)], 26000, order=F1
    ),
    "A2": Case([NUT, TEA], [Back(2, 17334), Back(1, 8666)], 26000, order=F1),
    "A3": Case(
        [NUT, Line(20000, line_discount=2000)],
        [Back(1, 8214, reason="changed_mind"), Back(2, 14786, reason="changed_mind")],
        23000,
        order={"coupon": 5000},
    ),
    "A4": Case([NUT, NUT, NUT], [Back(1, 8333), Back(2, 8333), Back(3, 8334)], 25000, order={"coupon": 5000}),
    "A4 backwards": Case([NUT, NUT, NUT], [Back(3, 8334), Back(2, 8333), Back(1, 8333)], 25000, order={"coupon": 5000}),
    "A5": Case([Line(400, qty=3, line_discount=200)], [Back(1, 333), Back(1, 334), Back(1, 333)], 1000),
    "A6": Case([Line(10000, qty=3)], [Back(1, 10333), Back(1, 10334), Back(1, 10333)], 31000, order={"freight": 1000}),
    "A7": Case([Line(600), Line(400)], [Back(1, 540), Back(2, 360)], 900, order={"coupon": 100}),
    "A8": Case([Line(1000)] * 3, [Back(1, 666), Back(2, 667), Back(3, 667)], 2000, order={"coupon": 1000}),
    "A9": Case([Line(10000, qty=3)], [Back(1, 18000, qty=2), Back(1, 9000)], 27000, order={"coupon": 3000}),
    "A10": Case([Line(15000), Line(6000)], [Back(1, 12000), Back(2, 4800)], 16800, order={"coupon": 4200}),
    "A11": Case([NUT], [Back(1, 8000)], 8000, order={"coupon": 2000}),
    "A12": Case([NUT, NUT], [Back(1, 9000)], order={"coupon": 2000}),
    "A13": Case([Line(10000, qty=3, line_discount=3000)], [Back(1, 18000, qty=2)]),
    "A14": Case(
        [Line(550, qty=5)],
        [Back(1, 1010, qty=2, reason="changed_mind"), Back(1, 1515, qty=3, reason="changed_mind")],
        2525,
        shipped=False,
        order={"coupon": 275, "freight": 50},
    ),
    "A15": Case([Line(3999)], [Back(1, 4749, reason="changed_mind")], 4749, shipped=False, order={"freight": 750}),
    "A16": Case([Line(6000), Line(4000)], [Back(1, 6600), Back(2, 4400)], 11000, order={"freight": 1000}),
    "A25": Case(
        [NUT, TEA],
        [Back(1, 8333, reason="changed_mind"), Back(2, 16667, reason="changed_mind")],
        25000,
        order={**F1, "freight_policy": "equal"},
    ),
    "A29": Case(
        [Line(1), Line(999)], [Back(1, 0), Back(2, 0)], 0, order={"coupon": 500, "points": 5, "points_fen": 500}
    ),
    "A32": Case(
        [Line(1000, line_discount=1000), Line(500, line_discount=500)],
        [Back(1, 500), Back(2, 500)],
        1000,
        shipped=False,
        order={"freight": 1000},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_reaches_the_channel_is_the_figure_of_the_case(now, name):
    case = CASES[name]
    paid = a_paid_order(now, *case.lines, **case.order)
    if case.shipped:
        for number in range(1, len(case.lines) + 1):
            paid.ship(number)
    for back in case.backs:
        if case.shipped:
            number = paid.returned(back.line_no, qty=back.qty, reason=back.reason)
            paid.confirm(number, sellable=back.qty)
        else:
            number = paid.apply(back.line_no, qty=back.qty, reason=back.reason).after_sales_no
            paid.approve(number)
        asked = list(RefundRequest.objects.filter(owner_no=number).values_list("amount_fen", flat=True))
        assert asked == ([back.fen] if back.fen else [])
        if back.fen:
            paid.channel_says(f"{number}-0")
        claim = paid.claim(number)
        assert (claim.status, claim.approved_goods_fen + claim.approved_freight_fen) == ("REFUND_SUCCESS", back.fen)
    refunded = Payment.objects.get().refunded_fen
    assert refunded == sum(back.fen for back in case.backs)
    if case.total is not None:
        assert refunded == case.total == paid.order.payable_fen - (1000 if name == "A25" else 0)
    assert AfterSalesOrder.objects.filter(status="REFUND_SUCCESS").count() == len(case.backs)


def test_a24_nothing_below_one_is_claimed(now):
    from kernel.errors import InvalidInput

    paid = a_paid_order(now, Line(10000))
    for wish in ({"qty": 0}, {"qty": -1}, {"goods_fen": -100}):
        with pytest.raises(InvalidInput):
            paid.apply(1, **wish)
    assert not AfterSalesOrder.objects.exists()
    assert not RefundRequest.objects.exists()
