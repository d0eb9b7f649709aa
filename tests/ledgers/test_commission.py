from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel import errors
from ledgers.checks import commission_matured_while_held, commission_that_differs
from ledgers.commands.accrue_commission import accrue_commission
from ledgers.commands.hold_commission import hold_commission
from ledgers.commands.mature_commission import commissions_to_mature, mature_commission
from ledgers.commands.move_commission import CommissionKeyReused, NotWithdrawable
from ledgers.commands.release_commission import release_commission
from ledgers.commands.settle_commission import settle_commission
from ledgers.commands.withdraw_commission import withdraw_commission
from ledgers.models import Commission, CommissionAccount, CommissionEntry, CommissionHold
from tests.ledgers.test_stock import race

WEEK = timedelta(days=7)


def buckets(beneficiary="mei"):
    return CommissionAccount.objects.values_list("pending_fen", "withdrawable_fen", "frozen_fen", "withdrawn_fen").get(
        beneficiary=beneficiary
    )


def accrue(merchant, now, *, order_no="Q1", line_no=1, base_fen=10000, amount_fen=2000, **other):
    return accrue_commission(
        merchant_id=merchant.pk,
        order_no=order_no,
        line_no=line_no,
        beneficiary=other.pop("beneficiary", "mei"),
        level=other.pop("level", 1),
        base_fen=base_fen,
        amount_fen=amount_fen,
        hold_until=now + WEEK,
        now=now,
        **other,
    )


def mature(now):
    return [mature_commission(commission_id=each, now=now).amount_fen for each in commissions_to_mature(now=now)]


def hold(merchant, now, goods_fen, claim="AS1", order_no="Q1", line_no=1):
    return hold_commission(
        merchant_id=merchant.pk,
        order_no=order_no,
        line_no=line_no,
        after_sales_no=claim,
        goods_fen=goods_fen,
        now=now,
    )


def release(merchant, now, claim="AS1"):
    return release_commission(merchant_id=merchant.pk, order_no="Q1", line_no=1, after_sales_no=claim, now=now)


def settle(merchant, now, refunded_fen, claim="AS1", order_no="Q1", line_no=1):
    return settle_commission(
        merchant_id=merchant.pk,
        order_no=order_no,
        line_no=line_no,
        refunded_fen=refunded_fen,
        after_sales_no=claim,
        now=now,
    )


def withdraw(merchant, now, amount_fen, key="payout:1"):
    return withdraw_commission(
        merchant_id=merchant.pk,
        beneficiary="mei",
        amount_fen=amount_fen,
        business_key=key,
        reference="payout",
        now=now,
    )


def test_earned_held_withdrawable_withdrawn(merchant, now):
    accrue(merchant, now)
    assert buckets() == (2000, 0, 0, 0)
    assert mature(now + WEEK - timedelta(seconds=1)) == []
    assert mature(now + WEEK) == [2000]
    assert mature(now + WEEK) == []
    assert buckets() == (0, 2000, 0, 0)
    withdraw(merchant, now, 1500)
    assert buckets() == (0, 500, 0, 1500)
    assert commission_that_differs() == []


def test_an_open_claim_holds_it_even_when_it_is_named(merchant, now):
    """Whoever picked it before the claim came: the command itself looks again."""
    accrue(merchant, now)
    [due] = commissions_to_mature(now=now + WEEK)
    hold(merchant, now, 10000)
    assert not mature_commission(commission_id=due, now=now + WEEK).matured
    assert buckets() == (2000, 0, 0, 0)
    release(merchant, now)
    assert mature_commission(commission_id=due, now=now + WEEK).matured


def test_a21_withdrawn_then_refunded_is_offset_by_the_next_one(merchant, now):
    accrue(merchant, now)
    mature(now + WEEK)
    withdraw(merchant, now, 2000)
    hold(merchant, now, 10000)
    settle(merchant, now, 10000)
    assert buckets() == (0, -2000, 0, 2000)
    accrue(merchant, now, order_no="Q2", amount_fen=1500)
    mature(now + WEEK)
    assert buckets() == (0, -500, 0, 2000)
    with pytest.raises(NotWithdrawable) as refused:
        withdraw(merchant, now, 1, key="payout:2")
    assert refused.value.data == {"asked_fen": 1, "have_fen": 0}
    assert commission_that_differs() == []


