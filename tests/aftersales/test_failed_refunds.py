"""A refund that failed: again under the right number, offline or given up by two people; whole orders."""

import pytest

from aftersales.actors import By
from aftersales.commands.refund_whole_order import refund_whole_order
from aftersales.commands.reject_failed import reject_failed
from aftersales.commands.retry_after_sales import retry_after_sales
from aftersales.commands.retry_rollback import RollbackNotDead, retry_rollback
from aftersales.commands.settle_offline import settle_offline
from aftersales.models import Actor, AfterSalesOrder
from kernel.errors import IllegalTransition, VersionConflict
from kernel.models import InboxMessage
from ledgers.models import SalesEntry
from payments.commands.abandon_refund import RefundNotDead
from payments.commands.approve_offline_refund import SecondPersonNeeded, VoucherMissing
from payments.commands.retry_refund import RefundIsAbnormal
from payments.models import Payment, RefundAttempt, RefundRequest
from tests.aftersales.build import Line, a_key, a_paid_order, deliver, nut_and_tea

pytestmark = pytest.mark.django_db

ANNA, BEN = By(Actor.PLATFORM, "anna"), By(Actor.PLATFORM, "ben")


@pytest.fixture
def paid(now):
    return nut_and_tea(now)


def failed(paid, state: str = "CLOSED") -> str:
    number = paid.apply(2).after_sales_no
    paid.approve(number)
    paid.channel_says(f"{number}-0", state)
    assert paid.claim(number).status == "REFUND_FAILED"
    return number


def retry(paid, number: str, version: int = 3):
    return retry_after_sales(
        merchant_id=paid.merchant.pk,
        after_sales_no=number,
        expected_version=version,
        by=ANNA,
        key=a_key(paid.merchant.pk),
        now=paid.now,
    )


def offline(paid, number: str, by: By, voucher: str = ""):
    return settle_offline(
        merchant_id=paid.merchant.pk,
        after_sales_no=number,
        voucher=voucher,
        by=by,
        key=a_key(paid.merchant.pk),
        now=paid.now,
    )


def give_up(paid, number: str, by: By, reason: str = "", version: int = 3):
    return reject_failed(
        merchant_id=paid.merchant.pk,
        after_sales_no=number,
        expected_version=version,
        reason=reason,
        by=by,
        key=a_key(paid.merchant.pk),
        now=paid.now,
    )


def test_r4_closed_gets_the_next_number_and_ends_once(paid):
    number = failed(paid)
    done = retry(paid, number)
    assert (done.status, done.refund_nos) == ("REFUNDING", [f"{number}-1"])
    paid.channel_says(f"{number}-1")
    assert paid.claim(number).status == "REFUND_SUCCESS"
    assert list(RefundAttempt.objects.order_by("seq").values_list("number", "status")) == [
        (f"{number}-0", "CLOSED"),
        (f"{number}-1", "SUCCESS"),
    ]
    assert Payment.objects.get().refunded_fen == 17167


def test_r18_abnormal_never_gets_a_new_number(paid):
    number = failed(paid, "ABNORMAL")
    with pytest.raises(RefundIsAbnormal):
        retry(paid, number)
    assert paid.claim(number).status == "REFUND_FAILED"
    assert RefundAttempt.objects.count() == 1


def test_a_retry_at_another_version_or_state_is_refused(paid):
    number = failed(paid)
    with pytest.raises(VersionConflict):
        retry(paid, number, version=2)
    retry(paid, number)
    with pytest.raises(IllegalTransition):
        retry(paid, number, version=4)


def test_offline_needs_a_voucher_and_another_person(paid):
    number = failed(paid)
    with pytest.raises(VoucherMissing):
        offline(paid, number, BEN)
    assert offline(paid, number, ANNA, "bank slip 77").step == "voucher"
    with pytest.raises(SecondPersonNeeded):
        offline(paid, number, ANNA)
    assert paid.claim(number).status == "REFUND_FAILED"
    assert offline(paid, number, BEN).step == "approved"
    deliver(paid.now)
    claim = paid.claim(number)
    assert (claim.status, claim.refund_channel) == ("REFUND_SUCCESS", "offline")
    assert claim.rollbacks.filter(state="DONE").count() == 5


@pytest.mark.parametrize("act", [lambda p, n: offline(p, n, ANNA, "slip"), lambda p, n: _both_give_up(p, n)])
def test_nothing_is_settled_or_given_up_while_the_money_may_still_arrive(paid, act):
    number = failed(paid, "ABNORMAL")
    with pytest.raises(RefundNotDead):
        act(paid, number)
    assert paid.claim(number).status == "REFUND_FAILED"


