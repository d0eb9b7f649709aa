"""Facts about refund numbers: which of them move anything, which are only kept."""

import itertools

import pytest
from django.db import IntegrityError, transaction

from kernel import errors
from payments.commands.abandon_refund import abandon_refund
from payments.commands.record_refund_fact import record_refund_fact
from payments.commands.retry_refund import retry_refund
from payments.gateway import RefundState
from payments.models import Payment, RefundAttempt, RefundFact
from tests.payments.factories import a_paid_payment, a_refund, attempt_of, events, request_of, said, snapshot
from tests.payments.test_request_refund import at_once

SUCCESS, CLOSED, ABNORMAL, PROCESSING, NOT_FOUND = (
    RefundState.SUCCESS,
    RefundState.CLOSED,
    RefundState.ABNORMAL,
    RefundState.PROCESSING,
    RefundState.NOT_FOUND,
)


@pytest.fixture
def refund(shop):
    return a_refund(shop, a_paid_payment(shop, 26000), 17167, owner_no="AS00000000000001")


def tell(shop, refund, state, *, seq=0, source="notify", **other):
    return record_refund_fact(
        merchant_id=shop.id,
        said=said(attempt_of(refund, seq), state, now=shop.now, **other),
        source=source,
        now=shop.now,
    )


def standing(refund):
    request = request_of(refund)
    payment = Payment.objects.get(id=request.payment_id)
    attempts = list(RefundAttempt.objects.filter(request=request).order_by("seq").values_list("status", flat=True))
    return request.status, attempts, payment.refund_committed_fen, payment.refunded_fen


def test_success_ends_attempt_request_and_payment_together(shop, refund):
    tell(shop, refund, PROCESSING, source="answer")

    recorded = tell(shop, refund, SUCCESS)

    assert (recorded.outcome, recorded.status) == ("moved", "SUCCESS")
    assert standing(refund) == ("SUCCEEDED", ["SUCCESS"], 17167, 17167)
    request = request_of(refund)
    assert (request.refund_no, request.succeeded_at) == ("AS00000000000001-0", shop.now)
    (event,) = events("refund.succeeded")
    assert event["owner_no"] == "AS00000000000001"
    assert (event["amount_fen"], event["channel"], event["payment_kind"]) == (17167, "wechat", "order")
    assert event["order_no"] == request.order_no
    assert event["succeeded_at"].startswith(shop.now.strftime("%Y-%m-%dT"))


def test_r5_the_same_success_by_answer_query_and_callback_is_one(shop, refund):
    tell(shop, refund, SUCCESS, source="answer")
    before = standing(refund), len(events("refund.succeeded"))
    for source in ("notify", "query", "notify"):
        assert tell(shop, refund, SUCCESS, source=source).outcome == "same"
    assert (standing(refund), len(events("refund.succeeded"))) == before
    assert RefundFact.objects.count() == 4


def test_the_same_success_five_times_at_once_is_one(shop, refund):
    results = at_once(*[lambda: tell(shop, refund, SUCCESS)] * 5)
    assert sorted(each.outcome for each in results) == ["moved", "same", "same", "same", "same"]
    assert standing(refund) == ("SUCCEEDED", ["SUCCESS"], 17167, 17167)
    assert len(events("refund.succeeded")) == 1


