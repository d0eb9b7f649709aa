"""Renew: the holder gets more time, as a new version; never by editing the time in place."""

from datetime import timedelta
from functools import partial

import pytest

from coupons.commands.renew_coupon import Renewed
from coupons.models import CouponLock, CouponOperation, UserCoupon
from coupons.refusals import AlreadyRedeemed, IllegalTransition, NotOwner, TokenMismatch, VersionConflict
from kernel.errors import InvalidInput
from tests.coupons.factories import Shop, race, refusals, state, written


def test_the_holder_renews(shop: Shop) -> None:
    lease = shop.lock(shop.issue().coupon_id, "A")
    until = shop.now + timedelta(hours=1)

    renewed = shop.renew(lease, expires_at=until)

    assert (renewed.state_version, renewed.expires_at, renewed.lock_id) == (3, until, lease.lock_id)
    assert UserCoupon.objects.get().lease_expires_at == CouponLock.objects.get().expires_at == until
    history = CouponOperation.objects.filter(command__in=["LOCK", "RENEW"]).order_by("to_version")
    assert [row.lease_expires_at for row in history] == [lease.expires_at, until]
    assert shop.redeem(lease, expected_version=3).status == "USED"


def test_also_after_the_leases_time_as_long_as_nobody_released_it(shop: Shop) -> None:
    lease = shop.lock(shop.issue().coupon_id, "A", lease_seconds=60)
    late = shop.now + timedelta(hours=2)

    assert shop.renew(lease, now=late, expires_at=late + timedelta(minutes=5)).state_version == 3


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
        shop.renew(lease, **wrong)

    assert written() == before
    assert UserCoupon.objects.get().lease_expires_at == lease.expires_at
    assert [code for _command, code, *_rest in refusals()] == [refusal.code]


def test_after_the_end_of_the_lease(shop: Shop) -> None:
    released = shop.lock(shop.issue().coupon_id, "A")
    shop.release(released)
    used = shop.lock(shop.issue().coupon_id, "B")
    shop.redeem(used)
    before = written()

    with pytest.raises(VersionConflict):
        shop.renew(released)
    with pytest.raises(IllegalTransition):
        shop.renew(released, expected_version=3)
    with pytest.raises(VersionConflict):
        shop.renew(used)
    with pytest.raises(AlreadyRedeemed):
        shop.renew(used, expected_version=3)

    assert written() == before


def test_into_the_past(shop: Shop) -> None:
    lease = shop.lock(shop.issue().coupon_id, "A")

    with pytest.raises(InvalidInput):
        shop.renew(lease, expires_at=shop.now)

    assert state(lease.coupon_id) == ("LOCKED", 2)


def test_a_replay(shop: Shop) -> None:
    lease = shop.lock(shop.issue().coupon_id, "A")
    first = shop.renew(lease, key="k")
    before = written()

    again = shop.renew(lease, key="k")

    assert again.replayed
    assert {**vars(again), "replayed": False} == vars(first)
    assert written() == before


def test_renew_against_release_at_once(shop: Shop) -> None:
    lease = shop.lock(shop.issue().coupon_id, "A")

    results = race([partial(shop.renew, lease), partial(shop.release, lease)])

    won, lost = sorted(results, key=lambda result: isinstance(result, Exception))
    assert isinstance(lost, VersionConflict)
    assert state(lease.coupon_id) == (("LOCKED" if isinstance(won, Renewed) else "AVAILABLE"), 3)
