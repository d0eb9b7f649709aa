"""Points of an order: spent with it, back when it ends unpaid, spent again when it is reopened."""

import pytest

from ledgers.commands.adjust_points import adjust_points
from ledgers.commands.move_points import NotEnoughPoints
from ledgers.models import PointsAccount, PointsSpent
from orders.commands.close_order import close_order
from orders.models import Anomaly
from tests.orders.factories import CARD, Shop, order_of, race, snapshot
from tests.orders.test_coordinate_coupon import late_callback


@pytest.fixture
def rich(shop: Shop) -> Shop:
    """The buyer has 150 points."""
    give(shop, 150)
    return shop


def give(shop: Shop, points: int, key: str = "gift") -> None:
    adjust_points(merchant_id=shop.id, user_id="user-1", delta=points, business_key=key, reference="gift", now=shop.now)


def balance() -> int:
    return PointsAccount.objects.get(user_id="user-1").balance


def test_spent_with_the_order_line_by_line(rich: Shop) -> None:
    ordered = rich.order(points_fen=100, points_used=100)
    assert (ordered.payable_fen, balance()) == (30900, 50)
    assert list(PointsSpent.objects.order_by("line_no").values_list("points", "units")) == [(33, 1), (67, 1)]


def test_not_enough_rolls_everything_back(rich: Shop) -> None:
    quoted = rich.quote(points_fen=151, points_used=151)
    before = snapshot()
    with pytest.raises(NotEnoughPoints):
        rich.order(quote=quoted)
    assert (snapshot(), balance()) == (before, 150)


@pytest.mark.parametrize("how", ["close", "cancel"])
def test_back_when_it_ends_unpaid_once(rich: Shop, how: str) -> None:
    ordered = rich.order(points_fen=100, points_used=100)
    for _ in range(2):
        if how == "close":
            close_order(order_id=ordered.order_id, reason="timeout", now=rich.now)
        else:
            rich.cancel(ordered)
    assert balance() == 150


def test_spent_again_when_it_is_reopened(rich: Shop) -> None:
    ordered, _placed = rich.placed(points_fen=100, points_used=100)
    close_order(order_id=ordered.order_id, reason="timeout", now=rich.now)
    assert late_callback(rich, ordered) == "reopened"
    assert balance() == 50
    assert late_callback(rich, ordered) == "ignore"
    assert balance() == 50


def test_points_that_are_gone_stop_the_reopening(rich: Shop) -> None:
    ordered, _placed = rich.placed(points_fen=100, points_used=100)
    close_order(order_id=ordered.order_id, reason="timeout", now=rich.now)
    rich.order(CARD, points_fen=100, points_used=100)
    assert late_callback(rich, ordered) == "refund"
    assert (order_of(ordered).status, balance()) == (40, 50)
    assert Anomaly.objects.get().evidence["not_reopened"] == "NOT_ENOUGH_POINTS"


def test_race_spends_within_the_balance(rich: Shop) -> None:
    """C29."""
    quotes = [rich.quote(CARD, points_fen=60, points_used=60, address={"street": str(n)}) for n in range(4)]
    results = race(*[lambda quote=quote: rich.order(quote=quote) for quote in quotes])
    assert len([result for result in results if isinstance(result, NotEnoughPoints)]) == 2
    assert balance() == 30
