"""Many connections at once: one winner, typed refusals with evidence, one version each, invariants everywhere."""

from collections import Counter
from functools import partial

import pytest
from django.db import connection

from coupons.commands.lock_coupon import Locked
from coupons.commands.redeem_coupon import Redeemed
from coupons.models import CouponLock, CouponOperation, CouponRedemption, CouponRefusal
from coupons.refusals import CouponRefused
from tests.coupons.factories import Shop, decide, give_back, race, state, undo, void

ORDERS = 200
CONNECTIONS = 32


@pytest.mark.slow
@pytest.mark.parametrize("expected_version", [None, 1])
def test_200_orders_race_for_one_coupon(shop: Shop, expected_version) -> None:
    """C3: whoever the coupon was promised to, one order gets it."""
    coupon_id = shop.issue().coupon_id
    seen: set[int] = set()

    def compete(order: str) -> Locked:
        seen.add(connection.connection.info.backend_pid)
        return shop.lock(coupon_id, order, expected_version=expected_version)

    results = race([partial(compete, f"O{number}") for number in range(ORDERS)], connections=CONNECTIONS)

    won = [result for result in results if isinstance(result, Locked)]
    lost = [result for result in results if isinstance(result, CouponRefused)]
    assert (len(won), len(lost)) == (1, ORDERS - 1)
    code = "ILLEGAL_TRANSITION" if expected_version is None else "VERSION_CONFLICT"
    assert Counter(refusal.code for refusal in lost) == {code: ORDERS - 1}
    assert CouponRefusal.objects.filter(coupon_id=coupon_id, code=code).count() == ORDERS - 1
    assert len(set(CouponRefusal.objects.values_list("order_no", flat=True))) == ORDERS - 1
    assert state(coupon_id) == ("LOCKED", 2)
    assert CouponLock.objects.get().order_no == won[0].order_no
    assert len(seen) >= CONNECTIONS


@pytest.mark.slow
def test_one_lease_wanted_by_everything_at_once(shop: Shop) -> None:
    """Pay against close against renew against the second delivery of each."""
    for _round in range(10):
        lease = shop.lock(shop.issue().coupon_id, "A")
        commands = [
            partial(shop.redeem, lease, key=f"pay-{lease.lock_id}"),
            partial(shop.redeem, lease, key=f"pay-{lease.lock_id}"),
            partial(shop.release, lease, key=f"close-{lease.lock_id}"),
            partial(shop.release, lease, key=f"close-{lease.lock_id}"),
            partial(shop.renew, lease),
            partial(void, shop, lease.coupon_id, expected_version=2),
        ]

        results = race(commands)

        done = [result for result in results if not isinstance(result, Exception)]
        assert len([result for result in done if not result.replayed]) == 1
        assert state(lease.coupon_id)[1] == 3


@pytest.mark.slow
def test_five_deliveries_of_one_payment(shop: Shop) -> None:
    lease = shop.lock(shop.issue().coupon_id, "A")

    results = race([partial(shop.redeem, lease, key="notify") for _ in range(5)])

    assert len({result.redemption_id for result in results}) == 1
    assert sum(isinstance(result, Redeemed) and not result.replayed for result in results) == 1
    assert CouponRedemption.objects.count() == 1


@pytest.mark.slow
def test_return_against_undo_against_void(shop: Shop) -> None:
    for _round in range(5):
        done = shop.redeem(shop.lock(shop.issue().coupon_id, "A"))
        decided = decide(shop, done.redemption_id)

        results = race(
            [
                partial(give_back, shop, decided, expected_version=3),
                partial(undo, shop, done.coupon_id),
                partial(void, shop, done.coupon_id, expected_version=3),
            ]
        )

        assert sum(not isinstance(result, Exception) for result in results) == 1
        assert state(done.coupon_id)[1] == 4
        assert CouponOperation.objects.filter(coupon_id=done.coupon_id, to_version=4).count() == 1


@pytest.mark.slow
def test_two_shoppers_in_a_circle(shop: Shop) -> None:
    """Many coupons, many orders, each trying all coupons: every coupon ends with one holder, nobody deadlocks."""
    coupons = [shop.issue().coupon_id for _ in range(6)]
    wishes = [
        partial(shop.lock, coupon, f"O{order}")
        for order in range(8)
        for coupon in (coupons if order % 2 else coupons[::-1])
    ]

    results = race(wishes, connections=12)

    assert sum(isinstance(result, Locked) for result in results) == len(coupons)
    assert all(state(coupon) == ("LOCKED", 2) for coupon in coupons)
