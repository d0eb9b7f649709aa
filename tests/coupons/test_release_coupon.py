"""Release: LOCKED → AVAILABLE, or EXPIRED once the coupon's own validity is over; only by its holder."""

from datetime import timedelta
from functools import partial

import pytest

from coupons.models import CouponLock, CouponOperation
from coupons.refusals import AlreadyRedeemed, IllegalTransition, NotOwner, TokenMismatch, VersionConflict
from tests.coupons.factories import Shop, race, refusals, state, written


def test_the_holder_releases(shop: Shop) -> None:
    lease = shop.lock(shop.issue().coupon_id, "A")

    released = shop.release(lease, reason="order closed")

    assert (released.status, released.state_version, released.lock_id) == ("AVAILABLE", 3, lease.lock_id)
    operation = CouponOperation.objects.get(to_version=3)
    assert (operation.command, operation.reason, operation.lock_id) == ("RELEASE", "order closed", lease.lock_id)
    assert CouponLock.objects.get().ended_by_id == operation.pk


def test_a_coupon_whose_validity_is_over_does_not_come_back(shop: Shop) -> None:
    lease = shop.lock(shop.issue().coupon_id, "A")

    released = shop.release(lease, now=shop.now + timedelta(days=40))

    assert (released.status, state(lease.coupon_id)) == ("EXPIRED", ("EXPIRED", 3))


@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [
        ({"lock_token": "y" * 64}, TokenMismatch),
        ({"order_no": "B"}, NotOwner),
        ({"expected_version": 1}, VersionConflict),
    ],
)
def test_what_does_not_prove_ownership_is_refused(shop: Shop, wrong, refusal) -> None:
    lease = shop.lock(shop.issue().coupon_id, "A")
    before = written()

    with pytest.raises(refusal):
        shop.release(lease, **wrong)

    assert written() == before
    assert [code for _command, code, *_rest in refusals()] == [refusal.code]


def test_an_old_lease_never_releases_a_newer_one(shop: Shop) -> None:
    a = shop.lock(shop.issue().coupon_id, "A")
    shop.release(a)
    b = shop.lock(a.coupon_id, "B")
    before = written()

    for version in (a.state_version, b.state_version):
        with pytest.raises(TokenMismatch):
            shop.release(a, expected_version=version)

    assert written() == before
    assert state(a.coupon_id) == ("LOCKED", 4)


def test_the_same_order_under_an_older_lease(shop: Shop) -> None:
    first = shop.lock(shop.issue().coupon_id, "A")
    shop.release(first)
    second = shop.lock(first.coupon_id, "A")

    with pytest.raises(TokenMismatch):
        shop.release(first, expected_version=second.state_version)

    assert shop.release(second).state_version == 5


def test_released_twice(shop: Shop) -> None:
    """C12: the second release is a replay; another release command meets the new version."""
    lease = shop.lock(shop.issue().coupon_id, "A")
    first = shop.release(lease, key="close")
    before = written()

    again = shop.release(lease, key="close")
    with pytest.raises(VersionConflict):
        shop.release(lease, key="sweep")
    with pytest.raises(IllegalTransition):
        shop.release(lease, expected_version=3)

    assert again.replayed
    assert {**vars(again), "replayed": False} == vars(first)
    assert written() == before


def test_a_used_coupon_is_not_released(shop: Shop) -> None:
    lease = shop.lock(shop.issue().coupon_id, "A")
    shop.redeem(lease)

    with pytest.raises(VersionConflict):
        shop.release(lease)
    with pytest.raises(AlreadyRedeemed):
        shop.release(lease, expected_version=3)

    assert state(lease.coupon_id) == ("USED", 3)


def test_pay_against_close_at_once(shop: Shop) -> None:
    for _round in range(5):
        lease = shop.lock(shop.issue().coupon_id, "A")

        results = race([partial(shop.redeem, lease), partial(shop.release, lease)])

        lost = [result for result in results if isinstance(result, Exception)]
        assert [refusal.code for refusal in lost] == ["VERSION_CONFLICT"]
        assert state(lease.coupon_id)[1] == 3


def test_the_same_release_at_once(shop: Shop) -> None:
    lease = shop.lock(shop.issue().coupon_id, "A")

    results = race([partial(shop.release, lease, key="close") for _ in range(5)])

    assert sum(result.replayed for result in results) == 4
    assert state(lease.coupon_id) == ("AVAILABLE", 3)
