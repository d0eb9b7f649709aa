"""Redeem: LOCKED → USED, by the order that holds the coupon, under the version it knows."""

from datetime import timedelta

import pytest

from coupons.models import CouponLock, CouponOperation, CouponRedemption, UserCoupon
from coupons.refusals import KeyReused, NotOwner, TokenMismatch, VersionConflict
from kernel.models import OutboxEvent
from tests.coupons.factories import Shop, refusals, state, written


def test_the_holder_redeems(shop: Shop) -> None:
    coupon = shop.issue()
    lease = shop.lock(coupon.coupon_id, "A")

    done = shop.redeem(lease)

    assert state(coupon.coupon_id) == ("USED", 3)
    redemption = CouponRedemption.objects.get()
    assert (redemption.pk, redemption.order_no, redemption.payment_no) == (done.redemption_id, "A", "pay-A")
    assert redemption.lock_id == lease.lock_id
    operation = CouponOperation.objects.get(coupon_id=coupon.coupon_id, to_version=3)
    assert (operation.command, operation.from_version, operation.from_status) == ("REDEEM", 2, "LOCKED")
    assert CouponLock.objects.get().ended_by_id == operation.pk
    event = OutboxEvent.objects.get(name="coupon.redeemed")
    assert event.payload["redemption_id"] == str(done.redemption_id)
    assert UserCoupon.objects.get().lock_token_hash is None


def test_a_lease_is_owned_until_released_not_until_it_expires(shop: Shop) -> None:
    lease = shop.lock(shop.issue().coupon_id, "A", lease_seconds=60)

    late = shop.redeem(lease, now=shop.now + timedelta(days=400))

    assert late.status == "USED"


@pytest.mark.parametrize(
    ("wrong", "refusal", "matched"),
    [
        ({"lock_token": "x" * 64}, TokenMismatch, False),
        ({"lock_token": ""}, TokenMismatch, False),
        ({"order_no": "B"}, NotOwner, True),
        ({"expected_version": 1}, VersionConflict, True),
        ({"expected_version": 3}, VersionConflict, True),
    ],
)
def test_what_does_not_prove_ownership_is_refused(shop: Shop, wrong, refusal, matched) -> None:
    lease = shop.lock(shop.issue().coupon_id, "A")
    before = written()

    with pytest.raises(refusal) as refused:
        shop.redeem(lease, **wrong)

    assert written() == before
    expected = wrong.get("expected_version", 2)
    assert refusals() == [("REDEEM", refusal.code, expected, 2, matched)]
    assert "next_actions" in refused.value.data
    assert lease.lock_token not in str(refused.value.data)


def test_a_replay_returns_the_first_result(shop: Shop) -> None:
    lease = shop.lock(shop.issue().coupon_id, "A")
    first = shop.redeem(lease, key="pay")
    before = written()

    again = shop.redeem(lease, key="pay", now=shop.now + timedelta(hours=1))

    assert again.replayed
    assert (again.redemption_id, again.redeemed_at) == (first.redemption_id, first.redeemed_at)
    assert written() == before


def test_a_second_payment_fact_of_the_same_order_returns_the_same_redemption(shop: Shop) -> None:
    lease = shop.lock(shop.issue().coupon_id, "A")
    first = shop.redeem(lease, key="fact-1")
    before = written()

    second = shop.redeem(lease, key="fact-2", payment_no="another")

    assert second.replayed
    assert second.redemption_id == first.redemption_id
    assert written() == before
    assert refusals() == []


def test_a_key_of_another_request_is_refused(shop: Shop) -> None:
    lease = shop.lock(shop.issue().coupon_id, "A")
    other = shop.lock(shop.issue("user-2").coupon_id, "B", user_id="user-2")
    shop.redeem(lease, key="pay")
    before = written()

    with pytest.raises(KeyReused):
        shop.redeem(other, key="pay")

    assert written() == before
    assert refusals() == [("REDEEM", "IDEMPOTENCY_KEY_REUSED", 2, None, None)]


def test_the_incident(shop: Shop) -> None:
    """C0: A's lease was released, B holds the coupon, A's paid callback arrives late."""
    coupon = shop.issue()
    a = shop.lock(coupon.coupon_id, "A")
    shop.release(a)
    b = shop.lock(coupon.coupon_id, "B")
    before = written()

    with pytest.raises(TokenMismatch):
        shop.redeem(a)

    assert written() == before
    assert state(coupon.coupon_id) == ("LOCKED", 4)
    assert shop.redeem(b).order_no == "B"
    with pytest.raises(TokenMismatch):
        shop.redeem(a)
    assert CouponRedemption.objects.get(ended_by=None).order_no == "B"
