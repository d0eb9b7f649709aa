import pytest
from django.db import IntegrityError, connection, transaction
from hypothesis import given
from hypothesis import strategies as st

from kernel import errors
from ledgers.checks import points_that_differ
from ledgers.commands.adjust_points import adjust_points
from ledgers.commands.earn_points import earn_points
from ledgers.commands.give_points_back import PointsBackExceedSpent, give_points_back, return_spent_points
from ledgers.commands.move_points import NotEnoughPoints, PointsKeyReused
from ledgers.commands.settle_earned_points import settle_earned_points
from ledgers.commands.spend_points import spend_points
from ledgers.models import PointsAccount, PointsEntry, PointsSpent
from ledgers.shares import points_of_units, share_of_money
from tests.ledgers.test_stock import race


@pytest.fixture
def lan(merchant, now):
    """A user with 100 points."""
    adjust_points(
        merchant_id=merchant.pk, user_id="lan", delta=100, business_key="start", reference="campaign", now=now
    )
    return merchant.pk


def balance():
    return PointsAccount.objects.get(user_id="lan").balance


def entries():
    return list(PointsEntry.objects.order_by("id").values_list("kind", "delta", "balance_after"))


def spend(merchant_id, now, order_no="Q1", **lines):
    shares = {int(name[1:]): share for name, share in lines.items()}
    return spend_points(merchant_id=merchant_id, user_id="lan", order_no=order_no, lines=shares, now=now)


def back(merchant_id, now, line_no, ordinals, claim):
    return give_points_back(
        merchant_id=merchant_id, order_no="Q1", line_no=line_no, ordinals=ordinals, after_sales_no=claim, now=now
    ).points


def earn(merchant_id, now, *, line_no=1, base_fen=100000, points=1000, refunded_fen=0):
    return earn_points(
        merchant_id=merchant_id,
        user_id="lan",
        order_no="Q1",
        line_no=line_no,
        base_fen=base_fen,
        points=points,
        refunded_fen=refunded_fen,
        now=now,
    )


def settle(merchant_id, now, refunded_fen, claim="AS1", line_no=1):
    return settle_earned_points(
        merchant_id=merchant_id,
        order_no="Q1",
        line_no=line_no,
        refunded_fen=refunded_fen,
        after_sales_no=claim,
        now=now,
    )


def test_a18_used_points_come_back_unit_by_unit(lan, now):
    spend(lan, now, l1=(100, 3))
    assert balance() == 0
    assert [back(lan, now, 1, [unit], f"AS{unit}") for unit in (1, 2, 3)] == [34, 33, 33]
    assert balance() == 100
    assert points_that_differ() == []


def test_a20_used_points_come_back_line_by_line(lan, now):
    spend(lan, now, l1=(33, 1), l2=(67, 1))
    assert back(lan, now, 2, [1], "AS1") == 67
    assert back(lan, now, 1, [1], "AS2") == 33
    assert balance() == 100


def test_a19_earned_points_are_taken_back_and_the_balance_may_go_below_zero(lan, now):
    earn(lan, now)
    spend(lan, now, l1=(1060, 1))
    assert balance() == 40
    assert settle(lan, now, 10000).taken_back == 100
    assert balance() == -60
    with pytest.raises(NotEnoughPoints):
        spend(lan, now, order_no="Q2", l1=(1, 1))


def test_refunds_told_late_twice_and_out_of_order_take_the_same(lan, now):
    earn(lan, now, base_fen=3, points=100)
    for refunded, claim in ((2, "AS2"), (1, "AS1"), (2, "AS2"), (3, "AS3"), (3, "AS3")):
        settle(lan, now, refunded, claim)
    assert balance() == 100
    assert [delta for kind, delta, _ in entries() if kind == "take_back"] == [-67, -33]


def test_what_was_refunded_before_it_was_earned_is_never_given(lan, now):
    assert settle(lan, now, 5000).taken_back == 0
    assert earn(lan, now, base_fen=10000, points=100, refunded_fen=5000).points == 50
    assert settle(lan, now, 5000).replayed
    assert balance() == 150


def test_replays_move_nothing(lan, now):
    spend(lan, now, l1=(60, 2))
    earn(lan, now)
    back(lan, now, 1, [1], "AS1")
    settle(lan, now, 100)
    before = entries(), balance()
    assert spend(lan, now, l1=(60, 2)).replayed
    assert earn(lan, now).replayed
    assert give_points_back(
        merchant_id=lan, order_no="Q1", line_no=1, ordinals=[1], after_sales_no="AS1", now=now
    ).replayed
    assert settle(lan, now, 100).replayed
    assert adjust_points(
        merchant_id=lan, user_id="lan", delta=100, business_key="start", reference="campaign", now=now
    ).replayed
    assert (entries(), balance()) == before


