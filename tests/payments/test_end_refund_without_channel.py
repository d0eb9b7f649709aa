"""Retry, give up, refund offline: what people may do with a refund, and when they may not."""

import pytest

from kernel import errors, numbers
from payments.commands.abandon_refund import RefundNotDead, abandon_refund
from payments.commands.approve_offline_refund import SecondPersonNeeded, VoucherMissing, approve_offline_refund
from payments.commands.enter_voucher import enter_voucher
from payments.commands.retry_refund import RefundLimitReached, RefundNotRetryable, retry_refund
from payments.gateway import RefundState
from payments.models import Payment, RefundAttempt
from payments.queries import get_refund_standing
from tests.payments.factories import a_paid_payment, a_refund, attempt_of, events, request_of, snapshot
from tests.payments.test_record_refund_fact import standing, tell
from tests.payments.test_request_refund import at_once


@pytest.fixture
def refund(shop):
    return a_refund(shop, a_paid_payment(shop, 26000), 17167, owner_no="AS00000000000001")


@pytest.fixture
def closed(shop, refund):
    tell(shop, refund, RefundState.CLOSED)
    return refund


def named(shop, refund, **other):
    return {"merchant_id": shop.id, "refund_request_id": refund.refund_request_id, "now": shop.now, **other}


def test_retry_after_closed_takes_the_next_number_once(shop, closed):
    retried = retry_refund(**named(shop, closed))
    assert (retried.refund_no, retried.new_number) == ("AS00000000000001-1", True)
    assert retry_refund(**named(shop, closed)).replayed
    assert standing(closed) == ("PENDING", ["CLOSED", "CREATED"], 17167, 0)
    assert Payment.objects.get().refund_count == 2
    assert len(events("refund.requested")) == 2


def test_two_retries_at_once_make_one_number(shop, closed):
    results = at_once(*[lambda: retry_refund(**named(shop, closed))] * 3)
    assert sorted(each.replayed for each in results) == [False, True, True]
    assert RefundAttempt.objects.count() == 2


def test_retry_keeps_to_fifty_numbers(shop, closed):
    Payment.objects.update(refund_count=50)
    before = snapshot()
    with pytest.raises(RefundLimitReached):
        retry_refund(**named(shop, closed))
    assert snapshot() == before


def test_what_is_under_way_or_done_is_not_retried(shop, refund):
    assert retry_refund(**named(shop, refund)).replayed
    tell(shop, refund, RefundState.SUCCESS)
    before = snapshot()
    with pytest.raises(RefundNotRetryable):
        retry_refund(**named(shop, refund))
    with pytest.raises(errors.NotFound):
        retry_refund(merchant_id=numbers.uuid7(), refund_request_id=refund.refund_request_id, now=shop.now)
    assert snapshot() == before


@pytest.mark.parametrize("state", [None, RefundState.PROCESSING, RefundState.ABNORMAL, RefundState.SUCCESS])
def test_nothing_is_given_up_while_money_may_still_arrive(shop, refund, state):
    if state:
        tell(shop, refund, state)
    before = snapshot()
    with pytest.raises(RefundNotDead):
        abandon_refund(**named(shop, refund))
    with pytest.raises(RefundNotDead):
        enter_voucher(**named(shop, refund, voucher="bank 1", person="fen"))
    with pytest.raises(RefundNotDead):
        approve_offline_refund(**named(shop, refund, person="lan"))
    assert snapshot() == before
    assert not get_refund_standing(merchant_id=shop.id, owner_kind="after_sales", owner_no="AS00000000000001").dead


def test_given_up_frees_the_room(shop, closed):
    assert get_refund_standing(merchant_id=shop.id, owner_kind="after_sales", owner_no="AS00000000000001").dead
    assert not abandon_refund(**named(shop, closed)).replayed
    assert abandon_refund(**named(shop, closed)).replayed
    assert standing(closed) == ("ABANDONED", ["CLOSED"], 0, 0)
    a_refund(shop, Payment.objects.get(), 26000)


def test_offline_needs_a_voucher_and_a_second_person(shop, closed):
    before = snapshot()
    with pytest.raises(VoucherMissing):
        approve_offline_refund(**named(shop, closed, person="lan"))
    with pytest.raises(errors.InvalidInput):
        enter_voucher(**named(shop, closed, voucher="  ", person="fen"))
    assert snapshot() == before
    enter_voucher(**named(shop, closed, voucher="bank transfer 20261130-7", person="fen"))
    before = snapshot()
    with pytest.raises(SecondPersonNeeded):
        approve_offline_refund(**named(shop, closed, person="fen"))
    assert snapshot() == before

    done = approve_offline_refund(**named(shop, closed, person="lan"))

    assert done.refund_no == "AS00000000000001-offline"
    assert approve_offline_refund(**named(shop, closed, person="lan")).replayed
    assert standing(closed) == ("SUCCEEDED", ["CLOSED"], 17167, 17167)
    (event,) = events("refund.succeeded")
    assert (event["channel"], event["amount_fen"], event["payment_kind"]) == ("offline", 17167, "order")
    row = request_of(closed)
    assert (row.route, row.voucher_by, row.approved_by) == ("offline", "fen", "lan")


def test_a_late_success_after_an_offline_refund_is_paid_twice_and_said_so(shop, closed):
    enter_voucher(**named(shop, closed, voucher="bank 7", person="fen"))
    approve_offline_refund(**named(shop, closed, person="lan"))
    recorded = tell(shop, closed, RefundState.SUCCESS)
    assert recorded.anomaly == "double_refund"
    assert attempt_of(closed).status == "SUCCESS"
    assert len(events("refund.succeeded")) == 1
