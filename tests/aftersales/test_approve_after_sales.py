"""approve_after_sales: refund only goes to REFUNDING with its money committed, a return waits for the parcel."""

import threading
from datetime import timedelta

import pytest
from django.db import close_old_connections, connection

from aftersales.commands.reject_after_sales import reject_after_sales
from aftersales.drafts import AboveEntitlement, Item
from aftersales.models import AfterSalesLog, AfterSalesOrder, AfterSalesUnit
from aftersales.settlement import ReasonNeeded
from kernel.errors import IdempotencyKeyReused, IllegalTransition, NotFound, Refusal, StillInProgress, VersionConflict
from kernel.models import OutboxEvent
from payments.models import Payment, RefundAttempt, RefundRequest
from tests.aftersales.build import MERCHANT, Line, a_key, a_paid_order, nut_and_tea


def untouched(paid, number: str) -> bool:
    """Nothing of an approval is there: state, log, money."""
    claim = paid.claim(number)
    return (
        claim.approved_goods_fen is None
        and claim.log.count() == claim.version
        and not RefundRequest.objects.filter(owner_no=number).exists()
        and not OutboxEvent.objects.filter(name="after_sales.approved", subject=number).exists()
    )


@pytest.mark.django_db
def test_refund_only_commits_line_and_payment_and_asks_for_the_money(now):
    paid = nut_and_tea(now)
    number = paid.apply(2, reason="changed_mind").after_sales_no
    approved = paid.approve(number)
    assert (approved.status, approved.version) == ("REFUNDING", 2)
    assert (approved.goods_fen, approved.freight_fen) == (16667, 500)
    line = paid.line(2)
    assert (line.goods_committed_fen, line.freight_committed_fen) == (16667, 500)
    assert Payment.objects.get().refund_committed_fen == 17167
    assert [(a.number, a.amount_fen, a.status) for a in RefundAttempt.objects.all()] == [
        (f"{number}-0", 17167, "CREATED")
    ]
    claim = paid.claim(number)
    assert claim.due_at is None
    assert (claim.liability, claim.refunding_at) == ("buyer", now)
    last = claim.log.order_by("-to_version")[0]
    assert (last.command, last.from_status, last.to_status, last.actor_id) == (
        "approve_refund",
        "WAIT_AUDIT",
        "REFUNDING",
        "lin",
    )
    assert OutboxEvent.objects.filter(name="after_sales.approved", subject=number).count() == 1


@pytest.mark.django_db
def test_a_return_waits_for_the_buyers_parcel(now):
    paid = nut_and_tea(now)
    paid.ship(2)
    number = paid.apply(2, type=2).after_sales_no
    approved = paid.approve(number)
    assert (approved.status, approved.goods_fen) == ("WAIT_BUYER_RETURN", None)
    assert paid.claim(number).due_at == now + timedelta(days=7)
    assert not RefundRequest.objects.exists()


@pytest.mark.django_db
def test_the_merchant_lowers_the_amount_with_a_reason(now):
    paid = nut_and_tea(now)
    number = paid.apply(2).after_sales_no
    with pytest.raises(ReasonNeeded):
        paid.approve(number, goods_fen=10000)
    assert untouched(paid, number)
    approved = paid.approve(number, goods_fen=10000, reduction_reason="opened box")
    assert (approved.goods_fen, approved.freight_fen) == (10000, 500)
    claim = paid.claim(number)
    assert (claim.applied_goods_fen, claim.reduction_reason) == (16667, "opened box")
    assert [unit.goods_fen for unit in claim.units.all()] == [10000]


@pytest.mark.django_db
def test_a_lowered_refund_of_kept_goods_becomes_compensation(now):
    paid = nut_and_tea(now)
    paid.ship(1)
    number = paid.apply(1, type=1).after_sales_no
    assert paid.line(1).held_ordinals == [1]
    approved = paid.approve(number, goods_fen=500, reduction_reason="only a dent")
    assert (approved.goods_fen, approved.freight_fen) == (500, 0)
    assert paid.claim(number).hold == "deducts"
    assert paid.line(1).held_ordinals == []


