"""Bills over the wire: hashed, read by column names, stored once; what does not add up is not believed."""

import gzip
from datetime import timedelta

import pytest

from kernel import clock, errors, numbers
from payments.commands.download_bill import download_bill
from payments.models import BillLine, ChannelBill
from payments.queries import BILL_KINDS, bills_to_fetch
from tests.payments.channel import moment, step
from tests.payments.test_request_refund import at_once


def today():
    return clock.channel_day(moment())


def fetch(trader, kind="trade", **other):
    return download_bill(account_id=trader.account.id, kind=kind, bill_on=today(), now=moment(), **other)


@pytest.fixture
def day(trader):
    """Two payments, one refund done, one refund only accepted."""
    first, second = trader.paid(26000), trader.paid(1990)
    done, accepted = trader.refund(first, 17167), trader.refund(second, 3)
    step(done), step(accepted)
    trader.sim.settle(done.refund_no)
    return first, second, done, accepted


def lines(kind):
    return list(
        BillLine.objects.filter(bill__kind=kind)
        .order_by("row_no")
        .values_list("kind", "out_trade_no", "refund_no", "amount_fen")
    )


def test_a_days_bill_becomes_rows(trader, day):
    first, second, done, accepted = day

    bill = fetch(trader)

    assert bill.state == "PARSED"
    assert ("payment", first.out_trade_no, "", 26000) in lines("trade")
    assert ("payment", second.out_trade_no, "", 1990) in lines("trade")
    row = ChannelBill.objects.get()
    assert (row.row_count, row.bill_on, row.merchant_id) == (bill.row_count, today(), trader.merchant_id)
    assert gzip.decompress(bytes(row.raw)).decode("utf-8-sig").startswith("交易时间")
    assert len(row.sha1) == 40
    assert {each.merchant_id for each in BillLine.objects.all()} == {trader.merchant_id}

    fetch(trader, kind="refund")
    assert {each[2:] for each in lines("refund")} == {(done.refund_no, 17167), (accepted.refund_no, 3)}


def test_again_changes_nothing_until_the_channels_bill_is_another(trader, day):
    first = fetch(trader)
    ids = set(BillLine.objects.values_list("id", flat=True))
    assert fetch(trader).replayed
    assert fetch(trader, again=True).replayed, "asked again, the same hash came"
    assert set(BillLine.objects.values_list("id", flat=True)) == ids
    trader.paid(100)
    assert fetch(trader).row_count == first.row_count, "a stored bill is not fetched again unless told to"
    assert fetch(trader, again=True).row_count == first.row_count + 1
    assert not ids & set(BillLine.objects.values_list("id", flat=True))
    assert ChannelBill.objects.count() == 1


def test_an_empty_day(trader):
    bill = fetch(trader)
    assert (bill.state, bill.row_count) == ("EMPTY", 0)
    assert fetch(trader).replayed


def test_not_there_yet_is_waited_for(trader, day):
    trader.sim.settings(bills_always_ready=False)
    assert fetch(trader).state == "WAITING"
    row = ChannelBill.objects.get()
    assert (row.tries, row.next_try_at is not None) == (1, True)
    trader.sim.settings(bills_always_ready=True)
    assert fetch(trader).state == "PARSED"
    assert ChannelBill.objects.get().next_try_at is None


@pytest.mark.parametrize("fault", ["timeout", "server_error", "forged"])
def test_no_answer_is_tried_again(trader, day, fault):
    trader.sim.fault("wechat.tradebill", fault)
    assert fetch(trader).state == "WAITING"
    assert ChannelBill.objects.get().last_error
    assert fetch(trader).state == "PARSED"


def test_a_bill_that_is_not_what_its_hash_says_is_not_believed(trader, day):
    trader.sim.fault("wechat.billdownload", "corrupt_bill")
    assert fetch(trader).state == "CORRUPT"
    assert BillLine.objects.count() == 0
    assert fetch(trader).state == "PARSED"


def test_two_workers_at_once_store_one_bill(trader, day):
    results = at_once(lambda: fetch(trader), lambda: fetch(trader), lambda: fetch(trader))
    assert {each.state for each in results} == {"PARSED"}, results
    assert ChannelBill.objects.count() == 1
    assert BillLine.objects.count() == ChannelBill.objects.get().row_count


def test_refusals(trader):
    from django.db import transaction

    with pytest.raises(errors.NotFound):
        download_bill(account_id=numbers.uuid7(), kind="trade", bill_on=today(), now=moment())
    with pytest.raises(RuntimeError), transaction.atomic():
        fetch(trader)
    assert ChannelBill.objects.count() == 0


def test_which_bills_are_wanted(trader, now):
    from payments.models import ChannelAccount

    ChannelAccount.objects.update(created_at=now - timedelta(days=2))
    ten = now.astimezone(clock.CHANNEL_ZONE).replace(hour=10, minute=0)
    before = bills_to_fetch(now=ten - timedelta(minutes=1))
    assert [(kind, day) for _, kind, day in before] == [(kind, ten.date() - timedelta(days=2)) for kind in BILL_KINDS]
    after = bills_to_fetch(now=ten)
    assert {day for _, _, day in after} == {ten.date() - timedelta(days=1), ten.date() - timedelta(days=2)}
