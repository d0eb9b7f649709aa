"""Refund callbacks over HTTP, from the simulator to our own endpoint: judged, kept, acknowledged, then worked on."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from kernel import inbox, stream
from kernel.models import InboxMessage, OutboxEvent
from payments.models import ChannelNotify, RefundFact
from tests.payments.channel import Trader, make_due, moment, newest, request, step, work_until
from tests.payments.factories import events


@pytest.fixture
def reachable(live_server, settings):
    """Our own endpoint, where the channel can post to."""
    settings.QUITS_BASE_URL = live_server.url
    settings.ALLOWED_HOSTS = ["*"]
    return live_server.url


@pytest.fixture
def accepted(reachable, trader):
    trader.pace(query_after_seconds=600, query_backoff_seconds=[600])
    payment = trader.paid(26000)
    refund = trader.refund(payment, 3000)
    step(refund)
    return payment, refund


def kept(**where):
    return ChannelNotify.objects.filter(**where).count()


def test_r5_the_answer_then_the_callback_are_one_refund(trader, accepted):
    payment, refund = accepted
    trader.sim.settle(refund.refund_no)

    work_until(lambda: request(refund).status == "SUCCEEDED")

    notify = ChannelNotify.objects.get()
    assert (notify.verdict, notify.kind, notify.refund_no) == ("VERIFIED", "refund", refund.refund_no)
    assert notify.event_type == "REFUND.SUCCESS"
    assert notify.facts["amount_fen"] == 3000
    assert notify.merchant_id == trader.merchant_id
    assert "Wechatpay-Signature" in notify.headers
    assert RefundFact.objects.filter(notify=notify, outcome="moved").exists()
    payment.refresh_from_db()
    assert payment.refunded_fen == 3000
    assert len(events("refund.succeeded")) == 1


def test_a_callback_without_an_amount_is_a_reason_to_ask_at_once(reachable, transactional_db, channel, channel_keys):
    """Alipay tells the trade's sum only. Nobody waits for the ten minutes after which we would ask by ourselves."""
    seller = Trader.open(channel, channel_keys, channel="alipay")
    seller.pace(query_after_seconds=600, query_backoff_seconds=[600])
    payment = seller.paid(26000, notify_url=f"{reachable}/api/v1/orders/notify/alipay/{seller.account.id}")
    refund = seller.refund(payment, 3000)
    assert step(refund).status == "PROCESSING"
    channel.settle(refund.refund_no, channel="alipay")

    work_until(lambda: request(refund).status == "SUCCEEDED")

    notify = ChannelNotify.objects.get(kind="refund")
    assert (notify.verdict, notify.facts["amount_fen"]) == ("VERIFIED", None)
    assert newest(refund).queries == 1
    payment.refresh_from_db()
    assert payment.refunded_fen == 3000
    assert events("refund.anomaly") == []


def test_five_deliveries_at_once_and_a_forged_one(trader, accepted):
    payment, refund = accepted
    trader.sim.settle(refund.refund_no)
    work_until(lambda: kept(verdict="VERIFIED") >= 1)

    deliveries = trader.sim.redeliver(refund_no=refund.refund_no, times=5, parallel=True)
    forged = trader.sim.redeliver(refund_no=refund.refund_no, times=1, faults=["forged"])

    assert {each["status"] for each in deliveries} == {204}
    assert {each["status"] for each in forged} == {401}
    work_until(lambda: request(refund).status == "SUCCEEDED")
    stream.drain(now=moment())
    assert kept(verdict="VERIFIED") == 6
    assert kept(verdict="FORGED") == 1
    assert len(events("refund.succeeded")) == 1
    payment.refresh_from_db()
    assert payment.refunded_fen == 3000
    ours = InboxMessage.objects.filter(consumer__startswith="payments.") | InboxMessage.objects.filter(
        consumer__startswith="ledgers."
    )
    assert set(ours.values_list("state", flat=True)) == {"DONE"}


@pytest.mark.parametrize(
    ("how", "verdict"),
    [("forged", "FORGED"), ("stale", "STALE"), ("altered_body", "FORGED"), ("unknown_serial", "FORGED")],
)
def test_what_must_not_be_believed_is_kept_as_evidence_and_moves_nothing(trader, accepted, how, verdict):
    _, refund = accepted
    trader.sim.fault("notify.refund", "silent", times=-1)
    trader.sim.settle(refund.refund_no)

    (delivery,) = trader.sim.redeliver(refund_no=refund.refund_no, times=1, faults=[how])

    assert delivery["status"] == 401
    notify = ChannelNotify.objects.get()
    assert (notify.verdict, notify.merchant_id, notify.facts) == (verdict, None, {})
    assert notify.reason
    assert notify.body_size >= len(bytes(notify.body)) > 0
    assert newest(refund).status == "PROCESSING"
    assert not OutboxEvent.objects.filter(name="refund.notified").exists()


