"""The coupon after refunds: kept by a partial refund, back once when everything is given back by quantity."""

from datetime import timedelta

import pytest

from coupons.models import CouponOperation, RefundCoupon, UserCoupon
from merchants.models import Merchant
from tests.aftersales.build import Line, a_paid_order, nut_and_tea
from tests.coupons.factories import make_shop

pytestmark = pytest.mark.django_db


@pytest.fixture
def shop(now):
    return make_shop(now)


def redeemed_for(shop, paid) -> UserCoupon:
    issued = shop.issue()
    shop.redeem(shop.lock(issued.coupon_id, paid.order.order_no))
    return UserCoupon.objects.get(pk=issued.coupon_id)


def merchant_of(shop) -> Merchant:
    return Merchant.objects.get(pk=shop.merchant_id)


def refund(paid, line_no: int, **wish) -> str:
    number = paid.apply(line_no, **wish).after_sales_no
    paid.approve(number)
    paid.channel_says(f"{number}-0")
    return number


def test_the_refund_that_completes_the_order_returns_the_coupon_with_its_validity(shop, now):
    paid = nut_and_tea(now, merchant=merchant_of(shop))
    before = redeemed_for(shop, paid)
    first = refund(paid, 2)
    coupon = UserCoupon.objects.get()
    assert coupon.status == "USED"
    second = refund(paid, 1)
    coupon.refresh_from_db()
    assert (coupon.status, coupon.valid_from, coupon.valid_until) == (
        "AVAILABLE",
        before.valid_from,
        before.valid_until,
    )
    assert list(RefundCoupon.objects.order_by("id").values_list("cause_no", "decision")) == [
        (first, "KEEP"),
        (second, "RETURN"),
    ]


def test_a25_the_buyers_fault_keeps_the_freight_and_returns_the_coupon_once(shop, now):
    paid = nut_and_tea(now, merchant=merchant_of(shop))
    redeemed_for(shop, paid)
    for number in (1, 2):
        paid.ship(number)
    claims = [paid.returned(number, reason="changed_mind") for number in (1, 2)]
    for claim in claims:
        paid.confirm(claim)
        paid.channel_says(f"{claim}-0")
    paid.payment.refresh_from_db()
    assert paid.payment.refunded_fen == 25000
    assert UserCoupon.objects.get().status == "AVAILABLE"
    assert CouponOperation.objects.filter(command="RETURN").count() == 1


def test_a33_compensation_never_returns_the_coupon(shop, now):
    paid = a_paid_order(now, Line(30000), coupon=5000, merchant=merchant_of(shop))
    redeemed_for(shop, paid)
    paid.ship(1)
    refund(paid, 1, goods_fen=24999, reason="damaged")
    assert UserCoupon.objects.get().status == "USED"
    assert RefundCoupon.objects.get().decision == "KEEP"


def test_an_expired_coupon_is_kept(shop, now):
    paid = nut_and_tea(now, merchant=merchant_of(shop))
    redeemed_for(shop, paid)
    paid.now = now + timedelta(days=60)
    for number in (1, 2):
        refund(paid, number)
    assert UserCoupon.objects.get().status == "USED"
    assert RefundCoupon.objects.order_by("-id")[0].reasons == ["FULL_REFUND", "COUPON_EXPIRED"]


def test_an_order_without_a_coupon_has_nothing_to_decide(shop, now):
    paid = nut_and_tea(now, merchant=merchant_of(shop))
    number = refund(paid, 1)
    assert paid.claim(number).rollbacks.get(system="coupon").result == {"outcome": "nothing_to_do"}
    assert not RefundCoupon.objects.exists()