@pytest.mark.django_db
def test_above_the_entitlement_is_refused(now):
    paid = nut_and_tea(now)
    number = paid.apply(2).after_sales_no
    for ask in ({"goods_fen": 16668}, {"freight_fen": 501}):
        with pytest.raises(AboveEntitlement):
            paid.approve(number, **ask)
    assert untouched(paid, number)


@pytest.mark.django_db
def test_the_confirmed_liability_decides_the_freight_of_shipped_goods(now):
    paid = nut_and_tea(now)
    paid.ship(1)
    paid.ship(2)
    tea = paid.apply(2, type=1, reason="not_received").after_sales_no
    assert paid.approve(tea, liability="buyer", liability_reason="signed by himself").freight_fen == 0
    nut = paid.apply(1, type=1, reason="changed_mind").after_sales_no
    assert paid.approve(nut, liability="merchant", liability_reason="our mistake").freight_fen == 500


@pytest.mark.django_db
def test_another_version_is_refused_and_says_who_was_there(now):
    paid = nut_and_tea(now)
    number = paid.apply(2).after_sales_no
    with pytest.raises(VersionConflict) as refused:
        paid.approve(number, version=7)
    assert refused.value.data["version"] == 1
    assert untouched(paid, number)


@pytest.mark.django_db
def test_approved_twice_is_refused_and_replayed_under_the_same_key(now):
    paid = nut_and_tea(now)
    number = paid.apply(2).after_sales_no
    key = a_key(paid.merchant.pk)
    first = paid.approve(number, key=key)
    assert paid.approve(number, key=key).replayed
    assert paid.approve(number, key=key) == type(first)(**{**vars(first), "replayed": True})
    with pytest.raises(IllegalTransition):
        paid.approve(number, version=2)
    with pytest.raises(IdempotencyKeyReused):
        paid.approve(number, key=_other_hash(key))
    assert RefundRequest.objects.count() == 1


def _other_hash(key):
    return type(key)(key.merchant_id, key.key, "0" * 64)


@pytest.mark.django_db
def test_r20_another_merchants_claim_does_not_exist(now):
    paid, other = nut_and_tea(now), nut_and_tea(now)
    number = paid.apply(2).after_sales_no
    mine, paid.merchant = paid.merchant, other.merchant
    with pytest.raises(NotFound):
        paid.approve(number)
    paid.merchant = mine
    assert untouched(paid, number)


@pytest.mark.django_db
def test_a28_zero_succeeds_at_once_without_a_channel(now):
    paid = a_paid_order(now, Line(1000), coupon=1000)
    number = paid.apply(1).after_sales_no
    approved = paid.approve(number)
    assert (approved.status, approved.goods_fen, approved.freight_fen) == ("REFUND_SUCCESS", 0, 0)
    assert not RefundRequest.objects.exists()
    assert paid.line(1).refunded_ordinals == [1]
    assert paid.claim(number).rollbacks.count() == 5


@pytest.mark.django_db(transaction=True)
def test_r9_a_double_click_is_one_claim_and_one_refund(now):
    paid = a_paid_order(now, Line(3000))
    items = [Item(line_no=1, qty=1, type=1, reason_code="quality")]
    click = a_key(paid.merchant.pk, "apply-click")
    first, second = at_once(*[lambda: patiently(lambda: paid.apply_all(items, key=click))] * 2)
    assert first.after_sales == second.after_sales
    assert sorted([first.replayed, second.replayed]) == [False, True]
    number = first.after_sales[0].after_sales_no
    again = a_key(paid.merchant.pk, "approve-click")
    first, second = at_once(*[lambda: patiently(lambda: paid.approve(number, key=again))] * 2)
    assert sorted([first.replayed, second.replayed]) == [False, True]
    assert AfterSalesOrder.objects.count() == 1
    assert list(RefundAttempt.objects.values_list("number", "amount_fen")) == [(f"{number}-0", 3000)]
    assert Payment.objects.get().refund_committed_fen == 3000


