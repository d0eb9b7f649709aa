"""confirm_paid: the amount guard inside the update, one effect however often it comes."""

import pytest

from coupons import leases
from coupons.commands.redeem_coupon import redeem_coupon
from coupons.models import CouponLock, CouponOperation, CouponRedemption, UserCoupon
from kernel.errors import IllegalTransition
from kernel.models import IdempotencyKey, OutboxEvent
from kernel.statemachine import StatementBroken
from orders.commands._coordinate_coupon import ACTOR, redeem_key
from orders.commands.confirm_paid import confirm_paid
from orders.models import OrderCoupon
from payments.commands.record_payment_paid import AmountDiffers, TradeNoDiffers
from payments.models import Payment
from tests.orders.factories import (
    Shop,
    commands_of,
    coupon_state,
    events,
    order_of,
    paid_fact,
    payment_of,
    race,
    snapshot,
)


def confirm(shop: Shop, ordered, *, seen: bool = True, **fact):
    """Confirm as the callback does: the payment was just seen AWAITING. `seen=False`: in two statements."""
    payment = payment_of(ordered)
    return confirm_paid(
        order_id=ordered.order_id,
        payment_id=payment.id,
        fact=paid_fact(payment, **fact),
        now=shop.now,
        payment_awaits=seen and payment.status == "AWAITING",
    )


def test_success_moves_order_payment_and_coupon_together(shop: Shop) -> None:
    coupon_id = shop.coupon()
    ordered, placed = shop.placed(coupon_id=coupon_id)
    paid = confirm(shop, ordered)
    assert (paid.status, paid.version, paid.coupon_state) == (10, 2, "redeemed")
    order = order_of(ordered)
    assert (order.trade_no, order.out_trade_no, order.paid_channel, order.fulfilment) == (
        f"4200{placed.out_trade_no}",
        placed.out_trade_no,
        "wechat",
        "waiting",
    )
    assert Payment.objects.get(order_no=ordered.order_no).status == "PAID"
    assert coupon_state(coupon_id) == "USED"
    redemption = CouponRedemption.objects.get()
    assert (redemption.order_no, redemption.payment_no) == (ordered.order_no, placed.out_trade_no)
    assert OrderCoupon.objects.get().lock_id == redemption.lock_id
    assert commands_of(ordered) == ["create", "confirm_paid"]
    assert [event["version"] for event in events("order.paid")] == [2]


def test_one_statement_or_two_write_the_same(shop: Shop) -> None:
    written = []
    for seen in (True, False):
        ordered, _placed = shop.placed(address={"street": str(seen)})
        confirm(shop, ordered, seen=seen)
        payment = payment_of(ordered)
        row = (payment.status, payment.version, payment.payer_ref, payment.payer_paid_fen, payment.paid_at is None)
        [event] = [each for each in events("payment.succeeded") if each["order_no"] == ordered.order_no]
        own = {ordered.order_no, payment.out_trade_no, payment.trade_no, str(payment.id)}
        assert own <= set(event.values())
        written.append((row, {name: value for name, value in event.items() if value not in own and name != "paid_at"}))
    assert written[0] == written[1]


def test_a_payment_that_does_not_await_breaks_the_one_statement(shop: Shop) -> None:
    ordered, _placed = shop.placed()
    payment = payment_of(ordered)
    Payment.objects.filter(id=payment.id).update(status="PREPAYING")
    before = snapshot()
    with pytest.raises(StatementBroken):
        confirm_paid(
            order_id=ordered.order_id,
            payment_id=payment.id,
            fact=paid_fact(payment),
            now=shop.now,
            payment_awaits=True,
        )
    assert snapshot() == before


def test_without_a_coupon(shop: Shop) -> None:
    ordered, _placed = shop.placed()
    assert confirm(shop, ordered).coupon_state == "none"


