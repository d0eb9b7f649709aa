"""Sending a refund over the real wire: what is claimed, what an answer moves, what no answer proves."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from kernel import errors, numbers
from payments.accounts import pace_of
from payments.commands.query_refund import query_refund
from payments.commands.record_refund_fact import record_refund_fact
from payments.commands.retry_refund import RefundIsAbnormal, retry_refund
from payments.commands.send_refund import _claim, send_refund
from payments.gateway import RefundState
from payments.models import Payment, RefundAttempt, RefundFact, RefundRequest
from tests.payments.channel import make_due, moment, newest, request, step
from tests.payments.factories import events, said, snapshot
from tests.payments.test_request_refund import at_once


def facts():
    return list(RefundFact.objects.order_by("id").values_list("source", "state", "outcome"))


def test_accepted_is_not_refunded(trader):
    payment = trader.paid(26000)
    refund = trader.refund(payment, 17167)

    sent = send_refund(attempt_id=newest(refund).id, now=moment())

    assert (sent.result, sent.status) == ("sent", "PROCESSING")
    attempt = newest(refund)
    assert (attempt.sends, attempt.last_error, bool(attempt.channel_refund_id)) == (1, "", True)
    assert trader.at_channel(payment) == [(refund.refund_no, 17167, "PROCESSING")]
    assert request(refund).status == "PENDING"
    assert events("refund.succeeded") == []
    assert facts() == [("answer", "PROCESSING", "moved")]


def test_a_query_ends_it(trader):
    payment = trader.paid(26000)
    refund = trader.refund(payment, 17167)
    step(refund)
    trader.sim.settle(refund.refund_no)

    asked = step(refund)

    assert (asked.step, asked.status) == ("query", "SUCCESS")
    payment.refresh_from_db()
    assert (payment.refunded_fen, request(refund).status) == (17167, "SUCCEEDED")


def test_never_inside_a_transaction(trader):
    refund = trader.refund(trader.paid(), 100)
    before = snapshot()
    for call in (send_refund, query_refund):
        with pytest.raises(RuntimeError), transaction.atomic():
            call(attempt_id=newest(refund).id, now=moment())
    assert snapshot() == before


def test_an_attempt_that_is_not_there(trader):
    for call in (send_refund, query_refund):
        with pytest.raises(errors.NotFound):
            call(attempt_id=numbers.uuid7(), now=moment())


@pytest.mark.parametrize(
    "fault", ["timeout_after", "reset_after", "server_error_after", "unsigned", "forged", "stale", "garbage"]
)
def test_r3_accepted_but_unanswered_keeps_the_number_and_is_one_refund(trader, fault):
    payment = trader.paid(5000)
    refund = trader.refund(payment, 5000)
    trader.sim.fault("wechat.refund", fault)

    assert step(refund).status == "SENT"
    attempt = newest(refund)
    assert (attempt.seq, attempt.unanswered_sends) == (0, 1)
    assert attempt.last_error

    assert step(refund).step == "query"
    assert newest(refund).status == "PROCESSING"
    trader.sim.settle(refund.refund_no)
    assert step(refund).status == "SUCCESS"
    assert trader.at_channel(payment) == [(refund.refund_no, 5000, "SUCCESS")]
    assert RefundAttempt.objects.count() == 1


@pytest.mark.parametrize("fault", ["timeout", "reset", "server_error"])
def test_lost_before_acceptance_is_sent_again_under_the_same_number(trader, fault):
    payment = trader.paid(5000)
    refund = trader.refund(payment, 3000)
    trader.sim.fault("wechat.refund", fault)

    assert step(refund).status == "SENT"
    assert trader.at_channel(payment) == []
    asked = step(refund)
    assert (asked.step, newest(refund).resend) == ("query", True)
    assert (step(refund).step, newest(refund).status) == ("send", "PROCESSING")
    assert trader.at_channel(payment) == [(refund.refund_no, 3000, "PROCESSING")]
    assert (newest(refund).sends, newest(refund).seq) == (2, 0)


def test_a_worker_that_dies_between_claim_and_answer(trader):
    """The claim is committed, the call never made: the row says when to ask, and the same number goes out."""
    payment = trader.paid(5000)
    refund = trader.refund(payment, 3000)
    claimed = _claim(newest(refund), pace=pace_of(trader.account), now=moment())
    assert isinstance(claimed, int)
    assert (newest(refund).status, newest(refund).unanswered_sends) == ("SENT", 1)

    assert step(refund).step == "query"
    assert step(refund).step == "send"
    assert trader.at_channel(payment) == [(refund.refund_no, 3000, "PROCESSING")]


def test_r8_the_task_delivered_four_times_at_once_sends_once(trader):
    for _ in range(3):
        payment = trader.paid(5000)
        refund = trader.refund(payment, 3000)
        attempt_id = newest(refund).id
        results = at_once(*[lambda a=attempt_id: send_refund(attempt_id=a, now=moment())] * 4)
        assert sorted(each.result for each in results) == ["not_due", "not_due", "not_due", "sent"], results
        assert len(trader.sim.get(f"refunds/{refund.refund_no}")["calls"]) == 1
        assert newest(refund).sends == 1


@pytest.mark.parametrize("fault", ["not_enough", "rate_limited"])
def test_not_now_means_the_same_number_later(trader, fault):
    payment = trader.paid(5000)
    refund = trader.refund(payment, 3000)
    trader.sim.fault("wechat.refund", fault)
    assert step(refund).status == "SENT"
    attempt = newest(refund)
    assert (attempt.resend, attempt.unanswered_sends, attempt.seq) == (True, 0, 0)
    assert request(refund).status == "PENDING"
    assert step(refund).step == "send"
    assert trader.at_channel(payment) == [(refund.refund_no, 3000, "PROCESSING")]


def test_not_now_waits_longer_each_time(trader):
    trader.pace(retry_wait_seconds=[100, 1000])
    refund = trader.refund(trader.paid(5000), 3000)
    trader.sim.fault("wechat.refund", "not_enough", times=3)
    for wait in (100, 1000, 1000):
        make_due(refund)
        step(refund)
        left = newest(refund).next_action_at - moment()
        assert timedelta(seconds=wait - 5) < left <= timedelta(seconds=wait)


def test_a_definite_no_to_the_only_send_is_a_dead_number(trader):
    payment = trader.paid(5000)
    refund = trader.refund(payment, 3000)
    trader.sim.fault("wechat.refund", "user_abnormal")

    assert step(refund).status == "REFUSED"

    assert (request(refund).status, request(refund).failure_code) == ("FAILED", "USER_ACCOUNT_ABNORMAL")
    (failed,) = events("refund.failed")
    assert (failed["code"], failed["dead"]) == ("USER_ACCOUNT_ABNORMAL", True)
    payment.refresh_from_db()
    assert payment.refund_committed_fen == 3000, "the claim is still alive and keeps its room"

    retried = retry_refund(merchant_id=trader.merchant_id, refund_request_id=refund.refund_request_id, now=moment())
    assert (retried.refund_no, retried.new_number) == (refund.refund_no, False)
    step(refund)
    assert trader.at_channel(payment) == [(refund.refund_no, 3000, "PROCESSING")]


def test_a_no_after_an_unanswered_send_proves_nothing(trader):
    payment = trader.paid(5000)
    refund = trader.refund(payment, 3000)
    trader.sim.fault("wechat.refund", "timeout")
    step(refund), step(refund)
    trader.sim.fault("wechat.refund", "user_abnormal")
    assert step(refund).step == "send"
    attempt = newest(refund)
    assert (attempt.status, attempt.unanswered_sends) == ("SENT", 2)
    assert request(refund).status == "PENDING"
    assert [each["kind"] for each in events("refund.anomaly")] == ["refund_refused_without_proof"]
    assert events("refund.failed") == []


def test_a_number_that_carries_other_parameters_alerts_a_person(trader):
    payment = trader.paid(5000)
    refund = trader.refund(payment, 3000)
    trader.sim.fault("wechat.refund", "refuse", status=400, code="INVALID_REQUEST", message="金额不一致")
    assert step(refund).status == "SENT"
    assert [each["kind"] for each in events("refund.anomaly")] == ["refund_number_has_other_parameters"]
    assert newest(refund).seq == 0


def test_r14_an_answer_with_another_amount_moves_nothing(trader):
    payment = trader.paid(5000)
    refund = trader.refund(payment, 3000)
    trader.sim.fault("wechat.refund", "wrong_amount", amount_fen=2999)
    step(refund)
    assert (newest(refund).status, request(refund).status) == ("SENT", "PENDING")
    (anomaly,) = events("refund.anomaly")
    assert (anomaly["ours"]["amount_fen"], anomaly["theirs"]["amount_fen"]) == (3000, 2999)


def test_r4_closed_is_asked_about_then_the_next_number_goes_out(trader):
    payment = trader.paid(26000)
    refund = trader.refund(payment, 16667)
    step(refund)
    trader.sim.settle(refund.refund_no, "CLOSED")
    assert step(refund).status == "CLOSED"
    assert request(refund).status == "FAILED"
    assert [number for number, *_ in trader.at_channel(payment)] == [f"{request(refund).owner_no}-0"]

    retried = retry_refund(merchant_id=trader.merchant_id, refund_request_id=refund.refund_request_id, now=moment())
    assert (retried.refund_no, retried.new_number) == (f"{request(refund).owner_no}-1", True)
    step(refund)
    trader.sim.settle(retried.refund_no)
    step(refund)

    assert trader.at_channel(payment) == [
        (f"{request(refund).owner_no}-0", 16667, "CLOSED"),
        (f"{request(refund).owner_no}-1", 16667, "SUCCESS"),
    ]
    calls = trader.sim.get(f"refunds/{refund.refund_no}")["calls"]
    assert calls[-1]["operation"] == "wechat.query_refund", "asked once more before the new number went out"
    assert (request(refund).status, request(refund).refund_no) == ("SUCCEEDED", retried.refund_no)
    payment.refresh_from_db()
    assert (payment.refunded_fen, payment.refund_count) == (16667, 2)


def test_a_number_we_believed_closed_but_the_channel_paid_holds_the_next_one_back(trader):
    payment = trader.paid(5000)
    refund = trader.refund(payment, 3000)
    step(refund)
    attempt = newest(refund)
    record_refund_fact(
        merchant_id=trader.merchant_id,
        said=said(attempt, RefundState.CLOSED, now=moment()),
        source="notify",
        now=moment(),
    )
    retry_refund(merchant_id=trader.merchant_id, refund_request_id=refund.refund_request_id, now=moment())

    assert step(refund).result == "held", "the channel still says PROCESSING"
    trader.sim.settle(refund.refund_no)
    make_due(refund)
    assert step(refund).result == "withdrawn"

    assert trader.at_channel(payment) == [(refund.refund_no, 3000, "SUCCESS")]
    assert request(refund).status == "SUCCEEDED"
    assert list(RefundAttempt.objects.order_by("seq").values_list("status", flat=True)) == ["SUCCESS", "REFUSED"]


def test_the_next_number_waits_while_the_channel_does_not_answer(trader):
    payment = trader.paid(5000)
    refund = trader.refund(payment, 3000)
    step(refund)
    trader.sim.settle(refund.refund_no, "CLOSED")
    step(refund)
    retry_refund(merchant_id=trader.merchant_id, refund_request_id=refund.refund_request_id, now=moment())
    trader.sim.fault("wechat.query_refund", "timeout")
    assert step(refund).result == "held"
    assert len(trader.at_channel(payment)) == 1


def test_r18_abnormal_never_takes_a_new_number(trader):
    payment = trader.paid(5000)
    refund = trader.refund(payment, 3000)
    step(refund)
    trader.sim.settle(refund.refund_no, "ABNORMAL")
    assert step(refund).status == "ABNORMAL"
    with pytest.raises(RefundIsAbnormal):
        retry_refund(merchant_id=trader.merchant_id, refund_request_id=refund.refund_request_id, now=moment())
    assert step(refund) is None
    assert trader.at_channel(payment) == [(refund.refund_no, 3000, "ABNORMAL")]
    trader.sim.settle(refund.refund_no)
    assert query_refund(attempt_id=newest(refund).id, forced=True, now=moment()).status == "SUCCESS"
    assert request(refund).status == "SUCCEEDED"


def test_r16_three_refunds_of_one_payment_keep_the_channels_pause(trader):
    trader.pace(refund_spacing_seconds=60)
    payment = trader.paid(26000)
    refunds = [trader.refund(payment, 1000 + index) for index in range(3)]

    assert [step(each).result for each in refunds] == ["sent", "waiting", "waiting"]

    payment.refresh_from_db()
    for waiting in refunds[1:]:
        attempt = newest(waiting)
        assert attempt.status == "CREATED"
        assert abs((attempt.next_action_at - payment.next_refund_at).total_seconds()) < 1
    assert len(trader.at_channel(payment)) == 1
    for turn in (1, 2):
        with connection.cursor() as cursor:
            cursor.execute("UPDATE payment SET next_refund_at = next_refund_at - interval '61 seconds'")
        for each in refunds:
            make_due(each)
        step(refunds[1]), step(refunds[2])
        assert len(trader.at_channel(payment)) == turn + 1
    assert sorted(fen for _, fen, _ in trader.at_channel(payment)) == [1000, 1001, 1002], "none lost"


def test_r16_a_race_for_the_pause_has_one_winner(trader):
    trader.pace(refund_spacing_seconds=60)
    payment = trader.paid(26000)
    refunds = [trader.refund(payment, 1000 + index) for index in range(4)]
    results = at_once(*[lambda r=each: step(r) for each in refunds])
    assert sorted(each.result for each in results) == ["sent", "waiting", "waiting", "waiting"]
    assert len(trader.at_channel(payment)) == 1


def test_r17_a_payment_that_grew_too_old_while_it_waited(trader):
    payment = trader.paid(5000)
    refund = trader.refund(payment, 3000)
    Payment.objects.filter(id=payment.id).update(paid_at=moment() - timedelta(days=366))
    assert step(refund).result == "stopped"
    assert trader.at_channel(payment) == []
    row = RefundRequest.objects.get(id=refund.refund_request_id)
    assert (row.status, row.route, row.route_reason) == ("FAILED", "offline", "PAYMENT_TOO_OLD")
    assert [(each["code"], each["dead"]) for each in events("refund.failed")] == [("PAYMENT_TOO_OLD", True)]


def test_the_time_to_ask_comes_from_the_last_send(trader):
    trader.pace(query_after_seconds=600, query_backoff_seconds=[60, 300, 600, 1200, 1800])
    refund = trader.refund(trader.paid(5000), 3000)
    trader.sim.fault("wechat.refund", "timeout_after")
    step(refund)
    attempt = newest(refund)
    assert attempt.next_action_at - attempt.sent_at == timedelta(seconds=600)
    for minutes in (1, 5, 10, 20, 30, 30):
        make_due(refund)
        step(refund)
        left = newest(refund).next_action_at - moment()
        assert timedelta(seconds=minutes * 60 - 5) < left <= timedelta(minutes=minutes), minutes


def test_a_parked_refund_is_sent_on_under_its_own_number(trader):
    from payments.commands.apply_abnormal_refund import RefundNotAbnormal, apply_abnormal_refund

    payment = trader.paid(5000)
    refund = trader.refund(payment, 3000)
    step(refund)
    asked = {
        "merchant_id": trader.merchant_id,
        "refund_request_id": refund.refund_request_id,
        "to": "MERCHANT_BANK_CARD",
        "person": "fen",
        "now": moment(),
    }
    before = snapshot()
    with pytest.raises(RefundNotAbnormal):
        apply_abnormal_refund(**asked)
    assert snapshot() == before
    trader.sim.settle(refund.refund_no, "ABNORMAL")
    step(refund)
    trader.sim.fault("wechat.abnormal_refund", "timeout")
    before = snapshot()
    with pytest.raises(errors.ServiceAway):
        apply_abnormal_refund(**asked)
    assert snapshot() == before

    assert apply_abnormal_refund(**asked).status == "PROCESSING"

    assert request(refund).status == "PENDING"
    trader.sim.settle(refund.refund_no)
    assert step(refund).status == "SUCCESS"
    assert trader.at_channel(payment) == [(refund.refund_no, 3000, "SUCCESS")]


def test_a26_a_channel_voucher_takes_its_share_of_the_refund(trader):
    """Paid 10.00, of it 3.00 by a voucher of the channel: 9.00 are refunded, 6.30 reach the payer, both are kept."""
    payment = trader.paid(1000, voucher_fen=300)
    assert (payment.amount_fen, payment.payer_paid_fen) == (1000, 700)
    refund = trader.refund(payment, 900)
    step(refund)
    trader.sim.settle(refund.refund_no)
    step(refund)
    attempt = newest(refund)
    assert (attempt.status, attempt.amount_fen, attempt.payer_fen) == ("SUCCESS", 900, 630)
    payment.refresh_from_db()
    assert payment.refunded_fen == 900
    assert set(RefundFact.objects.values_list("amount_fen", "payer_fen")) == {(900, 630)}


def test_the_connection_of_an_account_is_tested(trader):
    from payments.commands.probe_account import probe_account
    from payments.commands.save_account import save_account
    from payments.models import ChannelAccount

    asked = {"merchant_id": trader.merchant_id, "account_id": trader.account.id, "now": moment()}
    assert probe_account(**asked).works
    assert ChannelAccount.objects.get().test_result.startswith("OK")
    trader.sim.fault("wechat.query", "timeout")
    assert not probe_account(**asked).works
    save_account(
        merchant_id=trader.merchant_id,
        channel="wechat",
        mchid=trader.account.mchid,
        app_id=trader.account.app_id,
        secret_values={"private_key": ""},
        now=moment(),
    )
    assert "incomplete" in probe_account(**asked).result
    with pytest.raises(errors.NotFound):
        probe_account(**{**asked, "merchant_id": numbers.uuid7()})
