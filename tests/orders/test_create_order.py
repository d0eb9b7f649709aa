"""create_order: one quote, one order; reuse, supersede, and what a refusal leaves behind."""

from datetime import timedelta

import pytest

from coupons.models import UserCoupon
from kernel import numbers
from kernel.errors import IdempotencyKeyReused, NotFound
from ledgers.commands.move_stock import OutOfStock
from orders.commands.create_order import (
    OrderAlreadyPaid,
    PayMethodInvalid,
    PreviousOrderUndecided,
    QuoteExpired,
    QuoteReplaced,
    QuoteUsed,
)
from orders.models import Anomaly, Order, OrderCoupon, Quote
from payments.models import Payment
from tests.orders.factories import (
    CARD,
    NUT,
    AskedLine,
    Shop,
    channel_state,
    commands_of,
    coupon_state,
    events,
    order_of,
    race,
    snapshot,
    stock_of,
)


def test_success_writes_order_lines_log_evidence_stock_and_event(shop: Shop) -> None:
    coupon_id = shop.coupon()
    ordered = shop.order(coupon_id=coupon_id)
    order = order_of(ordered)
    assert (order.status, order.version, order.payable_fen, order.coupon_state) == (0, 1, 26000, "leased")
    assert order.pay_expires_at == shop.now + timedelta(seconds=shop.merchant.payment_window_seconds)
    assert [line.net_fen for line in order.lines.all()] == [8333, 16667]
    assert commands_of(ordered) == ["create"]
    assert [event["order_no"] for event in events("order.created")] == [ordered.order_no]
    evidence = OrderCoupon.objects.get(order=order)
    coupon = UserCoupon.objects.get(pk=coupon_id)
    assert coupon.lease_expires_at == evidence.lease_expires_at == order.pay_expires_at
    assert (evidence.coupon_version, evidence.lock_id) == (coupon.state_version, coupon.lock_id)
    assert (stock_of(shop, "NUT"), stock_of(shop, "TEA")) == ((9, 1), (9, 1))


def test_the_token_is_long_random_and_kept_as_a_digest_only(shop: Shop) -> None:
    first, second = shop.order(NUT, freight_fen=500), shop.order(CARD)
    assert len(first.order_token) == 43
    assert first.order_token != second.order_token
    order = order_of(first)
    assert bytes(order.order_token_hash) == numbers.sha256(first.order_token)
    everything = str(Order.objects.values()) + str(Quote.objects.values())
    assert first.order_token not in everything


def test_free_order_is_paid_at_once_without_a_channel(shop: Shop) -> None:
    ordered = shop.order(AskedLine(sku="GIFT", title="赠品", unit_price_fen=0, qty=1))
    payment = Payment.objects.get(order_no=ordered.order_no)
    assert (ordered.status, ordered.pay_method) == (10, "none")
    assert (payment.kind, payment.channel, payment.status, payment.amount_fen) == ("none", "none", "PAID", 0)
    assert commands_of(ordered) == ["create", "confirm_paid"]
    assert [event["version"] for event in events("order.paid")] == [2]


def test_the_same_again_reuses_the_pending_order(shop: Shop) -> None:
    first = shop.order()
    second = shop.order()
    assert second.reused
    assert (second.order_no, second.order_token) == (first.order_no, first.order_token)
    assert Order.objects.count() == 1
    assert stock_of(shop, "NUT") == (9, 1)


def test_the_same_with_its_coupon_reuses_and_keeps_one_lease(shop: Shop) -> None:
    coupon_id = shop.coupon()
    first = shop.order(coupon_id=coupon_id)
    quoted = shop.quote(coupon_id=coupon_id)
    assert quoted.coupon is not None
    assert (quoted.coupon.held_by_order_no, quoted.coupon.lock_id) == (first.order_no, None)
    second = shop.order(quote=quoted)
    assert (second.reused, second.order_no) == (True, first.order_no)
    assert UserCoupon.objects.get(pk=coupon_id).locked_order_no == first.order_no


def test_another_price_supersedes_after_asking_the_channel(shop: Shop) -> None:
    first, placed = shop.placed()
    second = shop.order(subsidy_fen=100)
    assert not second.reused
    old = order_of(first)
    assert (old.status, old.closed_reason) == (40, "superseded")
    assert channel_state(shop, placed.out_trade_no) == "CLOSED"
    assert Payment.objects.get(order_no=first.order_no).status == "CLOSED"
    assert stock_of(shop, "NUT") == (9, 1)


def test_superseding_hands_the_coupon_over(shop: Shop) -> None:
    coupon_id = shop.coupon()
    first = shop.order(coupon_id=coupon_id)
    second = shop.order(coupon_id=coupon_id, subsidy_fen=100)
    assert order_of(first).coupon_state == "released"
    assert UserCoupon.objects.get(pk=coupon_id).locked_order_no == second.order_no
    assert order_of(second).coupon_state == "leased"


def test_an_old_order_found_paid_is_settled_and_told(shop: Shop) -> None:
    first, placed = shop.placed()
    shop.simulator.pay(placed.out_trade_no, notify=False)
    with pytest.raises(OrderAlreadyPaid) as refusal:
        shop.order(subsidy_fen=100)
    assert refusal.value.data["order_no"] == first.order_no
    assert order_of(first).status == 10
    assert Order.objects.count() == 1


def test_an_old_order_nobody_knows_about_stops_the_new_one(shop: Shop) -> None:
    first, _placed = shop.placed()
    shop.simulator.fault("wechat.query", "server_error", times=20)
    with pytest.raises(PreviousOrderUndecided):
        shop.order(subsidy_fen=100)
    assert order_of(first).status == 0
    assert Anomaly.objects.get().kind == "superseded_gateway_close_failed"
    assert Order.objects.count() == 1


def test_refusals_write_nothing(shop: Shop) -> None:
    coupon_id = shop.coupon()
    used = shop.quote(CARD)
    shop.order(quote=used)
    replaced = shop.quote(coupon_id=coupon_id)
    quoted = shop.quote(coupon_id=coupon_id)
    before = snapshot()
    for quote, error, values in [
        (quoted, QuoteExpired, {"now": quoted.expires_at}),
        (replaced, QuoteReplaced, {}),
        (used, QuoteUsed, {"pay_method": "alipay"}),
        (quoted, PayMethodInvalid, {"pay_method": "cash"}),
        (quoted, PayMethodInvalid, {"pay_method": "none"}),
    ]:
        with pytest.raises(error):
            shop.order(quote=quote, **values)
    with pytest.raises(NotFound):
        from orders.commands.create_order import create_order

        create_order(merchant_id=shop.id, quote_id=shop.id, pay_method="wechat", key=shop.key(), now=shop.now)
    assert snapshot() == before


def test_out_of_stock_rolls_everything_back(shop: Shop) -> None:
    coupon_id = shop.coupon()
    quoted = shop.quote(AskedLine(sku="TEA", title="茶", unit_price_fen=20000, qty=11), coupon_id=coupon_id)
    before = snapshot()
    with pytest.raises(OutOfStock):
        shop.order(quote=quoted)
    assert snapshot() == before
    assert Quote.objects.get(id=quoted.quote_id).state == "OPEN"


def test_replay_gives_the_first_answer_and_the_token_again(shop: Shop) -> None:
    key = shop.key("same", body=1)
    quoted = shop.quote()
    first = shop.order(quote=quoted, key=key)
    before = snapshot()
    again = shop.order(quote=quoted, key=key)
    assert again.replayed
    assert (again.order_no, again.order_token, again.version) == (first.order_no, first.order_token, 1)
    with pytest.raises(IdempotencyKeyReused):
        shop.order(quote=quoted, key=shop.key("same", body=2))
    assert snapshot() == before


def test_race_of_one_quote_makes_one_order(shop: Shop) -> None:
    quoted = shop.quote(coupon_id=shop.coupon())
    results = race(*[lambda: shop.order(quote=quoted) for _ in range(5)])
    orders = [result for result in results if not isinstance(result, BaseException)]
    assert len({ordered.order_no for ordered in orders}) == 1
    assert Order.objects.count() == 1
    assert all(isinstance(result, QuoteUsed) for result in results if isinstance(result, BaseException))
    assert stock_of(shop, "NUT") == (9, 1)


def test_race_of_the_same_cart_makes_one_pending_order(shop: Shop) -> None:
    quotes = [shop.quote() for _ in range(5)]
    results = race(*[lambda quote=quote: shop.order(quote=quote) for quote in quotes])
    assert not [result for result in results if isinstance(result, BaseException)]
    assert len({ordered.order_no for ordered in results}) == 1
    assert Order.objects.filter(status=0).count() == 1
    assert [ordered.reused for ordered in results].count(False) == 1


def test_race_for_the_last_pieces_never_goes_below_zero(shop: Shop) -> None:
    line = AskedLine(sku="TEA", title="茶", unit_price_fen=20000, qty=3)
    quotes = [shop.quote(line, user_id=f"user-{number}") for number in range(6)]
    results = race(*[lambda quote=quote: shop.order(quote=quote) for quote in quotes])
    refused = [result for result in results if isinstance(result, OutOfStock)]
    assert (len(results) - len(refused), len(refused)) == (3, 3)
    assert stock_of(shop, "TEA") == (1, 9)


def test_two_checkouts_of_one_coupon_give_one_discounted_order(shop: Shop) -> None:
    """C1, C6: two browsers; the loser is told why."""
    coupon_id = shop.coupon()
    first = shop.quote(coupon_id=coupon_id)
    second = shop.quote(coupon_id=coupon_id, address={"street": "elsewhere"})
    shop.order(quote=second)
    with pytest.raises(QuoteReplaced):
        shop.order(quote=first)
    assert Order.objects.filter(discount_fen=5000).count() == 1
    assert coupon_state(coupon_id) == "LOCKED"