def test_forged_posts_are_kept_in_part_and_only_so_many(client, reachable, trader):
    for _ in range(40):
        answer = client.post(
            "/api/v1/refunds/notify/wechat",
            data=b"x" * 9000,
            content_type="application/json",
            REMOTE_ADDR="203.0.113.9",
        )
        assert answer.status_code == 401
    assert kept(address="203.0.113.9") == 30
    assert {len(bytes(each.body)) for each in ChannelNotify.objects.all()} == {4096}
    assert {each.body_size for each in ChannelNotify.objects.all()} == {9000}
    client.post("/api/v1/refunds/notify/wechat", data=b"x", content_type="application/json", REMOTE_ADDR="203.0.113.10")
    assert kept(address="203.0.113.10") == 1


@pytest.mark.parametrize("channel", ["unionpay", "balance", "none"])
def test_a_channel_we_do_not_have(client, reachable, transactional_db, channel):
    assert client.post(f"/api/v1/refunds/notify/{channel}", data=b"{}", content_type="a/b").status_code == 404
    assert kept() == 0


def test_r14_a_validly_signed_wrong_amount_moves_nothing(trader, accepted):
    _, refund = accepted
    trader.sim.fault("notify.refund", "wrong_amount", amount_fen=2999)
    trader.sim.settle(refund.refund_no)
    work_until(lambda: bool(events("refund.anomaly")))
    assert (newest(refund).status, request(refund).status) == ("PROCESSING", "PENDING")
    (anomaly,) = events("refund.anomaly")
    assert anomaly["kind"] == "refund_amount_mismatch"
    assert (anomaly["ours"]["amount_fen"], anomaly["theirs"]["amount_fen"]) == (3000, 2999)


def test_a_validly_signed_notify_with_another_merchants_number_is_refused(trader, accepted):
    _, refund = accepted
    trader.sim.fault("notify.refund", "wrong_account")
    trader.sim.settle(refund.refund_no)
    work_until(lambda: kept(verdict="MALFORMED") >= 1)
    first = ChannelNotify.objects.order_by("received_at", "id").first()
    assert (first.verdict, first.reason) == ("MALFORMED", "signed for another merchant number or app")
    assert not RefundFact.objects.filter(notify=first).exists()
    assert request(refund).status == "PENDING"


def test_a_number_we_never_gave_is_an_anomaly_not_a_crash(trader, accepted):
    from payments.registry import gateway_for

    payment, _ = accepted
    gateway_for(trader.account).refund(
        refund_no="AS-by-hand",
        out_trade_no=payment.out_trade_no,
        amount_fen=1,
        total_fen=26000,
        reason="by hand on the channel's own page",
        notify_url=newest_url(trader),
        now=moment(),
    )
    trader.sim.settle("AS-by-hand")
    work_until(lambda: bool(events("refund.anomaly")))
    (anomaly,) = events("refund.anomaly")
    assert (anomaly["kind"], anomaly["refund_no"]) == ("refund_number_unknown", "AS-by-hand")


def newest_url(trader):
    from payments.commands.send_refund import refund_notify_url

    return refund_notify_url(trader.account)


def test_a_notify_for_another_merchants_number_cannot_touch_it(trader, accepted, channel, channel_keys):
    """Two merchants, one refund number: the account that signed decides whose it is."""
    from tests.payments.channel import Trader

    _, refund = accepted
    other = Trader.open(channel, channel_keys, number=1)
    theirs = other.refund(other.paid(26000), 3000, owner_no=request(refund).owner_no)
    step(theirs)
    assert theirs.refund_no == refund.refund_no
    channel.settle(theirs.refund_no, account=other.account.mchid)
    work_until(lambda: request(theirs).status == "SUCCEEDED")
    assert request(refund).status == "PENDING"


def test_lost_callback_is_made_up_for_by_the_sweep(trader, accepted):
    _, refund = accepted
    trader.sim.fault("notify.refund", "silent", times=-1)
    trader.sim.settle(refund.refund_no)
    make_due(refund)
    work_until(lambda: request(refund).status == "SUCCEEDED")
    assert kept() == 0


def test_callbacks_delivered_by_four_threads_take_effect_once(trader, accepted):
    _, refund = accepted
    trader.sim.settle(refund.refund_no)
    work_until(lambda: kept(verdict="VERIFIED") >= 1)
    trader.sim.redeliver(refund_no=refund.refund_no, times=3)
    ids = list(OutboxEvent.objects.filter(name="refund.notified").values_list("id", flat=True)) * 3

    def deliver(event_id):
        from django.db import connection

        try:
            inbox.deliver(event_id, now=moment())
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(deliver, ids))
    work_until(lambda: request(refund).status == "SUCCEEDED")
    assert len(events("refund.succeeded")) == 1
