"""Void by an operator or a policy; expire when the validity is over."""

from datetime import timedelta
from functools import partial

import pytest

from coupons.models import CouponOperation, CouponRedemption
from coupons.refusals import CouponNotFound, IllegalTransition, VersionConflict
from kernel.errors import InvalidInput
from kernel.numbers import uuid7
from tests.coupons.factories import Shop, decide, expire, race, refusals, state, undo, void, written

LATER = timedelta(days=40)


def test_an_available_and_a_used_coupon_can_be_voided(shop: Shop) -> None:
    free = shop.issue().coupon_id
    redemption = shop.redeem(shop.lock(shop.issue().coupon_id, "A"))

    assert void(shop, free).state_version == 2
    assert void(shop, redemption.coupon_id, expected_version=3).status == "VOID"

    operation = CouponOperation.objects.get(coupon_id=free, command="VOID")
    assert (operation.actor, operation.reason) == ("staff:ops", "leaked")
    assert CouponRedemption.objects.get().ended_by is None, "the order did use it"


def test_by_a_return_decision(transactional_db, now) -> None:
    from tests.coupons.factories import make_shop

    shop = make_shop(now, rules={"on_full_refund": "VOID"})
    decided = decide(shop, shop.redeem(shop.lock(shop.issue().coupon_id, "A")).redemption_id)

    void(shop, decided.coupon_id, expected_version=3, decision_id=decided.decision_id)

    assert CouponOperation.objects.get(command="VOID").decision_id == decided.decision_id


def test_void_refusals(shop: Shop) -> None:
    held = shop.lock(shop.issue().coupon_id, "A").coupon_id
    free = shop.issue().coupon_id
    before = written()

    with pytest.raises(IllegalTransition):
        void(shop, held, expected_version=2)
    with pytest.raises(VersionConflict):
        void(shop, free, expected_version=5)
    with pytest.raises(CouponNotFound):
        void(shop, uuid7())
    with pytest.raises(InvalidInput):
        void(shop, free, reason=" ")

    assert written() == before
    assert [code for _command, code, *_rest in refusals()] == ["ILLEGAL_TRANSITION", "VERSION_CONFLICT", "NOT_FOUND"]


def test_void_replayed(shop: Shop) -> None:
    coupon_id = shop.issue().coupon_id
    first = void(shop, coupon_id, key="k")

    again = void(shop, coupon_id, key="k")

    assert again.replayed
    assert {**vars(again), "replayed": False} == vars(first)


def test_void_against_lock_at_once(shop: Shop) -> None:
    """No voided coupon with a live lease, whichever comes first (the invariants of the fixture look)."""
    for _round in range(5):
        coupon_id = shop.issue().coupon_id

        results = race([partial(void, shop, coupon_id), partial(shop.lock, coupon_id)])

        assert sum(isinstance(result, Exception) for result in results) == 1
        assert state(coupon_id)[1] == 2


def test_expire(shop: Shop) -> None:
    coupon_id = shop.issue().coupon_id

    with pytest.raises(IllegalTransition):
        expire(shop, coupon_id)
    assert expire(shop, coupon_id, now=shop.now + LATER, key="k").state_version == 2
    assert expire(shop, coupon_id, now=shop.now + LATER, key="k").replayed

    assert state(coupon_id) == ("EXPIRED", 2)
    assert [code for _command, code, *_rest in refusals()] == ["ILLEGAL_TRANSITION"]


def test_expire_refusals(shop: Shop) -> None:
    held = shop.lock(shop.issue().coupon_id, "A").coupon_id
    free = shop.issue().coupon_id
    before = written()

    with pytest.raises(IllegalTransition):
        expire(shop, held, expected_version=2, now=shop.now + LATER)
    with pytest.raises(VersionConflict):
        expire(shop, free, expected_version=2, now=shop.now + LATER)

    assert written() == before


def test_expire_against_lock_at_once(shop: Shop) -> None:
    coupon_id = shop.issue().coupon_id

    race([partial(expire, shop, coupon_id, now=shop.now + LATER), partial(shop.lock, coupon_id)])

    assert state(coupon_id)[1] == 2


def test_a_voided_coupon_comes_back_only_by_a_reverse(shop: Shop) -> None:
    coupon_id = shop.issue().coupon_id
    void(shop, coupon_id)
    with pytest.raises(IllegalTransition):
        shop.lock(coupon_id)

    undo(shop, coupon_id)

    assert shop.lock(coupon_id).state_version == 4