def test_a22_each_line_by_its_own_rate(merchant, now):
    accrue(merchant, now, line_no=1, amount_fen=1000)
    accrue(merchant, now, line_no=2, amount_fen=1500)
    assert settle(merchant, now, 10000, line_no=1).reversed_fen == 1000
    assert buckets() == (1500, 0, 0, 0)


def test_pending_is_reduced_by_a_refund(merchant, now):
    accrue(merchant, now, base_fen=16667, amount_fen=1667)
    hold(merchant, now, 8000)
    assert buckets() == (1667, 0, 0, 0), "pending is kept from maturing, not frozen"
    settle(merchant, now, 8000)
    assert buckets() == (867, 0, 0, 0)


def test_an_open_claim_extends_the_hold(merchant, now):
    accrue(merchant, now)
    hold(merchant, now, 5000)
    assert mature(now + 2 * WEEK) == []
    release(merchant, now)
    assert mature(now + 2 * WEEK) == [2000]
    assert commission_matured_while_held() == []


def test_claims_open_when_it_is_earned_extend_the_hold_too(merchant, now):
    accrue(merchant, now, open_claims=["AS1", "AS2"])
    release(merchant, now, "AS1")
    assert mature(now + 2 * WEEK) == []
    settle(merchant, now, 2500, claim="AS2")
    assert mature(now + 2 * WEEK) == [1500]


def test_withdrawable_is_frozen_on_application_and_debited_on_success(merchant, now):
    accrue(merchant, now)
    mature(now + WEEK)
    assert hold(merchant, now, 5000).frozen_fen == 1000
    assert buckets() == (0, 1000, 1000, 0)
    with pytest.raises(NotWithdrawable):
        withdraw(merchant, now, 1001)
    settle(merchant, now, 5000)
    assert buckets() == (0, 1000, 0, 0)
    assert CommissionHold.objects.get().outcome == "settled"


def test_a_lowered_refund_frees_what_was_frozen_beyond_it(merchant, now):
    accrue(merchant, now)
    mature(now + WEEK)
    hold(merchant, now, 10000)
    settle(merchant, now, 2500)
    assert buckets() == (0, 1500, 0, 0)


def test_released_on_any_end_that_is_not_success(merchant, now):
    accrue(merchant, now)
    mature(now + WEEK)
    hold(merchant, now, 10000)
    assert buckets() == (0, 0, 2000, 0)
    assert release(merchant, now).released_fen == 2000
    assert release(merchant, now).replayed
    assert buckets() == (0, 2000, 0, 0)


def test_what_is_withdrawn_already_cannot_be_frozen(merchant, now):
    accrue(merchant, now)
    mature(now + WEEK)
    withdraw(merchant, now, 1800)
    assert hold(merchant, now, 10000).frozen_fen == 200
    assert buckets() == (0, 0, 200, 1800)
    settle(merchant, now, 10000)
    assert buckets() == (0, -1800, 0, 1800)


def test_two_claims_never_freeze_more_than_there_is(merchant, now):
    accrue(merchant, now)
    mature(now + WEEK)
    assert hold(merchant, now, 10000, "AS1").frozen_fen == 2000
    assert hold(merchant, now, 10000, "AS2").frozen_fen == 0
    release(merchant, now, "AS1")
    settle(merchant, now, 10000, "AS2")
    assert buckets() == (0, 0, 0, 0)
    assert commission_that_differs() == []


def test_several_levels_follow_together(merchant, now):
    accrue(merchant, now, beneficiary="mei", level=1, amount_fen=1000)
    accrue(merchant, now, beneficiary="bo", level=2, amount_fen=333)
    assert settle(merchant, now, 5000).reversed_fen == 667
    assert (buckets("mei")[0], buckets("bo")[0]) == (500, 166)


