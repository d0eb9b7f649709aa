"""The same engine on Alipay: another wire, other facts, the same rules."""

from datetime import timedelta

import pytest

from payments.commands.download_bill import download_bill
from payments.commands.record_refund_fact import record_refund_fact
from payments.gateway import Channel, RefundState
from payments.gateway import RefundFact as Said
from payments.models import BillLine, RefundFact
from tests.payments.channel import Trader, make_due, moment, newest, request, step, work_until
from tests.payments.factories import events


@pytest.fixture
def seller(transactional_db, channel, channel_keys) -> Trader:
    channel.settings(auto_settle=True)
    return Trader.open(channel, channel_keys, channel="alipay")


def test_two_partial_refunds_sum_to_what_was_paid(seller):
    payment = seller.paid(26000)
    tea, nut = seller.refund(payment, 17167), seller.refund(payment, 8833)
    step(tea), step(nut)
    work_until(lambda: request(tea).status == request(nut).status == "SUCCEEDED")
    payment.refresh_from_db()
    assert (payment.refunded_fen, payment.refund_committed_fen) == (26000, 26000)
    assert sorted(fen for _, fen, _ in seller.at_channel(payment)) == [8833, 17167]
    assert {each["channel"] for each in events("refund.succeeded")} == {"alipay"}
    assert events("refund.anomaly") == []


@pytest.mark.parametrize("fault", ["timeout_after", "reset_after", "server_error_after"])
def test_r3_accepted_but_unanswered_is_one_refund(seller, fault):
    payment = seller.paid(5000)
    refund = seller.refund(payment, 3000)
    seller.sim.fault("alipay.trade.refund", fault)
    assert step(refund).status == "SENT"
    work_until(lambda: request(refund).status == "SUCCEEDED")
    assert [(number, fen) for number, fen, _ in seller.at_channel(payment)] == [(refund.refund_no, 3000)]
    assert newest(refund).seq == 0


def test_a_notice_without_an_amount_is_believed_for_nothing_and_asked_about_soon(seller, live_server, settings):
    """Alipay's notices carry the trade's cumulative refund: the second of two says 30.00, neither refund is 30.00."""
    settings.QUITS_BASE_URL = live_server.url
    settings.ALLOWED_HOSTS = ["*"]
    seller.pace(query_after_seconds=600, query_backoff_seconds=[600])
    payment = seller.paid(26000, notify_url=f"{live_server.url}/api/v1/orders/notify/alipay/{seller.account.pk}")
    refunds = [seller.refund(payment, fen) for fen in (1000, 2000)]
    seller.sim.fault("alipay.trade.refund", "timeout_after", times=2)
    for refund in refunds:
        assert step(refund).status == "SENT"
    work_until(lambda: RefundFact.objects.filter(source="notify").values("attempt").distinct().count() == 2)
    payment.refresh_from_db()
    assert payment.refunded_fen == 0
    for refund in refunds:
        assert newest(refund).status == "PROCESSING"
        assert newest(refund).next_action_at - moment() <= timedelta(seconds=10)
        make_due(refund)
        assert step(refund).status == "SUCCESS"
    payment.refresh_from_db()
    assert payment.refunded_fen == 3000
    assert events("refund.anomaly") == []


def test_a_later_notice_brings_the_next_question_forward_and_never_back(seller):
    seller.pace(query_after_seconds=600, query_backoff_seconds=[600])
    refund = seller.refund(seller.paid(5000), 3000)
    seller.sim.fault("alipay.trade.refund", "timeout")
    step(refund)
    said = Said(channel=Channel.ALIPAY, state=RefundState.PROCESSING, refund_no=refund.refund_no)
    known = {"merchant_id": seller.merchant_id, "said": said, "now": moment()}
    record_refund_fact(**known, source="query")
    assert newest(refund).next_action_at - moment() > timedelta(seconds=500)
    assert record_refund_fact(**known, source="notify").outcome == "same"
    soon = newest(refund).next_action_at
    assert soon - moment() <= timedelta(seconds=10)
    record_refund_fact(**known, source="notify")
    assert newest(refund).next_action_at == soon


def test_a_days_bill(seller):
    payment = seller.paid(5000)
    refund = seller.refund(payment, 3000)
    step(refund)
    work_until(lambda: request(refund).status == "SUCCEEDED")
    from kernel import clock

    for kind in ("trade", "refund"):
        day = clock.channel_day(moment())
        bill = download_bill(account_id=seller.account.id, kind=kind, bill_on=day, now=moment())
        assert (bill.state, bill.row_count) == ("PARSED", 1)
    assert set(BillLine.objects.values_list("kind", "amount_fen")) == {("payment", 5000), ("refund", 3000)}
