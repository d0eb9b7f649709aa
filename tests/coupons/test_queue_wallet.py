"""The queue before a wallet: no collisions inside it, and the conditional update for those who do not queue."""

import threading
from contextlib import nullcontext
from functools import partial
from itertools import count

import pytest
from django.db import connection

from coupons.commands import queue_wallet as queue
from coupons.commands.lock_coupon import Locked
from coupons.commands.queue_wallet import WalletBusy, queue_wallet
from coupons.models import CouponRefusal, UserCoupon
from coupons.refusals import CouponRefused
from tests.coupons.factories import Shop, race, state


def take_one(shop: Shop, order: str, *, queued: bool, seen: threading.Barrier | None = None) -> Locked:
    """What a checkout does: look which coupon is free, take it; another try when it was taken meanwhile."""
    for attempt in count():
        place = queue_wallet(merchant_id=shop.merchant_id, user_id="user-1", now=shop.now) if queued else nullcontext()
        try:
            with place:
                free = UserCoupon.objects.filter(user_id="user-1", status="AVAILABLE").order_by("id").first()
                assert free is not None
                if seen is not None and attempt == 0:
                    seen.wait(20)
                return shop.lock(free.pk, order, expected_version=free.state_version)
        except CouponRefused:
            continue
    raise AssertionError


def test_without_a_queue_checkouts_collide_and_each_gets_one_all_the_same(shop: Shop) -> None:
    coupons = [shop.issue().coupon_id for _ in range(6)]
    seen = threading.Barrier(6)

    results = race([partial(take_one, shop, f"O{n}", queued=False, seen=seen) for n in range(6)])

    assert len({lease.coupon_id for lease in results}) == 6
    assert all(state(coupon) == ("LOCKED", 2) for coupon in coupons)
    assert CouponRefusal.objects.count() >= 5


def test_in_the_queue_nobody_collides(shop: Shop) -> None:
    for _ in range(12):
        shop.issue()

    results = race([partial(take_one, shop, f"O{n}", queued=True) for n in range(12)])

    assert len({lease.coupon_id for lease in results}) == 12
    assert CouponRefusal.objects.count() == 0


def test_another_wallet_does_not_wait(shop: Shop) -> None:
    reached: list[str] = []

    def other() -> None:
        with queue_wallet(merchant_id=shop.merchant_id, user_id="user-2", now=shop.now):
            reached.append("user-2")
        connection.close()

    with queue_wallet(merchant_id=shop.merchant_id, user_id="user-1", now=shop.now):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(20)

    assert reached == ["user-2"]


def test_who_does_not_queue_is_kept_in_order_by_the_update(shop: Shop) -> None:
    coupon_id = shop.issue().coupon_id
    results = []

    def outsider() -> None:
        results.append(shop.lock(coupon_id, "outside"))
        connection.close()

    with pytest.raises(CouponRefused), queue_wallet(merchant_id=shop.merchant_id, user_id="user-1", now=shop.now):
        free = UserCoupon.objects.get(pk=coupon_id)
        thread = threading.Thread(target=outsider)
        thread.start()
        thread.join(20)
        shop.lock(coupon_id, "inside", expected_version=free.state_version)

    assert results[0].order_no == "outside"
    assert CouponRefusal.objects.get().order_no == "inside"


def test_a_queue_that_does_not_move_is_left(shop: Shop, monkeypatch) -> None:
    monkeypatch.setattr(queue, "WAIT_MILLISECONDS", 100)
    found = []

    def late() -> None:
        try:
            with queue_wallet(merchant_id=shop.merchant_id, user_id="user-1", now=shop.now):
                found.append("in")
        except WalletBusy as busy:
            found.append(busy.data["retry_after_seconds"])
        connection.close()

    with queue_wallet(merchant_id=shop.merchant_id, user_id="user-1", now=shop.now):
        thread = threading.Thread(target=late)
        thread.start()
        thread.join(20)

    assert found == [1]
