"""The same engine on Alipay: another wire, other facts, the same rules."""

import pytest

from payments.commands.download_bill import download_bill
from payments.models import BillLine
from tests.payments.channel import Trader, moment, newest, request, step, work_until
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