@pytest.mark.parametrize(
    ("state", "other", "anomaly"),
    [
        (SUCCESS, {"amount_fen": 17166}, "refund_amount_mismatch"),
        (PROCESSING, {"amount_fen": 17168}, "refund_amount_mismatch"),
        (CLOSED, {"amount_fen": 1}, "refund_amount_mismatch"),
        (SUCCESS, {"amount_fen": None}, "refund_amount_missing"),
        (SUCCESS, {"total_fen": 26001}, "refund_total_mismatch"),
        (SUCCESS, {"out_trade_no": "Q99999999999999P1"}, "refund_payment_mismatch"),
        (SUCCESS, {"trade_no": "4200000000000"}, "refund_payment_mismatch"),
        (SUCCESS, {"payer_refund_fen": 17168}, "refund_payer_mismatch"),
        (PROCESSING, {"payer_refund_fen": -1}, "refund_payer_mismatch"),
    ],
)
def test_r14_what_differs_from_ours_moves_nothing(shop, refund, state, other, anomaly):
    before = snapshot()
    recorded = tell(shop, refund, state, **other)
    assert (recorded.outcome, recorded.anomaly, recorded.status) == ("anomaly", anomaly, "CREATED")
    after = snapshot()
    assert {**before, "counts": 0} == {**after, "counts": 0}
    (event,) = events("refund.anomaly")
    assert event["kind"] == anomaly
    assert event["ours"]["amount_fen"] == 17167
    assert event["theirs"]["amount_fen"] == other.get("amount_fen", 17167)
    tell(shop, refund, state, **other)
    assert len(events("refund.anomaly")) == 1, "said once, however often the channel repeats it"


def test_r11_accepted_then_failed_never_counts_as_refunded(shop, refund):
    tell(shop, refund, PROCESSING, source="answer")
    tell(shop, refund, CLOSED)
    assert standing(refund) == ("FAILED", ["CLOSED"], 17167, 0)
    assert events("refund.succeeded") == []
    (failed,) = events("refund.failed")
    assert (failed["code"], failed["dead"], failed["refund_no"]) == ("CHANNEL_CLOSED", True, "AS00000000000001-0")


def test_r12_nothing_leads_back_from_success(shop, refund):
    tell(shop, refund, SUCCESS)
    for state, outcome in ((PROCESSING, "ignored"), (CLOSED, "anomaly"), (ABNORMAL, "anomaly"), (NOT_FOUND, "unknown")):
        assert tell(shop, refund, state).outcome == outcome
        assert standing(refund) == ("SUCCEEDED", ["SUCCESS"], 17167, 17167)
    assert [each["kind"] for each in events("refund.anomaly")] == [
        "refund_closed_after_success",
        "refund_abnormal_after_success",
    ]


def test_r18_abnormal_waits_for_a_person_and_never_takes_a_new_number(shop, refund):
    from payments.commands.retry_refund import RefundIsAbnormal

    tell(shop, refund, ABNORMAL)
    assert standing(refund) == ("FAILED", ["ABNORMAL"], 17167, 0)
    (failed,) = events("refund.failed")
    assert (failed["code"], failed["dead"]) == ("CHANNEL_ABNORMAL", False)
    before = snapshot()
    with pytest.raises(RefundIsAbnormal):
        retry_refund(merchant_id=shop.id, refund_request_id=refund.refund_request_id, now=shop.now)
    assert snapshot() == before
    assert tell(shop, refund, SUCCESS).outcome == "moved"
    assert standing(refund) == ("SUCCEEDED", ["SUCCESS"], 17167, 17167)
    assert tell(shop, refund, ABNORMAL).outcome == "ignored", "the same news, late"
    assert events("refund.anomaly") == []


def test_r13_a_second_success_keeps_both_rows_and_is_an_anomaly(shop, refund):
    tell(shop, refund, CLOSED)
    retry_refund(merchant_id=shop.id, refund_request_id=refund.refund_request_id, now=shop.now)
    tell(shop, refund, SUCCESS, seq=1)
    assert standing(refund) == ("SUCCEEDED", ["CLOSED", "SUCCESS"], 17167, 17167)

    recorded = tell(shop, refund, SUCCESS, seq=0)

    assert (recorded.outcome, recorded.anomaly) == ("moved", "double_refund")
    assert standing(refund) == ("SUCCEEDED", ["SUCCESS", "SUCCESS"], 17167, 17167)
    assert len(events("refund.succeeded")) == 1
    assert [each["kind"] for each in events("refund.anomaly")] == ["double_refund"]