@pytest.mark.django_db(transaction=True)
def test_r10_two_approvals_at_once(now):
    paid = nut_and_tea(now)
    number = paid.apply(2).after_sales_no
    outcomes = at_once(lambda: paid.approve(number), lambda: paid.approve(number))
    assert sorted(type(outcome).__name__ for outcome in outcomes) in (
        ["Approved", "IllegalTransition"],
        ["Approved", "ChangedMeanwhile"],
    )
    assert AfterSalesLog.objects.filter(after_sales__after_sales_no=number).count() == 2
    assert OutboxEvent.objects.filter(name="after_sales.approved").count() == 1
    assert Payment.objects.get().refund_committed_fen == 17167
    assert RefundAttempt.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_two_applications_race_for_the_last_unit(now):
    paid = nut_and_tea(now)
    outcomes = at_once(lambda: paid.apply(2), lambda: paid.apply(2))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AppliedItem", "NoSuchUnits"]
    assert AfterSalesOrder.objects.count() == 1
    assert paid.line(2).held_ordinals == [1]


@pytest.mark.django_db(transaction=True)
def test_r1_two_refunds_race_for_the_last_cent(now):
    """60 and 60 of a payment of 100: the line's goods are compensated twice over, the second finds 40 left."""
    paid = a_paid_order(now, Line(5000), Line(5000))
    Payment.objects.update(refund_committed_fen=4000)
    first, second = (paid.apply(n).after_sales_no for n in (1, 2))
    outcomes = at_once(lambda: paid.approve(first), lambda: paid.approve(second))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Approved", "RefundExceedsPaid"]
    assert Payment.objects.get().refund_committed_fen == 9000
    assert sorted(AfterSalesOrder.objects.values_list("status", flat=True)) == ["REFUNDING", "WAIT_AUDIT"]
    assert sum(paid.line(n).goods_committed_fen for n in (1, 2)) == 5000


@pytest.mark.django_db(transaction=True)
def test_a30_two_claims_at_once_the_middle_one_again_then_the_third(now):
    paid = a_paid_order(now, Line(100, qty=3, line_discount=100))
    outcomes = at_once(paid.apply, paid.apply)
    units = {unit.after_sales.after_sales_no: unit for unit in AfterSalesUnit.objects.select_related("after_sales")}
    assert sorted((units[done.after_sales_no].ordinal, done.goods_fen) for done in outcomes) == [(1, 67), (2, 66)]
    middle = next(number for number, unit in units.items() if unit.ordinal == 2)
    reject_after_sales(
        merchant_id=paid.merchant.pk,
        after_sales_no=middle,
        expected_version=1,
        reason="please send a picture",
        by=MERCHANT,
        key=a_key(paid.merchant.pk),
        now=now,
    )
    again, third = paid.apply(), paid.apply()
    assert (again.goods_fen, third.goods_fen) == (66, 67)
    for number in (*(n for n in units if n != middle), again.after_sales_no, third.after_sales_no):
        paid.approve(number)
    assert paid.line(1).goods_committed_fen == Payment.objects.get().refund_committed_fen == 200


def patiently(call):
    """As a client does that is told that its first click is still under way."""
    for _try in range(30):
        try:
            return call()
        except StillInProgress:
            continue
    return call()


def at_once(*calls) -> list:
    """Run each call on a connection of its own, all let go together; results or refusals in order."""
    outcomes: list = [None] * len(calls)
    barrier = threading.Barrier(len(calls))

    def run(index: int, call) -> None:
        close_old_connections()
        try:
            barrier.wait()
            outcomes[index] = call()
        except Refusal as refusal:
            outcomes[index] = refusal
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(index, call)) for index, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes
