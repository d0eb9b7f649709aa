"""Parked refunds: asked about by themselves, seldomer and seldomer, and never sent under a new number."""

from datetime import timedelta

import pytest
from django.db import connection

from payments import tasks
from payments.commands.apply_abnormal_refund import AbnormalRefundRefused, apply_abnormal_refund
from payments.commands.pick_parked_refunds import pick_parked_refunds
from payments.models import RefundAttempt, RefundFact
from tests.payments.channel import moment, newest, request, step
from tests.payments.test_request_refund import at_once


@pytest.fixture
def parked(trader):
    payment = trader.paid(5000)
    refund = trader.refund(payment, 3000)
    step(refund)
    step(refund)
    trader.sim.settle(refund.refund_no, "ABNORMAL")
    assert step(refund).status == "ABNORMAL"
    assert (newest(refund).queries, newest(refund).picked_at) == (0, None)
    return refund


def later(days: float) -> None:
    """As if so many days had gone by."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE refund_attempt SET finished_at = finished_at - %(d)s, picked_at = picked_at - %(d)s",
            {"d": timedelta(days=days)},
        )


def test_a_lost_callback_of_a_parked_refund_is_found_by_the_daily_question(trader, parked):
    assert tasks.ask_parked_refunds() == 0, "not on the day it was parked"
    later(1)
    trader.sim.settle(parked.refund_no)
    (due,) = pick_parked_refunds()
    assert tasks.ask_parked_refund(str(due)) == "SUCCESS"
    assert request(parked).status == "SUCCEEDED"
    later(30)
    assert pick_parked_refunds() == [], "done is done"


def test_the_questions_become_seldom_and_end_after_a_year(trader, parked):
    asked_on, day = [], 0
    for day in range(1, 40):
        later(1)
        for due in pick_parked_refunds():
            tasks.ask_parked_refund(str(due))
            asked_on.append(day)
    assert asked_on == [1, 2, 4, 8, 15, 22, 29, 36]
    assert newest(parked).status == "ABNORMAL"
    assert RefundFact.objects.filter(source="query", state="ABNORMAL", outcome="same").count() == 8
    assert trader.at_channel(parked_payment(parked)) == [(parked.refund_no, 3000, "ABNORMAL")]
    later(365)
    assert pick_parked_refunds() == []


def test_an_early_run_costs_no_day_and_two_runs_ask_once(parked):
    later(0.99)
    results = at_once(pick_parked_refunds, pick_parked_refunds, pick_parked_refunds)
    assert sorted(len(each) for each in results) == [0, 0, 1]
    assert pick_parked_refunds() == []


def test_a_page_has_a_limit(parked):
    later(2)
    assert pick_parked_refunds(limit=0) == []
    assert len(pick_parked_refunds(limit=1)) == 1


def test_what_was_sent_on_is_asked_about_as_usual_and_parked_again_counts_anew(trader, parked):
    later(1)
    pick_parked_refunds()
    asked = {
        "merchant_id": trader.merchant_id,
        "refund_request_id": parked.refund_request_id,
        "to": "MERCHANT_BANK_CARD",
        "person": "fen",
    }
    trader.sim.fault("wechat.abnormal_refund", "refuse", status=400, code="INVALID_REQUEST", message="no")
    with pytest.raises(AbnormalRefundRefused):
        apply_abnormal_refund(**asked, now=moment())
    assert newest(parked).status == "ABNORMAL"
    assert apply_abnormal_refund(**asked, now=moment()).status == "PROCESSING"
    assert pick_parked_refunds() == []
    trader.sim.settle(parked.refund_no, "ABNORMAL")
    assert step(parked).status == "ABNORMAL"
    assert (newest(parked).queries, newest(parked).picked_at, newest(parked).seq) == (0, None, 0)
    assert RefundAttempt.objects.count() == 1


def parked_payment(refund):
    return newest(refund).payment
