import threading

import pytest
from django.db import connection

from kernel import errors
from kernel.transactions import unit_of_work
from payments.commands.open_payment import open_payment
from payments.commands.request_refund import (
    PaymentNotPaid,
    RefundAlreadyRequested,
    RefundExceedsPaid,
    request_refund,
)
from payments.models import Payment, RefundAttempt, RefundRequest
from tests.payments.factories import a_paid_payment, a_refund, a_shop, attempt_of, events, request_of, snapshot


def test_takes_room_stores_the_number_and_wakes_a_worker(shop):
    payment = a_paid_payment(shop, 26000)

    refund = a_refund(shop, payment, 17167, owner_no="AS00000000000001")

    payment.refresh_from_db()
    assert (payment.refund_committed_fen, payment.refunded_fen, payment.refund_count) == (17167, 0, 1)
    attempt = attempt_of(refund)
    assert (attempt.number, attempt.amount_fen, attempt.status) == ("AS00000000000001-0", 17167, "CREATED")
    assert (request_of(refund).status, request_of(refund).attempts) == ("PENDING", 1)
    assert events("refund.requested") == [
        {"refund_request_id": str(refund.refund_request_id), "attempt_id": str(attempt.id)}
    ]


def test_the_same_owner_again_is_a_replay(shop):
    payment = a_paid_payment(shop)
    first = a_refund(shop, payment, 3000, owner_no="AS00000000000001")
    before = snapshot()

    again = a_refund(shop, payment, 3000, owner_no="AS00000000000001")

    assert again.replayed
    assert (again.refund_request_id, again.refund_no) == (first.refund_request_id, first.refund_no)
    assert snapshot() == before


@pytest.mark.parametrize(
    ("amount_fen", "owner_no", "refusal"),
    [
        (6001, "AS00000000000002", RefundExceedsPaid),
        (0, "AS00000000000002", errors.InvalidInput),
        (-100, "AS00000000000002", errors.InvalidInput),
        (100, "AS|0000000000002", errors.InvalidInput),
        (5000, "AS00000000000001", RefundAlreadyRequested),
    ],
)
def test_refusals_write_nothing(shop, amount_fen, owner_no, refusal):
    payment = a_paid_payment(shop, 10000)
    a_refund(shop, payment, 4000, owner_no="AS00000000000001")
    before = snapshot()

    with pytest.raises(refusal):
        a_refund(shop, payment, amount_fen, owner_no=owner_no)

    assert snapshot() == before


def test_a_refusal_names_what_is_left(shop):
    """It is the command that refuses, with figures: the constraint behind it knows none."""
    payment = a_paid_payment(shop, 10000)
    a_refund(shop, payment, 4000, owner_no="AS00000000000001")

    with pytest.raises(RefundExceedsPaid) as caught:
        a_refund(shop, payment, 6001, owner_no="AS00000000000002")

    assert caught.value.data == {"asked_fen": 6001, "left_fen": 6000, "paid_fen": 10000}


def test_an_unpaid_payment_has_nothing_to_refund(shop):
    opened = open_payment(merchant_id=shop.id, order_no="Q00000000000009", channel="wechat", amount_fen=1, now=shop.now)
    before = snapshot()
    with pytest.raises(PaymentNotPaid):
        a_refund(shop, Payment.objects.get(id=opened.payment_id), 1)
    assert snapshot() == before


def test_another_merchants_payment_does_not_exist(shop, now):
    stranger = a_shop(now, code="stranger")
    payment = a_paid_payment(shop)
    with pytest.raises(errors.NotFound):
        a_refund(stranger, payment, 1)


def test_r2_granted_in_parts_never_above_what_was_paid(shop):
    payment = a_paid_payment(shop, 10000)
    a_refund(shop, payment, 6000)
    with pytest.raises(RefundExceedsPaid) as refused:
        a_refund(shop, payment, 6000)
    assert refused.value.data["left_fen"] == 4000
    a_refund(shop, payment, 4000)
    payment.refresh_from_db()
    assert payment.refund_committed_fen == 10000


def at_once(*calls):
    """Run the calls at the same moment on connections of their own; their results or refusals."""
    gate = threading.Barrier(len(calls))
    results: list = [None] * len(calls)

    def run(index, call):
        try:
            gate.wait(10)
            results[index] = call()
        except Exception as error:
            results[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def test_r1_two_refunds_at_the_same_moment_sum_to_what_was_paid(shop):
    for _ in range(5):
        payment = a_paid_payment(shop, 10000)
        results = at_once(lambda p=payment: a_refund(shop, p, 6000), lambda p=payment: a_refund(shop, p, 6000))
        refused = [each for each in results if isinstance(each, RefundExceedsPaid)]
        assert len(refused) == 1, results
        payment.refresh_from_db()
        assert (payment.refund_committed_fen, payment.refund_count) == (6000, 1)
        assert RefundRequest.objects.filter(payment=payment).count() == 1


def test_r9_a_double_click_makes_one_request(shop):
    for turn in range(5):
        payment = a_paid_payment(shop, 10000)
        owner_no = f"AS-{turn:06d}"
        results = at_once(*[lambda p=payment, o=owner_no: a_refund(shop, p, 3000, owner_no=o)] * 2)
        made = [each for each in results if not isinstance(each, Exception)]
        assert made, results
        assert all(not isinstance(each, Exception) or isinstance(each, RefundAlreadyRequested) for each in results), (
            results
        )
        payment.refresh_from_db()
        assert payment.refund_committed_fen == 3000
        assert RefundAttempt.objects.filter(payment=payment).count() == 1


def test_r17_the_51st_refund_is_stopped_before_the_call(shop):
    payment = a_paid_payment(shop, 10000)
    for turn in range(50):
        a_refund(shop, payment, 100, owner_no=f"AS-{turn:06d}")

    refund = a_refund(shop, payment, 100, owner_no="AS-000050")

    assert (refund.status, refund.route, refund.route_reason, refund.refund_no) == (
        "FAILED",
        "offline",
        "REFUND_COUNT",
        "",
    )
    assert not RefundAttempt.objects.filter(request_id=refund.refund_request_id).exists()
    assert [(each["code"], each["dead"]) for each in events("refund.failed")] == [("REFUND_COUNT", True)]
    payment.refresh_from_db()
    assert (payment.refund_committed_fen, payment.refund_count) == (5100, 50)


def test_r17_a_payment_older_than_365_days_is_stopped_before_the_call(shop):
    from datetime import timedelta

    payment = a_paid_payment(shop, 10000, paid_at=shop.now - timedelta(days=366))
    refund = a_refund(shop, payment, 100)
    assert (refund.status, refund.route, refund.route_reason) == ("FAILED", "offline", "PAYMENT_TOO_OLD")
    assert a_refund(shop, payment, 100, owner_no=request_of(refund).owner_no).replayed


def test_joins_the_callers_transaction(shop):
    payment = a_paid_payment(shop, 10000)
    before = snapshot()
    with pytest.raises(ZeroDivisionError), unit_of_work(now=shop.now):
        request_refund(
            merchant_id=shop.id,
            payment_id=payment.id,
            owner_kind="after_sales",
            owner_no="AS00000000000001",
            amount_fen=100,
            now=shop.now,
        )
        raise ZeroDivisionError
    assert snapshot() == before
