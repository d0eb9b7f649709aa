"""expire_quote: its time is over, the lease is released, once."""

from coupons.models import UserCoupon
from orders.commands._release_quote import expire_quote
from orders.models import Quote
from tests.orders.factories import Shop, coupon_state, race, snapshot


def test_success_releases_the_lease(shop: Shop) -> None:
    coupon_id = shop.coupon()
    quoted = shop.quote(coupon_id=coupon_id)
    given_up = expire_quote(quote_id=quoted.quote_id, now=quoted.expires_at)
    assert (given_up.state, given_up.released) == ("EXPIRED", True)
    assert coupon_state(coupon_id) == "AVAILABLE"
    assert not Quote.objects.get(id=quoted.quote_id).lease_held


def test_before_its_time_nothing_is_written(shop: Shop) -> None:
    quoted = shop.quote(coupon_id=shop.coupon())
    before = snapshot()
    assert expire_quote(quote_id=quoted.quote_id, now=shop.now).replayed
    assert snapshot() == before


def test_an_ordered_quote_does_not_expire(shop: Shop) -> None:
    coupon_id = shop.coupon()
    ordered = shop.order(coupon_id=coupon_id)
    quote = Quote.objects.get(order_no=ordered.order_no)
    before = snapshot()
    assert expire_quote(quote_id=quote.id, now=quote.expires_at).state == "ORDERED"
    assert snapshot() == before
    assert coupon_state(coupon_id) == "LOCKED"


def test_a_lease_that_is_no_longer_its_own_is_left_alone(shop: Shop) -> None:
    coupon_id = shop.coupon()
    first = shop.quote(coupon_id=coupon_id)
    expire_quote(quote_id=first.quote_id, now=first.expires_at)
    later = shop.later(hours=1)
    second = later.quote(coupon_id=coupon_id)
    assert expire_quote(quote_id=first.quote_id, now=later.now).replayed
    assert UserCoupon.objects.get(pk=coupon_id).locked_order_no == second.order_no


def test_race_of_two_sweeps_releases_once(shop: Shop) -> None:
    coupon_id = shop.coupon()
    quoted = shop.quote(coupon_id=coupon_id)
    results = race(*[lambda: expire_quote(quote_id=quoted.quote_id, now=quoted.expires_at) for _ in range(4)])
    assert [result.released for result in results].count(True) == 1
    assert UserCoupon.objects.get(pk=coupon_id).state_version == 3