def test_a_closed_number_that_succeeds_after_all_withdraws_the_unsent_next_one(shop, refund):
    tell(shop, refund, CLOSED)
    retry_refund(merchant_id=shop.id, refund_request_id=refund.refund_request_id, now=shop.now)
    tell(shop, refund, SUCCESS, seq=0)
    assert standing(refund) == ("SUCCEEDED", ["SUCCESS", "REFUSED"], 17167, 17167)
    assert attempt_of(refund, 1).last_error == "WITHDRAWN"


def test_a_success_after_the_request_was_given_up_takes_its_room_back(shop, refund):
    tell(shop, refund, CLOSED)
    abandon_refund(merchant_id=shop.id, refund_request_id=refund.refund_request_id, now=shop.now)
    assert standing(refund) == ("ABANDONED", ["CLOSED"], 0, 0)
    tell(shop, refund, SUCCESS)
    assert standing(refund) == ("SUCCEEDED", ["SUCCESS"], 17167, 17167)


def test_a_success_after_its_room_was_given_away_is_kept_as_an_anomaly(shop, refund):
    tell(shop, refund, CLOSED)
    abandon_refund(merchant_id=shop.id, refund_request_id=refund.refund_request_id, now=shop.now)
    a_refund(shop, Payment.objects.get(), 26000)
    recorded = tell(shop, refund, SUCCESS)
    assert recorded.anomaly == "refund_above_paid"
    assert standing(refund) == ("ABANDONED", ["SUCCESS"], 26000, 0)


def test_not_found_proves_nothing(shop, refund):
    assert tell(shop, refund, NOT_FOUND, source="query").outcome == "unknown"
    assert standing(refund) == ("PENDING", ["CREATED"], 17167, 0)


def test_an_unknown_number_is_not_found(shop, refund):
    fact = said(attempt_of(refund), SUCCESS, now=shop.now)
    import dataclasses

    before = snapshot()
    with pytest.raises(errors.NotFound):
        record_refund_fact(
            merchant_id=shop.id, said=dataclasses.replace(fact, refund_no="AS-9-9"), source="notify", now=shop.now
        )
    assert snapshot() == before


@pytest.mark.parametrize("order", list(itertools.permutations([PROCESSING, CLOSED, ABNORMAL, SUCCESS, SUCCESS])))
def test_any_order_that_contains_a_success_ends_in_it(shop, refund, order):
    for state in order:
        tell(shop, refund, state)
    assert standing(refund) == ("SUCCEEDED", ["SUCCESS"], 17167, 17167)
    assert len(events("refund.succeeded")) == 1


def test_a26_what_reaches_the_payer_is_kept_beside_the_refund(shop, refund):
    """10.00 paid, 3.00 of it by the channel's voucher: of 9.00 refunded the payer gets 6.30."""
    whole = a_refund(shop, a_paid_payment(shop, 1000), 900, owner_no="AS00000000000009")
    tell(shop, whole, PROCESSING, source="answer")
    assert attempt_of(whole).payer_fen is None
    tell(shop, whole, SUCCESS, payer_refund_fen=630)
    attempt = attempt_of(whole)
    assert (attempt.amount_fen, attempt.payer_fen) == (900, 630)
    assert list(RefundFact.objects.filter(attempt=attempt).order_by("id").values_list("amount_fen", "payer_fen")) == [
        (900, None),
        (900, 630),
    ]
    assert request_of(whole).amount_fen == 900
    assert Payment.objects.get(id=attempt.payment_id).refunded_fen == 900


def test_a26_the_database_gives_the_payer_no_more_than_the_refund(shop, refund):
    for fen in (17168, -1):
        with pytest.raises(IntegrityError, match="payer_gets_at_most_the_amount"), transaction.atomic():
            RefundAttempt.objects.update(payer_fen=fen)