def test_what_was_refunded_before_it_was_earned_is_never_booked(merchant, now):
    assert settle(merchant, now, 2500).reversed_fen == 0
    assert accrue(merchant, now, refunded_fen=2500).amount_fen == 1500
    assert settle(merchant, now, 2500).replayed
    assert buckets() == (1500, 0, 0, 0)


def test_replays_and_refusals_write_nothing(merchant, now):
    accrue(merchant, now)
    mature(now + WEEK)
    hold(merchant, now, 5000)
    settle(merchant, now, 5000)
    withdraw(merchant, now, 100)
    before = buckets(), CommissionEntry.objects.count(), list(Commission.objects.values())
    assert accrue(merchant, now).replayed
    assert hold(merchant, now, 5000).replayed
    assert settle(merchant, now, 5000).replayed
    assert settle(merchant, now, 4000).replayed
    assert withdraw(merchant, now, 100).replayed
    with pytest.raises(CommissionKeyReused):
        withdraw(merchant, now, 101)
    with pytest.raises(CommissionKeyReused):
        accrue(merchant, now, amount_fen=1)
    for bad in ({"amount_fen": -1}, {"amount_fen": 10001}, {"beneficiary": ""}, {"refunded_fen": 10001}):
        with pytest.raises(errors.InvalidInput):
            accrue(merchant, now, order_no="Q9", **bad)
    for amount in (0, -5):
        with pytest.raises(errors.InvalidInput):
            withdraw(merchant, now, amount, key="x")
    with pytest.raises(errors.InvalidInput):
        settle(merchant, now, 10001)
    assert (buckets(), CommissionEntry.objects.count(), list(Commission.objects.values())) == before


def test_races_end_exact(merchant, now):
    for turn in range(3):
        order_no = f"Q{turn}"
        accrue(merchant, now, order_no=order_no)
        mature(now + WEEK)
        start = buckets()[1]
        results = race(
            lambda t=turn: withdraw(merchant, now, 1500, key=f"p{t}a"),
            lambda o=order_no: hold(merchant, now, 10000, order_no=o),
            lambda o=order_no: settle(merchant, now, 10000, order_no=o),
            lambda o=order_no: settle(merchant, now, 10000, order_no=o),
            lambda o=order_no: mature(now + WEEK),
        )
        unexpected = [each for each in results if isinstance(each, Exception) and not isinstance(each, NotWithdrawable)]
        assert not unexpected
        assert commission_that_differs() == []
        assert buckets()[1] + buckets()[3] + buckets()[2] <= start + 1500 * 3


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rate=st.integers(0, 10000),
    base_fen=st.integers(1, 10**6),
    steps=st.lists(st.tuples(st.sampled_from("hrsmw"), st.integers(0, 100)), min_size=3, max_size=12),
)
def test_any_course_of_events_ends_exact(merchant, now, rate, base_fen, steps):
    order_no = f"Q{Commission.objects.count() + 1}"
    amount = base_fen * rate // 10000
    accrue(merchant, now, order_no=order_no, base_fen=base_fen, amount_fen=amount)
    refunded = 0
    for number, (step, percent) in enumerate(steps):
        claim = f"{order_no}-AS{number // 3}"
        if step == "h":
            hold(merchant, now, base_fen * percent // 100, claim, order_no)
        elif step == "r":
            release_commission(merchant_id=merchant.pk, order_no=order_no, line_no=1, after_sales_no=claim, now=now)
        elif step == "s":
            refunded = max(refunded, base_fen * percent // 100)
            settle(merchant, now, refunded, claim, order_no)
        elif step == "m":
            mature(now + WEEK)
        else:
            have = buckets()[1]
            if have > 0:
                withdraw(merchant, now, max(1, have * percent // 100), key=f"{order_no}:{number}")
    assert commission_that_differs() == []
    settle(merchant, now, base_fen, f"{order_no}-last", order_no)
    assert Commission.objects.get(order_no=order_no).reversed_fen == amount
    assert commission_that_differs() == []
