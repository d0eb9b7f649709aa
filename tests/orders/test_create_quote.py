"""create_quote: every share named, the number allocated, the coupon leased."""

import threading
from datetime import timedelta

import pytest
from django.db import connection

from coupons.commands.queue_wallet import queue_wallet
from coupons.discount import CouponNotApplicable
from coupons.models import CouponRefusal, UserCoupon
from coupons.refusals import CouponExpired, IllegalTransition, NotOwner
from kernel.errors import IdempotencyKeyReused, NotFound
from orders.allocation import DiscountExceedsGoods, FreightSharesDoNotAddUp
from orders.commands.create_quote import AskedLine, TooManyLines
from orders.models import Quote
from tests.orders.factories import NUT, TEA, Shop, coupon_state, race, snapshot


def test_success_names_every_share(shop: Shop) -> None:
    quoted = shop.quote()
    assert quoted.payable_fen == quoted.goods_fen + quoted.freight_fen == 31000
    assert quoted.order_no.startswith("Q")
    assert quoted.expires_at == shop.now + timedelta(seconds=shop.merchant.lease_seconds)
    stored = Quote.objects.get(id=quoted.quote_id)
    assert (stored.state, stored.payable_fen, stored.lease_held) == ("OPEN", 31000, False)
    assert stored.breakdown["lines"][1]["freight_share_fen"] == 500


def test_with_a_coupon_it_holds_a_short_lease(shop: Shop) -> None:
    coupon_id = shop.coupon()
    quoted = shop.quote(coupon_id=coupon_id)
    coupon = UserCoupon.objects.get(pk=coupon_id)
    assert (coupon.status, coupon.locked_order_no) == ("LOCKED", quoted.order_no)
    assert coupon.lease_expires_at == quoted.expires_at
    assert quoted.coupon is not None
    assert (quoted.coupon.discount_fen, quoted.coupon.eligible_lines) == (5000, [1, 2])


def test_order_numbers_only_rise(shop: Shop) -> None:
    numbers = [shop.quote().order_no for _ in range(5)]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == 5


def test_quoting_again_releases_the_users_own_lease_in_the_same_transaction(shop: Shop) -> None:
    coupon_id = shop.coupon()
    first = shop.quote(coupon_id=coupon_id)
    second = shop.quote(coupon_id=coupon_id)
    assert Quote.objects.get(id=first.quote_id).state == "REPLACED"
    assert UserCoupon.objects.get(pk=coupon_id).locked_order_no == second.order_no
    assert UserCoupon.objects.get(pk=coupon_id).state_version == 4


def test_quoting_again_without_the_coupon_frees_it(shop: Shop) -> None:
    coupon_id = shop.coupon()
    shop.quote(coupon_id=coupon_id)
    shop.quote()
    assert coupon_state(coupon_id) == "AVAILABLE"


def test_a_quote_that_fails_keeps_the_lease_of_the_one_before(shop: Shop) -> None:
    coupon_id = shop.coupon()
    first = shop.quote(coupon_id=coupon_id)
    with pytest.raises(CouponNotApplicable):
        shop.quote(NUT, coupon_id=coupon_id)
    assert UserCoupon.objects.get(pk=coupon_id).locked_order_no == first.order_no
    assert Quote.objects.get(id=first.quote_id).state == "OPEN"


def refusals():
    dear = AskedLine(sku="X", title="x", unit_price_fen=100, qty=1, line_discount_fen=101)
    half = AskedLine(sku="X", title="x", unit_price_fen=100, qty=1, freight_share_fen=1)
    yield "line discount", [dear], {}, DiscountExceedsGoods
    yield "subsidy", [NUT], {"subsidy_fen": 10001, "freight_fen": 500}, DiscountExceedsGoods
    yield "points", [NUT], {"points_fen": 10001, "points_used": 1, "freight_fen": 500}, DiscountExceedsGoods
    yield "freight", [half], {"freight_fen": 2}, FreightSharesDoNotAddUp
    yield "no line", None, {}, TooManyLines
    yield "too many", [NUT] * 201, {}, TooManyLines


@pytest.mark.parametrize(
    ("lines", "values", "error"), [case[1:] for case in refusals()], ids=[c[0] for c in refusals()]
)
def test_refusals_write_nothing(shop: Shop, lines, values, error) -> None:
    before = snapshot()
    with pytest.raises(error):
        if lines is None:
            from orders.commands.create_quote import create_quote

            create_quote(merchant_id=shop.id, user_id="user-1", lines=[], key=shop.key(), now=shop.now)
        else:
            shop.quote(*lines, **values)
    assert snapshot() == before


def test_a_coupon_that_cannot_be_had_leaves_no_quote(shop: Shop) -> None:
    others = shop.coupon(user_id="user-2")
    held = shop.coupon()
    shop.order(coupon_id=held, address={"street": "elsewhere"})
    before = snapshot()
    with pytest.raises(NotOwner):
        shop.quote(coupon_id=others)
    with pytest.raises(IllegalTransition):
        shop.quote(coupon_id=held)
    with pytest.raises(NotFound):
        shop.quote(coupon_id=shop.id)
    with pytest.raises(CouponExpired):
        shop.later(days=40).quote(coupon_id=others, user_id="user-2")
    assert snapshot() == before
    assert CouponRefusal.objects.count() == 3


def test_replay_gives_the_first_answer(shop: Shop) -> None:
    key = shop.key("same", body=1)
    first = shop.quote(key=key)
    before = snapshot()
    again = shop.quote(key=key)
    assert again.replayed
    assert (again.quote_id, again.order_no, again.lines) == (first.quote_id, first.order_no, first.lines)
    with pytest.raises(IdempotencyKeyReused):
        shop.quote(key=shop.key("same", body=2))
    assert snapshot() == before


def test_race_of_one_users_quotes_for_one_coupon_ends_with_one_lease(shop: Shop) -> None:
    coupon_id = shop.coupon()
    results = race(*[lambda: shop.quote(coupon_id=coupon_id) for _ in range(6)])
    assert not [result for result in results if isinstance(result, BaseException)]
    open_quotes = Quote.objects.filter(lease_held=True)
    assert open_quotes.count() == 1
    assert UserCoupon.objects.get(pk=coupon_id).locked_order_no == open_quotes.get().order_no


def test_race_of_two_users_for_their_own_coupons_does_not_wait(shop: Shop) -> None:
    coupons = {user: shop.coupon(user_id=user) for user in ("user-1", "user-2")}
    results = race(
        *[lambda user=user: shop.quote(user_id=user, coupon_id=coupons[user]) for user in ("user-1", "user-2")]
    )
    assert not [result for result in results if isinstance(result, BaseException)]
    assert Quote.objects.filter(lease_held=True).count() == 2


def test_a_quote_waits_in_the_queue_before_its_users_wallet(shop: Shop) -> None:
    coupon_id, user = shop.coupon(), shop.user_id
    quotes: list[str] = []

    def quote() -> None:
        quotes.append(shop.quote(coupon_id=coupon_id).order_no)
        connection.close()

    with queue_wallet(merchant_id=shop.merchant.pk, user_id=user, now=shop.now):
        waiting = threading.Thread(target=quote)
        waiting.start()
        while not _waits_for_an_advisory_lock():
            assert waiting.is_alive()
            waiting.join(0.02)
        assert not quotes
    waiting.join(60)

    assert coupon_state(coupon_id) == "LOCKED"
    assert UserCoupon.objects.get(pk=coupon_id).locked_order_no == quotes[0]


def _waits_for_an_advisory_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return bool(cursor.fetchone()[0])


def test_race_of_one_key_gives_one_quote(shop: Shop) -> None:
    key = shop.key("double", body=1)
    results = race(*[lambda: shop.quote(key=key) for _ in range(4)])
    assert len({result.order_no for result in results}) == 1
    assert Quote.objects.count() == 1


def test_points_are_named_on_every_line(shop: Shop) -> None:
    quoted = shop.quote(points_fen=100, points_used=100)
    assert [line.points_used for line in quoted.lines] == [33, 67]
    assert quoted.payable_fen == 30900


def test_an_exchange_coupon_adds_a_free_line(shop: Shop) -> None:
    from coupons.commands.create_template import create_template
    from coupons.commands.issue_coupon import issue_coupon

    create_template(
        merchant_id=shop.id,
        code="cup",
        name="免费茶杯",
        policy_code="standard",
        kind="EXCHANGE",
        exchange_sku="CUP",
        valid_days=30,
        now=shop.now,
    )
    issued = issue_coupon(merchant_id=shop.id, user_id="user-1", template_code="cup", key=shop.key(), now=shop.now)
    quoted = shop.quote(NUT, TEA, freight_fen=1000, coupon_id=issued.coupon_id)
    free = quoted.lines[-1]
    assert (free.line_no, free.sku, free.qty, free.net_fen, free.freight_share_fen) == (3, "CUP", 1, 0, 0)
    assert quoted.payable_fen == 31000