def test_refusals_write_nothing(lan, now):
    spend(lan, now, l1=(60, 2))
    before = entries(), balance(), list(PointsSpent.objects.values())
    with pytest.raises(NotEnoughPoints):
        spend(lan, now, order_no="Q2", l1=(41, 1))
    with pytest.raises(PointsKeyReused):
        spend(lan, now, l1=(59, 2))
    with pytest.raises(PointsKeyReused):
        spend(lan, now, l1=(30, 2), l2=(30, 1))
    for lines in ({}, {"l1": (0, 1)}, {"l1": (-1, 1)}, {"l1": (5, 0)}):
        with pytest.raises(errors.InvalidInput):
            spend(lan, now, order_no="Q3", **lines)
    with pytest.raises(errors.InvalidInput):
        back(lan, now, 1, [3], "AS1")
    with pytest.raises(errors.InvalidInput):
        earn(lan, now, base_fen=10, refunded_fen=11)
    with pytest.raises(errors.InvalidInput):
        adjust_points(merchant_id=lan, user_id="lan", delta=0, business_key="x", reference="x", now=now)
    assert (entries(), balance(), list(PointsSpent.objects.values())) == before
    earn(lan, now)
    with pytest.raises(errors.InvalidInput):
        settle(lan, now, 100001)
    with pytest.raises(PointsKeyReused):
        earn(lan, now, points=999)


def test_never_more_back_than_spent(lan, now):
    spend(lan, now, l1=(60, 2))
    back(lan, now, 1, [1, 2], "AS1")
    with pytest.raises(PointsBackExceedSpent):
        back(lan, now, 1, [1], "AS2")
    assert balance() == 100


def test_an_order_that_ended_unpaid_gives_everything_back_once(lan, now):
    spend(lan, now, l1=(33, 1), l2=(67, 3))
    back(lan, now, 2, [1], "AS1")
    assert return_spent_points(merchant_id=lan, order_no="Q1", now=now).points == 77
    assert return_spent_points(merchant_id=lan, order_no="Q1", now=now).replayed
    assert return_spent_points(merchant_id=lan, order_no="Q9", now=now).points == 0
    assert balance() == 100


def test_c29_two_orders_give_points_back_at_the_same_moment(lan, now):
    spend(lan, now, order_no="Q1", l1=(40, 1))
    spend(lan, now, order_no="Q2", l1=(60, 1))
    results = race(
        *[lambda o=order: return_spent_points(merchant_id=lan, order_no=o, now=now) for order in ("Q1", "Q2")] * 2
    )
    assert not any(isinstance(each, Exception) for each in results), results
    assert balance() == 100
    assert points_that_differ() == []


def test_two_orders_race_for_the_same_points(lan, now):
    results = race(*[lambda o=order: spend(lan, now, order_no=o, l1=(60, 1)) for order in ("Q1", "Q2", "Q3")])
    assert sum(isinstance(each, NotEnoughPoints) for each in results) == 2, results
    assert balance() == 40


def test_the_database_refuses_to_spend_what_is_not_there(lan, now):
    account = PointsAccount.objects.get()
    with pytest.raises(IntegrityError, match="points_are_spent_within_the_balance"), transaction.atomic():
        PointsEntry.objects.create(
            merchant_id=lan,
            account=account,
            kind="spend",
            delta=-101,
            balance_after=-1,
            business_key="by hand",
            reference="x",
            created_at=now,
        )
    with (
        pytest.raises(IntegrityError, match="points_given_back_within_spent"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        spend(lan, now, l1=(5, 1))
        cursor.execute("UPDATE points_spent SET given_back = 6")


@given(points=st.integers(1, 10**9), units=st.integers(1, 60), data=st.data())
def test_units_in_any_order_sum_to_all_points(points, units, data):
    order = data.draw(st.permutations(range(1, units + 1)))
    parts = [points_of_units(points, units, [unit]) for unit in order]
    assert sum(parts) == points
    assert min(parts) >= 0
    assert max(parts) - min(parts) <= 1


@given(whole=st.integers(0, 10**9), base=st.integers(1, 10**9), data=st.data())
def test_money_shares_are_monotone_exact_and_within(whole, base, data):
    steps = sorted(data.draw(st.lists(st.integers(0, base), max_size=8)))
    shares = [share_of_money(whole, base, step) for step in [0, *steps, base]]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, whole)