@pytest.mark.parametrize("amount_fen", [1, 30999, 31001])
def test_another_amount_moves_nothing(shop: Shop, amount_fen: int) -> None:
    """C21: the guard stands inside the conditional update."""
    ordered, _placed = shop.placed()
    before = snapshot()
    with pytest.raises(AmountDiffers):
        confirm(shop, ordered, amount_fen=amount_fen)
    assert snapshot() == before


def test_an_ended_order_is_not_confirmed(shop: Shop) -> None:
    ordered, _placed = shop.placed()
    shop.cancel(ordered)
    before = snapshot()
    with pytest.raises(IllegalTransition):
        confirm(shop, ordered)
    assert snapshot() == before


def test_replay_is_told_and_writes_nothing(shop: Shop) -> None:
    ordered, _placed = shop.placed(coupon_id=shop.coupon())
    confirm(shop, ordered)
    before = snapshot()
    assert confirm(shop, ordered).replayed
    with pytest.raises(TradeNoDiffers):
        confirm(shop, ordered, trade_no="4200another")
    assert snapshot() == before


def test_race_of_callbacks_has_one_effect(shop: Shop) -> None:
    """C17: confirm and callback in parallel."""
    ordered, _placed = shop.placed(coupon_id=shop.coupon())
    results = race(*[lambda: confirm(shop, ordered) for _ in range(6)])
    assert [result.replayed for result in results].count(False) == 1
    assert commands_of(ordered).count("confirm_paid") == 1
    assert CouponRedemption.objects.count() == 1
    assert len(events("payment.succeeded")) == 1


def test_the_carried_redeem_leaves_what_the_command_leaves(shop: Shop) -> None:
    """Redeemed by the statement that confirms the order, or by redeem_coupon: the same rows, but for ids and names."""
    carried, _ = shop.placed(coupon_id=shop.coupon())
    confirm(shop, carried)
    alone, placed = shop.placed(coupon_id=shop.coupon())
    evidence = OrderCoupon.objects.get(order_id=alone.order_id)
    redeem_coupon(
        merchant_id=shop.id,
        coupon_id=evidence.coupon_id,
        order_no=alone.order_no,
        lock_token=leases.token_for(evidence.lock_id),
        expected_version=evidence.coupon_version,
        payment_no=placed.out_trade_no,
        key=redeem_key(shop.id, alone.order_no, evidence.coupon_version, placed.out_trade_no),
        now=shop.now,
        actor=ACTOR,
    )
    assert what_a_redeem_left(shop, carried) == what_a_redeem_left(shop, alone)


def what_a_redeem_left(shop: Shop, ordered) -> list[str]:
    """Every row, with the names of this order's own things put in general terms."""
    evidence = OrderCoupon.objects.get(order_id=ordered.order_id)
    operation = CouponOperation.objects.get(coupon_id=evidence.coupon_id, command="REDEEM")
    redemption = CouponRedemption.objects.get(coupon_id=evidence.coupon_id)
    key = IdempotencyKey.objects.get(key=operation.business_key)
    rows = [
        *UserCoupon.objects.filter(pk=evidence.coupon_id).values("status", "state_version", "lock_id", "updated_at"),
        *CouponLock.objects.filter(pk=evidence.lock_id).values(),
        *CouponOperation.objects.filter(pk=operation.pk).values(),
        *CouponRedemption.objects.filter(pk=redemption.pk).values(),
        *IdempotencyKey.objects.filter(pk=key.pk).values(),
        *OutboxEvent.objects.filter(name="coupon.redeemed", subject=str(evidence.coupon_id)).values(),
    ]
    own = {
        evidence.coupon_id: "COUPON",
        evidence.lock_id: "LOCK",
        operation.pk: "OPERATION",
        redemption.pk: "REDEMPTION",
        payment_of(ordered).out_trade_no: "PAYMENT",
        ordered.order_no: "ORDER",
    }
    texts = []
    for row in rows:
        shown = {name: value for name, value in row.items() if name not in ("id", "token_hash", "request_hash")}
        text = repr(shown)
        for value, name in own.items():
            text = text.replace(str(value), name)
        texts.append(text)
    assert len(texts) == 6
    return texts
