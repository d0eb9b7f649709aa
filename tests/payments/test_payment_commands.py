"""Opening, placing, paying, closing: the commands of a payment on our own side."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from kernel import errors, numbers
from payments.commands.begin_prepay import begin_prepay
from payments.commands.close_payment import PaymentIsPaid, PrepayInFlight, close_payment
from payments.commands.finish_prepay import finish_prepay
from payments.commands.open_payment import (
    ChannelNotAvailable,
    OrderAlreadyCharged,
    PaymentAlreadyOpen,
    open_payment,
)
from payments.commands.record_payment_paid import AmountDiffers, TradeNoDiffers, record_payment_paid
from payments.commands.record_second_charge import record_second_charge
from payments.commands.request_refund import request_refund
from payments.models import Payment
from tests.payments.factories import a_paid_payment, a_shop, events, snapshot
from tests.payments.test_request_refund import at_once

ORDER = "Q00000000000001"


def opened(shop, *, order_no=ORDER, channel="wechat", amount_fen=26000, **other):
    return open_payment(
        merchant_id=shop.id, order_no=order_no, channel=channel, amount_fen=amount_fen, now=shop.now, **other
    )


def pay(shop, payment_id, *, trade_no="4200001", amount_fen=26000):
    return record_payment_paid(
        payment_id=payment_id, trade_no=trade_no, amount_fen=amount_fen, paid_at=shop.now, now=shop.now
    )


def status(payment_id):
    return Payment.objects.get(id=payment_id).status


class TestOpen:
    def test_numbers_the_charge(self, shop):
        first = opened(shop)
        assert (first.out_trade_no, first.status, first.replayed) == ("Q00000000000001P1", "CREATED", False)

    def test_again_is_a_replay(self, shop):
        first = opened(shop)
        before = snapshot()
        again = opened(shop)
        assert (again.payment_id, again.replayed) == (first.payment_id, True)
        assert snapshot() == before

    def test_after_a_close_it_gets_a_number_of_its_own(self, shop):
        close_payment(payment_id=opened(shop).payment_id, now=shop.now)
        assert opened(shop).out_trade_no == "Q00000000000001P2"

    @pytest.mark.parametrize(
        ("asked", "refusal"),
        [
            ({"amount_fen": 25999}, PaymentAlreadyOpen),
            ({"channel": "alipay", "order_no": "Q00000000000002"}, ChannelNotAvailable),
            ({"amount_fen": -1}, errors.InvalidInput),
        ],
    )
    def test_refusals_write_nothing(self, shop, asked, refusal):
        opened(shop)
        before = snapshot()
        with pytest.raises(refusal):
            opened(shop, **asked)
        assert snapshot() == before

    def test_a_paid_order_is_not_charged_again(self, shop):
        pay(shop, opened(shop).payment_id)
        before = snapshot()
        with pytest.raises(OrderAlreadyCharged):
            opened(shop)
        assert snapshot() == before

    def test_nothing_to_pay_is_paid_at_once(self, shop):
        free = opened(shop, amount_fen=0)
        assert (free.status, free.channel) == ("PAID", "none")
        assert opened(shop, amount_fen=0).replayed
        assert events("payment.succeeded") == []

    def test_two_at_once_open_one(self, shop):
        for turn in range(3):
            order_no = f"Q9000000000000{turn}"
            results = at_once(*[lambda o=order_no: opened(shop, order_no=o)] * 3)
            assert all(not isinstance(each, Exception) or isinstance(each, PaymentAlreadyOpen) for each in results)
            assert Payment.objects.filter(order_no=order_no).count() == 1


class TestPrepay:
    def test_created_prepaying_awaiting(self, shop):
        payment_id = opened(shop).payment_id
        begun = begin_prepay(payment_id=payment_id, now=shop.now)
        assert (begun.awaiting, begun.amount_fen, begun.account_id) == (False, 26000, shop.account_id)
        assert status(payment_id) == "PREPAYING"
        finish_prepay(payment_id=payment_id, prepay_id="wx1", client_params={"package": "prepay_id=wx1"}, now=shop.now)
        assert status(payment_id) == "AWAITING"
        again = begin_prepay(payment_id=payment_id, now=shop.now)
        assert (again.awaiting, again.client_params) == (True, {"package": "prepay_id=wx1"})
        finished = finish_prepay(payment_id=payment_id, prepay_id="wx2", client_params={}, now=shop.now)
        assert finished.replayed
        assert Payment.objects.get(id=payment_id).prepay_id == "wx1"

    def test_a_lost_call_is_made_again(self, shop):
        payment_id = opened(shop).payment_id
        begin_prepay(payment_id=payment_id, now=shop.now)
        assert not begin_prepay(payment_id=payment_id, now=shop.now + timedelta(seconds=5)).awaiting
        assert Payment.objects.get(id=payment_id).prepay_started_at == shop.now + timedelta(seconds=5)

    def test_refusals_write_nothing(self, shop):
        late = opened(shop, expires_at=shop.now).payment_id
        unbegun = opened(shop, order_no="Q00000000000002").payment_id
        paid = a_paid_payment(shop).id
        before = snapshot()
        for payment_id in (late, paid):
            with pytest.raises(errors.IllegalTransition):
                begin_prepay(payment_id=payment_id, now=shop.now)
        with pytest.raises(errors.IllegalTransition):
            finish_prepay(payment_id=unbegun, prepay_id="wx", client_params={}, now=shop.now)
        for call in (begin_prepay, lambda **named: finish_prepay(prepay_id="wx", client_params={}, **named)):
            with pytest.raises(errors.NotFound):
                call(payment_id=numbers.uuid7(), now=shop.now)
        assert snapshot() == before

    def test_closed_or_paid_meanwhile_is_told(self, shop):
        payment_id = opened(shop).payment_id
        begin_prepay(payment_id=payment_id, now=shop.now)
        pay(shop, payment_id)
        assert finish_prepay(payment_id=payment_id, prepay_id="wx", client_params={}, now=shop.now).status == "PAID"


class TestPaid:
    @pytest.mark.parametrize("until", ["CREATED", "PREPAYING", "AWAITING", "CLOSED"])
    def test_money_counts_in_every_state(self, shop, until):
        payment_id = opened(shop).payment_id
        if until in ("PREPAYING", "AWAITING"):
            begin_prepay(payment_id=payment_id, now=shop.now)
        if until == "AWAITING":
            finish_prepay(payment_id=payment_id, prepay_id="wx", client_params={}, now=shop.now)
        if until == "CLOSED":
            close_payment(payment_id=payment_id, now=shop.now)
        assert status(payment_id) == until

        paid = pay(shop, payment_id)

        assert (paid.trade_no, paid.replayed, status(payment_id)) == ("4200001", False, "PAID")
        (event,) = events("payment.succeeded")
        assert (event["order_no"], event["kind"], event["channel"], event["amount_fen"]) == (
            ORDER,
            "order",
            "wechat",
            26000,
        )
        assert event["payment_id"] == str(payment_id)

    def test_again_is_a_replay(self, shop):
        payment_id = opened(shop).payment_id
        pay(shop, payment_id)
        before = snapshot()
        assert pay(shop, payment_id).replayed
        assert snapshot() == before

    def test_five_at_once_are_one(self, shop):
        payment_id = opened(shop).payment_id
        results = at_once(*[lambda: pay(shop, payment_id)] * 5)
        assert sorted(each.replayed for each in results) == [False, True, True, True, True]
        assert len(events("payment.succeeded")) == 1

    def test_refusals_write_nothing(self, shop):
        payment_id = opened(shop).payment_id
        before = snapshot()
        for amount_fen in (25999, 26001, 0):
            with pytest.raises(AmountDiffers) as refused:
                pay(shop, payment_id, amount_fen=amount_fen)
            assert (refused.value.data["ours_fen"], refused.value.data["theirs_fen"]) == (26000, amount_fen)
        with pytest.raises(errors.InvalidInput):
            pay(shop, payment_id, trade_no="")
        with pytest.raises(errors.NotFound):
            pay(shop, numbers.uuid7())
        assert snapshot() == before
        pay(shop, payment_id)
        before = snapshot()
        with pytest.raises(TradeNoDiffers):
            pay(shop, payment_id, trade_no="4200002")
        with pytest.raises(AmountDiffers):
            pay(shop, payment_id, amount_fen=1)
        assert snapshot() == before


class TestSecondCharge:
    def test_is_a_payment_of_its_own_that_can_be_refunded_within_itself(self, shop):
        payment_id = opened(shop).payment_id
        pay(shop, payment_id)
        extra = record_second_charge(
            payment_id=payment_id, trade_no="4200002", amount_fen=26000, paid_at=shop.now, now=shop.now
        )
        again = record_second_charge(
            payment_id=payment_id, trade_no="4200002", amount_fen=26000, paid_at=shop.now, now=shop.now
        )
        assert (again.payment_id, again.replayed) == (extra.payment_id, True)
        row = Payment.objects.get(id=extra.payment_id)
        assert (row.kind, row.status, row.out_trade_no) == ("extra", "PAID", "Q00000000000001P1")
        assert [each["kind"] for each in events("payment.succeeded")] == ["order", "extra"]
        refund = request_refund(
            merchant_id=shop.id,
            payment_id=row.id,
            owner_kind="order_payment",
            owner_no="4200002",
            amount_fen=26000,
            now=shop.now,
        )
        assert refund.refund_no == "4200002-0"
        assert Payment.objects.get(id=payment_id).refund_committed_fen == 0

    def test_refusals_write_nothing(self, shop):
        payment_id = opened(shop).payment_id
        before = snapshot()
        for trade_no, amount_fen in (("", 1), ("42", 0), ("42", -1)):
            with pytest.raises(errors.InvalidInput):
                record_second_charge(
                    payment_id=payment_id, trade_no=trade_no, amount_fen=amount_fen, paid_at=shop.now, now=shop.now
                )
        with pytest.raises(errors.NotFound):
            record_second_charge(
                payment_id=numbers.uuid7(), trade_no="42", amount_fen=1, paid_at=shop.now, now=shop.now
            )
        assert snapshot() == before


class TestClose:
    def test_closes_and_replays(self, shop):
        payment_id = opened(shop).payment_id
        assert not close_payment(payment_id=payment_id, now=shop.now).replayed
        before = snapshot()
        assert close_payment(payment_id=payment_id, now=shop.now).replayed
        assert snapshot() == before

    def test_waits_for_a_prepay_that_is_under_way(self, shop):
        payment_id = opened(shop).payment_id
        begin_prepay(payment_id=payment_id, now=shop.now)
        before = snapshot()
        with pytest.raises(PrepayInFlight):
            close_payment(payment_id=payment_id, now=shop.now + timedelta(seconds=59))
        assert snapshot() == before
        close_payment(payment_id=payment_id, now=shop.now + timedelta(seconds=61))
        assert status(payment_id) == "CLOSED"

    def test_a_paid_payment_is_not_closed(self, shop):
        payment = a_paid_payment(shop)
        before = snapshot()
        with pytest.raises(PaymentIsPaid):
            close_payment(payment_id=payment.id, now=shop.now)
        with pytest.raises(errors.NotFound):
            close_payment(payment_id=numbers.uuid7(), now=shop.now)
        assert snapshot() == before

    def test_pay_and_close_at_once_never_lose_money(self, shop):
        for turn in range(5):
            payment_id = opened(shop, order_no=f"Q9000000000000{turn}").payment_id
            at_once(
                lambda p=payment_id, t=turn: pay(shop, p, trade_no=f"42{t}"),
                lambda p=payment_id: close_payment(payment_id=p, now=shop.now),
            )
            assert status(payment_id) == "PAID"


ATTACKS = {
    "refunds_committed_within_paid": "refund_committed_fen = amount_fen + 1",
    "refund_count_within_channel_limit": "refund_count = 51",
    "refunded_within_committed": "refunded_fen = 1",
    "paid_has_time_and_trade_no": "paid_at = NULL",
    "payment_without_channel_is_free": "account_id = NULL",
    "payment_amount_is_not_negative": "amount_fen = -1, refund_committed_fen = -1, refunded_fen = -1",
}


@pytest.mark.parametrize("constraint", ATTACKS)
def test_the_database_keeps_it_whoever_writes(shop, constraint):
    from django.db import connection

    payment = a_paid_payment(shop)
    with (
        pytest.raises(IntegrityError, match="violates check constraint"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(f"UPDATE payment SET {ATTACKS[constraint]} WHERE id = %s", [payment.id])


def test_another_merchants_channel_is_not_ours(shop, now):
    from merchants.models import Merchant
    from tests.merchants.factories import a_merchant

    stranger = a_merchant(now=now, code="no-account")
    with pytest.raises(ChannelNotAvailable):
        open_payment(merchant_id=stranger.pk, order_no=ORDER, channel="wechat", amount_fen=1, now=now)
    assert Merchant.objects.count() == 2
    assert a_shop(now, code="third").id != shop.id
