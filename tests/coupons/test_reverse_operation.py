"""Reverse: the newest operation is undone by appending its opposite; nothing is deleted, nothing overwritten."""

from datetime import timedelta
from functools import partial

import pytest

from coupons.commands.reverse_operation import NotReversible, Reversed
from coupons.models import CouponOperation, CouponRedemption
from coupons.refusals import CouponNotFound, VersionConflict
from kernel.errors import InvalidInput
from kernel.numbers import uuid7
from tests.coupons.factories import (
    Shop,
    decide,
    expire,
    give_back,
    newest,
    race,
    refusals,
    state,
    undo,
    void,
    written,
)

LATER = timedelta(days=40)


def test_a_wrong_redemption_is_repaired_without_deleting_anything(shop: Shop) -> None:
    redemption = shop.redeem(shop.lock(shop.issue().coupon_id, "A"))
    wrong = newest(redemption.coupon_id)

    undone = undo(shop, redemption.coupon_id)

    assert (undone.status, undone.state_version, undone.original_id) == ("AVAILABLE", 4, wrong.pk)
    reverse = CouponOperation.objects.get(command="REVERSE")
    assert (reverse.pk, reverse.original_id, reverse.actor) == (undone.operation_id, wrong.pk, "staff:ops")
    assert CouponRedemption.objects.get().ended_by_id == reverse.pk
    assert CouponOperation.objects.filter(pk=wrong.pk).exists()
    assert shop.redeem(shop.lock(redemption.coupon_id, "B")).order_no == "B"


def test_never_back_to_locked_and_not_to_available_when_the_validity_is_over(shop: Shop) -> None:
    redemption = shop.redeem(shop.lock(shop.issue().coupon_id, "A"))

    assert undo(shop, redemption.coupon_id, now=shop.now + LATER).status == "EXPIRED"


def test_a_return_is_undone_by_a_new_redemption_that_replaces_the_ended_one(shop: Shop) -> None:
    redemption = shop.redeem(shop.lock(shop.issue().coupon_id, "A"))
    give_back(shop, decide(shop, redemption.redemption_id))

    undone = undo(shop, redemption.coupon_id)

    assert undone.status == "USED"
    again = CouponRedemption.objects.get(ended_by=None)
    assert (again.pk, again.replaces_id) == (undone.redemption_id, redemption.redemption_id)
    assert (again.order_no, again.payment_no) == ("A", "pay-A")


def test_also_of_an_expired_return(shop: Shop) -> None:
    redemption = shop.redeem(shop.lock(shop.issue().coupon_id, "A"))
    give_back(shop, decide(shop, redemption.redemption_id), now=shop.now + LATER)
    assert state(redemption.coupon_id) == ("EXPIRED", 4)

    assert undo(shop, redemption.coupon_id, now=shop.now + LATER).status == "USED"


def test_a_void_goes_to_what_was_before(shop: Shop) -> None:
    free = shop.issue().coupon_id
    redemption = shop.redeem(shop.lock(shop.issue().coupon_id, "A"))
    void(shop, free)
    void(shop, redemption.coupon_id, expected_version=3)

    assert undo(shop, free).status == "AVAILABLE"
    assert undo(shop, redemption.coupon_id).status == "USED"

    assert CouponRedemption.objects.get().ended_by is None


def test_a_reverse_is_undone_the_same_way(shop: Shop) -> None:
    free = shop.issue().coupon_id
    void(shop, free)
    used = shop.redeem(shop.lock(shop.issue().coupon_id, "A")).coupon_id
    voided = shop.redeem(shop.lock(shop.issue().coupon_id, "B")).coupon_id
    void(shop, voided, expected_version=3)

    walks = {coupon: [undo(shop, coupon).status for _ in range(4)] for coupon in (free, used, voided)}

    assert walks[free] == ["AVAILABLE", "VOID", "AVAILABLE", "VOID"]
    assert walks[used] == ["AVAILABLE", "USED", "AVAILABLE", "USED"]
    assert walks[voided] == ["USED", "VOID", "USED", "VOID"]
    chain = CouponRedemption.objects.filter(coupon_id=used).order_by("redeemed_at", "id")
    assert [row.replaces_id for row in chain] == [None, chain[0].pk, chain[1].pk]


def test_what_cannot_be_undone(shop: Shop) -> None:
    coupon_id = shop.issue().coupon_id
    tried = []

    def refuse() -> None:
        before = written()
        with pytest.raises(NotReversible):
            undo(shop, coupon_id)
        assert written() == before
        tried.append(newest(coupon_id).command)

    refuse()
    lease = shop.lock(coupon_id, "A")
    refuse()
    shop.renew(lease)
    refuse()
    shop.release(lease, expected_version=3)
    refuse()
    expire(shop, coupon_id, expected_version=4, now=shop.now + LATER)
    refuse()

    assert tried == ["ISSUE", "LOCK", "RENEW", "RELEASE", "EXPIRE"]
    assert {code for _command, code, *_rest in refusals()} == {"NOT_REVERSIBLE"}


def test_only_the_newest_operation(shop: Shop) -> None:
    redemption = shop.redeem(shop.lock(shop.issue().coupon_id, "A"))
    redeem = newest(redemption.coupon_id)
    give_back(shop, decide(shop, redemption.redemption_id))
    shop.lock(redemption.coupon_id, "B")
    before = written()

    with pytest.raises(VersionConflict):
        undo(shop, redemption.coupon_id, operation_id=redeem.pk, expected_version=3)
    with pytest.raises(VersionConflict):
        undo(shop, redemption.coupon_id, operation_id=redeem.pk, expected_version=5)
    with pytest.raises(CouponNotFound):
        undo(shop, redemption.coupon_id, operation_id=uuid7())
    with pytest.raises(InvalidInput):
        undo(shop, redemption.coupon_id, reason="")

    assert written() == before


def test_a_reverse_with_an_older_version(shop: Shop) -> None:
    redemption = shop.redeem(shop.lock(shop.issue().coupon_id, "A"))

    with pytest.raises(VersionConflict):
        undo(shop, redemption.coupon_id, expected_version=2)

    assert state(redemption.coupon_id) == ("USED", 3)


def test_a_replay_also_of_a_reverse_of_a_reverse(shop: Shop) -> None:
    redemption = shop.redeem(shop.lock(shop.issue().coupon_id, "A"))
    redeem = newest(redemption.coupon_id)
    first = undo(shop, redemption.coupon_id, key="one")
    reverse = newest(redemption.coupon_id)
    second = undo(shop, redemption.coupon_id, key="two")
    before = written()

    again = undo(shop, redemption.coupon_id, key="one", operation_id=redeem.pk, expected_version=3)
    twice = undo(shop, redemption.coupon_id, key="two", operation_id=reverse.pk, expected_version=4)

    assert {**vars(again), "replayed": False} == vars(first)
    assert {**vars(twice), "replayed": False} == vars(second)
    assert written() == before


def test_the_same_reverse_at_once(shop: Shop) -> None:
    redemption = shop.redeem(shop.lock(shop.issue().coupon_id, "A"))
    original = newest(redemption.coupon_id)

    results = race(
        [partial(undo, shop, redemption.coupon_id, operation_id=original.pk, expected_version=3) for _ in range(5)]
    )

    assert sum(isinstance(result, Reversed) for result in results) == 1
    assert state(redemption.coupon_id) == ("AVAILABLE", 4)