def _both_give_up(paid, number):
    give_up(paid, number, ANNA, "cannot be paid")
    give_up(paid, number, BEN)


def test_giving_up_takes_two_people_and_frees_units_and_money(paid):
    number = failed(paid)
    assert give_up(paid, number, ANNA, "cannot be paid").step == "asked"
    with pytest.raises(SecondPersonNeeded):
        give_up(paid, number, ANNA)
    done = give_up(paid, number, BEN)
    assert (done.status, done.step) == ("REJECTED", "rejected")
    line = paid.line(2)
    assert (line.goods_committed_fen, line.freight_committed_fen, line.held_ordinals) == (0, 0, [])
    assert Payment.objects.get().refund_committed_fen == 0
    assert paid.apply(2).ordinals == [1]


def test_a_late_success_after_the_claim_was_given_up_moves_nothing_here(paid):
    number = failed(paid)
    _both_give_up(paid, number)
    paid.channel_says(f"{number}-0")
    assert paid.claim(number).status == "REJECTED"
    assert not paid.claim(number).rollbacks.exists()


def test_a_whole_order_goes_back_once(paid):
    first = refund_whole_order(merchant_id=paid.merchant.pk, order_no=paid.order.order_no, reason="x", now=paid.now)
    again = refund_whole_order(merchant_id=paid.merchant.pk, order_no=paid.order.order_no, reason="x", now=paid.now)
    assert len(first.after_sales) == 2
    assert again.replayed
    assert Payment.objects.get().refund_committed_fen == 26000
    assert set(AfterSalesOrder.objects.values_list("status", "origin", "goods_state")) == {
        ("REFUNDING", "system", "unshipped")
    }


def test_r16_three_lines_at_once_are_three_numbers_in_the_queue_of_their_payment(now):
    paid = a_paid_order(now, Line(1000), Line(2000), Line(3000))
    refund_whole_order(merchant_id=paid.merchant.pk, order_no=paid.order.order_no, reason="x", now=now)
    assert list(RefundAttempt.objects.order_by("number").values_list("amount_fen", "status")) == [
        (1000, "CREATED"),
        (2000, "CREATED"),
        (3000, "CREATED"),
    ]


def test_r17_the_51st_refund_of_a_payment_stops_before_the_channel(paid):
    Payment.objects.update(refund_count=50)
    number = paid.apply(2).after_sales_no
    paid.approve(number)
    deliver(paid.now)
    assert paid.claim(number).status == "REFUND_FAILED"
    assert RefundRequest.objects.get().route_reason == "REFUND_COUNT"
    assert not RefundAttempt.objects.exists()


def test_a_dead_rollback_is_woken_by_a_person(paid, now):
    number = paid.apply(2).after_sales_no
    paid.approve(number)
    paid.channel_says(f"{number}-0")
    with pytest.raises(RollbackNotDead):
        retry_rollback(merchant_id=paid.merchant.pk, after_sales_no=number, now=now)
    mine = paid.claim(number).rollbacks.get(system="points")
    type(mine).objects.filter(pk=mine.pk).update(state="PENDING", done_at=None)
    InboxMessage.objects.filter(event_id=mine.event_id).update(state="DEAD", done_at=None)
    assert retry_rollback(merchant_id=paid.merchant.pk, after_sales_no=number, now=now).systems == ["points"]
    assert InboxMessage.objects.get(event_id=mine.event_id).state == "FAILED"


def test_a_rollback_whose_row_is_missing_is_asked_for_again_and_takes_effect_once(paid, now):
    number = paid.apply(2).after_sales_no
    paid.approve(number)
    paid.channel_says(f"{number}-0")
    claim = paid.claim(number)
    before = dict(claim.rollbacks.values_list("system", "result"))
    sales = SalesEntry.objects.count()
    claim.rollbacks.filter(system__in=["sales", "coupon"]).delete()
    again = retry_rollback(merchant_id=paid.merchant.pk, after_sales_no=number, now=now)
    assert again.systems == ["coupon", "sales"]
    deliver(now)
    assert dict(claim.rollbacks.filter(state="DONE").values_list("system", "result")) == before
    assert SalesEntry.objects.count() == sales, "the ledger knew it by its business key"
    with pytest.raises(RollbackNotDead):
        retry_rollback(merchant_id=paid.merchant.pk, after_sales_no=number, now=now)


def test_no_rollback_is_asked_for_before_the_refund(paid, now):
    number = paid.apply(2).after_sales_no
    paid.approve(number)
    with pytest.raises(RollbackNotDead):
        retry_rollback(merchant_id=paid.merchant.pk, after_sales_no=number, now=now)
    assert not paid.claim(number).rollbacks.exists()
