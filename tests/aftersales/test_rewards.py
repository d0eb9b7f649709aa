"""What an order counts and earns: sales when it is paid, points and commissions when it completes, all of it undone by
refunds, through exchanges too."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from aftersales.commands.change_settings import change_settings
from aftersales.commands.count_order_sales import count_order_sales
from aftersales.commands.declare_order_commission import declare_order_commission
from aftersales.commands.reward_order import reward_order
from kernel import inbox, outbox
from kernel.errors import IllegalTransition, InvalidInput, NotFound
from kernel.models import OutboxEvent
from ledgers.commands.adjust_points import adjust_points
from ledgers.commands.declare_commission import Share
from ledgers.commands.mature_commission import commissions_to_mature, mature_commission
from ledgers.commands.move_commission import CommissionKeyReused
from ledgers.commands.spend_points import spend_points
from ledgers.models import Commission, CommissionAccount, CommissionHold, CommissionShare, PointsAccount, SalesDay
from orders.models import Order, OrderStatusLog
from tests.aftersales.build import BUYER, Line, a_key, a_merchant, a_paid_order, deliver
from tests.aftersales.test_approve_after_sales import at_once
from tests.aftersales.test_exchange import confirm, pay, received, ship
from tests.aftersales.test_exchange import paid as cup  # noqa: F401 (a fixture)

AGENT, UPLINE = "agent-7", "upline-3"


@pytest.fixture
def paid(now):
    """Two mugs of 100.00 with 20.00 off and a bowl of 50.00; 1 point per yuan, 10 % and 3 % on the mugs."""
    made = a_paid_order(now, Line(10000, qty=2, line_discount=2000, sku="mug"), Line(5000, sku="bowl"))
    change_settings(
        merchant_id=made.merchant.pk,
        instant_refund_up_to_fen=None,
        carrier_silence_days=20,
        points_per_yuan=1,
        commission_hold_days=9,
        now=now,
    )
    for number in (1, 2):
        made.ship(number)
    return made


def declare(paid, *shares: tuple[int, int, str, int], key: str = ""):
    return declare_order_commission(
        merchant_id=paid.merchant.pk,
        order_no=paid.order.order_no,
        shares=[Share(line_no=n, level=level, beneficiary=who, rate_bp=bp) for n, level, who, bp in shares],
        key=a_key(paid.merchant.pk, key),
        now=paid.now,
    )


@transaction.atomic
def complete(paid) -> None:
    """As delivery and the buyer's confirmation leave the order."""
    moves = [
        ("deliver", 10, 20, {"delivered_at": paid.now, "fulfilment": "done"}),
        ("complete", 20, 30, {"completed_at": paid.now}),
    ]
    for version, (command, before, after, columns) in enumerate(moves, 3):
        Order.objects.filter(pk=paid.order.pk).update(status=after, version=version, **columns)
        OrderStatusLog.objects.create(
            order=paid.order,
            command=command,
            from_status=before,
            to_status=after,
            from_version=version - 1,
            to_version=version,
            actor_kind="system",
            at=paid.now,
        )


def reward(paid):
    return reward_order(merchant_id=paid.merchant.pk, order_no=paid.order.order_no, now=paid.now)


def refund(paid, line_no: int = 1, **wish) -> str:
    number = paid.returned(line_no, **wish)
    paid.confirm(number)
    paid.channel_says(f"{number}-0")
    return number


def sales(paid) -> list[tuple]:
    rows = SalesDay.objects.filter(merchant=paid.merchant).order_by("sku")
    return list(rows.values_list("sku", "sold_qty", "sold_fen", "returned_qty", "returned_fen"))


def points() -> int:
    return PointsAccount.objects.get(user_id=BUYER).balance


def pending() -> dict[str, int]:
    return dict(CommissionAccount.objects.values_list("beneficiary", "pending_fen"))


# --- sales ------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_paid_order_is_sold_once_and_a_refund_takes_it_back(paid, now):
    event = outbox.append(
        name="order.paid",
        merchant_id=paid.merchant.pk,
        subject=paid.order.order_no,
        payload={"order_no": paid.order.order_no, "order_id": str(paid.order.pk), "status": 10, "version": 2},
        now=now,
    )
    for _delivery in range(3):
        inbox.deliver(event.id, now=now)
    count_order_sales(merchant_id=paid.merchant.pk, order_no=paid.order.order_no, now=now)
    assert sales(paid) == [("bowl", 1, 5000, 0, 0), ("mug", 2, 18000, 0, 0)]
    refund(paid)
    assert sales(paid) == [("bowl", 1, 5000, 0, 0), ("mug", 2, 18000, 1, 9000)]


@pytest.mark.django_db
def test_somebody_elses_order_is_neither_sold_nor_rewarded(paid, now):
    for act in (count_order_sales, reward_order):
        with pytest.raises(NotFound):
            act(merchant_id=a_merchant(now).pk, order_no=paid.order.order_no, now=now)
    assert sales(paid) == []


@pytest.mark.django_db(transaction=True)
def test_one_paid_order_counted_from_four_sides(paid, now):
    outcomes = at_once(
        *[lambda: count_order_sales(merchant_id=paid.merchant.pk, order_no=paid.order.order_no, now=now)] * 4
    )
    assert [outcome.lines for outcome in outcomes] == [2, 2, 2, 2]
    assert sales(paid) == [("bowl", 1, 5000, 0, 0), ("mug", 2, 18000, 0, 0)]


# --- points and commissions -------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_completed_order_earns_once_and_refunds_take_their_part(paid):
    declare(paid, (1, 1, AGENT, 1000), (1, 2, UPLINE, 300))
    assert not Commission.objects.exists(), "nothing is booked before the order completes"
    with pytest.raises(IllegalTransition):
        reward(paid)
    complete(paid)
    first = reward(paid)
    assert (first.points, first.commission_fen) == (230, 1800 + 540)
    again = reward(paid)
    assert (again.points, again.commission_fen) == (0, 0)
    assert (points(), pending()) == (230, {AGENT: 1800, UPLINE: 540})
    assert set(Commission.objects.values_list("hold_until", flat=True)) == {paid.now + timedelta(days=9)}
    refund(paid)
    assert (points(), pending()) == (140, {AGENT: 900, UPLINE: 270})
    refund(paid)
    refund(paid, 2)
    assert (points(), pending()) == (0, {AGENT: 0, UPLINE: 0})


@pytest.mark.django_db
def test_what_was_refunded_before_it_completed_earns_nothing(paid):
    declare(paid, (1, 1, AGENT, 1000))
    refund(paid)
    complete(paid)
    assert (reward(paid).points, points(), pending()) == (140, 140, {AGENT: 900})


@pytest.mark.django_db
def test_an_open_claim_keeps_the_commission_from_maturing(paid):
    declare(paid, (1, 1, AGENT, 1000))
    number = paid.returned(1)
    complete(paid)
    reward(paid)
    assert CommissionHold.objects.get().after_sales_no == number
    later = paid.now + timedelta(days=10)
    assert commissions_to_mature(now=later) == []
    paid.confirm(number)
    paid.channel_says(f"{number}-0")
    (due,) = commissions_to_mature(now=later)
    assert mature_commission(commission_id=due, now=later).amount_fen == 900
    assert commissions_to_mature(now=later) == []


@pytest.mark.django_db
def test_another_rate_holds_for_later_orders_only(paid, now):
    complete(paid)
    reward(paid)
    change_settings(
        merchant_id=paid.merchant.pk, instant_refund_up_to_fen=None, carrier_silence_days=20, points_per_yuan=5, now=now
    )
    reward(paid)
    assert points() == 230
    for wrong in ({"points_per_yuan": 101}, {"commission_hold_days": -1}, {"commission_hold_days": 366}):
        with pytest.raises(InvalidInput):
            change_settings(
                merchant_id=paid.merchant.pk, instant_refund_up_to_fen=None, carrier_silence_days=20, **wrong, now=now
            )


@pytest.mark.django_db
def test_shares_are_told_once_and_late_ones_are_booked_at_once(paid):
    assert declare(paid, (1, 1, AGENT, 1000), key="told").booked_fen == 0
    assert declare(paid, (1, 1, AGENT, 1000), key="told").replayed
    for wrong, error in [
        ([(1, 1, UPLINE, 1000)], CommissionKeyReused),
        ([(1, 1, AGENT, 999)], CommissionKeyReused),
        ([(3, 1, AGENT, 10)], InvalidInput),
        ([(1, 2, UPLINE, 9001)], InvalidInput),
        ([(1, 2, UPLINE, 0)], InvalidInput),
        ([(1, 10, UPLINE, 1)], InvalidInput),
        ([(1, 2, "", 1)], InvalidInput),
        ([], InvalidInput),
    ]:
        with pytest.raises(error):
            declare(paid, *wrong)
    assert CommissionShare.objects.count() == 1
    complete(paid)
    reward(paid)
    assert declare(paid, (1, 1, AGENT, 1000), (2, 1, AGENT, 2000)).booked_fen == 1000
    assert pending() == {AGENT: 2800}


@pytest.mark.django_db
def test_the_database_keeps_shares_sensible_and_for_ever(paid):
    declare(paid, (1, 1, AGENT, 1000))
    row = {"merchant": paid.merchant, "order_no": "Q1", "line_no": 1, "beneficiary": "x", "created_at": paid.now}
    for values, name in [
        ({"rate_bp": 0, "level": 1}, "commission_rate_is_part_of_the_goods"),
        ({"rate_bp": 10_001, "level": 1}, "commission_rate_is_part_of_the_goods"),
        ({"rate_bp": 1, "level": 0}, "commission_level_is_1_to_9"),
    ]:
        with pytest.raises(IntegrityError, match=name), transaction.atomic():
            CommissionShare.objects.create(**row, **values)
    with pytest.raises(IntegrityError, match="one_beneficiary_per_line_and_level"), transaction.atomic():
        CommissionShare.objects.create(**{**row, "order_no": paid.order.order_no}, rate_bp=1, level=1)
    for change in (lambda: CommissionShare.objects.update(rate_bp=9), lambda: CommissionShare.objects.all().delete()):
        with pytest.raises(Exception, match="Cannot"), transaction.atomic():
            change()


@pytest.mark.django_db(transaction=True)
def test_an_order_that_completes_while_a_refund_ends_earns_exactly_the_rest(paid):
    """Whichever is first: the grant counts the refund, or the refund's own rollback takes its part."""
    declare(paid, (1, 1, AGENT, 1000))
    number = paid.returned(1)
    paid.confirm(number)
    complete(paid)
    outcomes = at_once(lambda: reward(paid), lambda: paid.channel_says(f"{number}-0"), lambda: reward(paid))
    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    deliver(paid.now)
    assert (points(), pending()) == (140, {AGENT: 900})


# --- through an exchange ----------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("rewarded", ["before", "after"])
def test_a_returned_replacement_takes_back_what_the_ordered_unit_earned_and_used(cup, rewarded):  # noqa: F811
    """A cup of 80.00 net exchanged for one of 120.00; the replacement comes back. Its 40.00 of supplement earned
    nothing, so nothing more than the cup's own rewards is taken."""
    from tests.aftersales.test_exchange import DEARER

    change_settings(
        merchant_id=cup.merchant.pk,
        instant_refund_up_to_fen=None,
        carrier_silence_days=20,
        points_per_yuan=1,
        now=cup.now,
    )
    adjust_points(
        merchant_id=cup.merchant.pk, user_id=BUYER, delta=50, business_key="gift", reference="gift", now=cup.now
    )
    spend_points(
        merchant_id=cup.merchant.pk, user_id=BUYER, order_no=cup.order.order_no, lines={1: (50, 1)}, now=cup.now
    )
    declare(cup, (1, 1, AGENT, 1000))
    if rewarded == "before":
        complete(cup)
        reward(cup)
        assert (points(), pending()) == (80, {AGENT: 800})
    number = received(cup, DEARER)
    pay(cup, number)
    ship(cup, number, version=5)
    confirm(cup, number)
    assert not CommissionHold.objects.filter(outcome="open").exists()
    with pytest.raises(InvalidInput):
        declare(cup, (2, 1, AGENT, 1000))
    if rewarded == "after":
        complete(cup)
        assert (reward(cup).points, pending()) == (80, {AGENT: 800})
    back = cup.returned(2)
    if rewarded == "before":
        assert CommissionHold.objects.filter(outcome="open").get().after_sales_no == back
    cup.confirm(back)
    for part in (f"{back}-0", f"{back}_1-0"):
        cup.channel_says(part)
    assert cup.claim(back).status == "REFUND_SUCCESS"
    assert (points(), pending()) == (50, {AGENT: 0})
    assert not CommissionHold.objects.filter(outcome="open").exists()
    assert not OutboxEvent.objects.filter(name="rollback.requested", state="PENDING").exists()
