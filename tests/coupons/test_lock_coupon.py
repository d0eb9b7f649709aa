"""Lock: AVAILABLE → LOCKED, for one order, under a lease with a token of its own."""

from datetime import date, timedelta
from functools import partial

import pytest

from coupons import leases
from coupons.commands.lock_coupon import LeaseTimeInvalid, Locked, lock_coupon
from coupons.models import CouponLock, CouponOperation, CouponRefusal, UserCoupon
from coupons.refusals import (
    AlreadyRedeemed,
    CouponExpired,
    CouponNotFound,
    CouponRefused,
    IllegalTransition,
    KeyReused,
    NotOwner,
    NotYetValid,
    VersionConflict,
)
from kernel.idempotency import business_key
from kernel.models import IdempotencyKey, OutboxEvent
from tests.coupons.factories import Shop, make_shop, race, refusals, state, void, written


def test_an_order_takes_the_coupon(shop: Shop) -> None:
    coupon_id = shop.issue().coupon_id

    lease = shop.lock(coupon_id, "A")

    assert state(coupon_id) == ("LOCKED", 2)
    coupon = UserCoupon.objects.get(pk=coupon_id)
    assert (coupon.locked_order_no, coupon.lock_id) == ("A", lease.lock_id)
    assert coupon.lease_expires_at == lease.expires_at == shop.now + timedelta(seconds=300)
    row = CouponLock.objects.get()
    assert (row.pk, row.order_no, row.acquired_version, row.ended_by) == (lease.lock_id, "A", 2, None)
    operation = CouponOperation.objects.get(to_version=2)
    assert (operation.command, operation.order_no, operation.lock_id) == ("LOCK", "A", lease.lock_id)
    event = OutboxEvent.objects.get(name="coupon.locked")
    assert (event.subject, event.payload["state_version"]) == (str(coupon_id), 2)


def test_the_token_is_stored_nowhere(shop: Shop) -> None:
    lease = shop.lock(shop.issue().coupon_id, "A", key="k")

    assert bytes(UserCoupon.objects.get().lock_token_hash) == leases.hash_token(lease.lock_token)
    assert leases.token_for(lease.lock_id) == lease.lock_token
    stored = IdempotencyKey.objects.get(key="k").result
    assert stored["lock_token"] == ""
    everything = "".join(
        str(row)
        for model in (IdempotencyKey, OutboxEvent, CouponRefusal, CouponOperation, CouponLock)
        for row in model.objects.values()
    )
    assert lease.lock_token not in everything


def test_two_leases_never_have_the_same_token_and_another_key_makes_another(shop: Shop, settings) -> None:
    first = shop.lock(shop.issue().coupon_id, "A")
    settings.QUITS_LEASE_KEYS = {**settings.QUITS_LEASE_KEYS, 2: b"another key of thirty-two bytes.."}

    shop.release(first)
    second = shop.lock(first.coupon_id, "A")

    assert CouponLock.objects.get(pk=second.lock_id).key_version == 2
    assert leases.token_for(first.lock_id) == first.lock_token, "leases of the older key are still recomputable"
    assert second.lock_token != first.lock_token
    assert shop.redeem(second).status == "USED"


def test_a_replay_returns_the_same_lease_with_its_token(shop: Shop) -> None:
    coupon_id = shop.issue().coupon_id
    first = shop.lock(coupon_id, "A", key="k")
    before = written()

    again = shop.lock(coupon_id, "A", key="k", now=shop.now + timedelta(minutes=2))

    assert again.replayed
    assert {**vars(again), "replayed": False} == vars(first)
    assert written() == before


def test_a_replay_after_the_coupon_became_free_again_locks_nothing(shop: Shop) -> None:
    """C12: the key has taken effect once; that the coupon could be locked now does not matter."""
    coupon_id = shop.issue().coupon_id
    first = shop.lock(coupon_id, "A", key="k")
    shop.release(first)
    before = written()

    again = shop.lock(coupon_id, "A", key="k")

    assert again.replayed
    assert again.lock_id == first.lock_id
    assert state(coupon_id) == ("AVAILABLE", 3)
    assert written() == before


def test_refusals_write_nothing_but_their_evidence(shop: Shop, now) -> None:
    free, held, used, gone = (shop.issue().coupon_id for _ in range(4))
    shop.lock(held, "B")
    shop.redeem(shop.lock(used, "C"))
    void(shop, gone)
    before = written()
    late = now + timedelta(days=60)

    for refusal, attempt in [
        (NotOwner, partial(shop.lock, free, user_id="user-2")),
        (VersionConflict, partial(shop.lock, free, expected_version=7)),
        (CouponExpired, partial(shop.lock, free, now=late)),
        (IllegalTransition, partial(shop.lock, held)),
        (AlreadyRedeemed, partial(shop.lock, used)),
        (IllegalTransition, partial(shop.lock, gone)),
    ]:
        with pytest.raises(refusal) as refused:
            attempt()
        assert type(refused.value) is refusal
        assert refused.value.data["next_actions"]

    assert written() == before
    assert [(code, expected, actual) for _command, code, expected, actual, _token in refusals()] == [
        ("NOT_OWNER", None, 1),
        ("VERSION_CONFLICT", 7, 1),
        ("COUPON_EXPIRED", None, 1),
        ("ILLEGAL_TRANSITION", None, 2),
        ("ALREADY_REDEEMED", None, 3),
        ("ILLEGAL_TRANSITION", None, 2),
    ]


def test_not_yet_valid(transactional_db, now) -> None:
    shop = make_shop(now, valid_from_on=date(2026, 12, 24), valid_until_on=date(2026, 12, 26))
    coupon_id = shop.issue().coupon_id

    with pytest.raises(NotYetValid):
        shop.lock(coupon_id)

    assert state(coupon_id) == ("AVAILABLE", 1)


def test_another_merchants_coupon_does_not_exist(shop: Shop, now) -> None:
    coupon_id = shop.issue().coupon_id
    other = make_shop(now)

    with pytest.raises(CouponNotFound) as refused:
        other.lock(coupon_id)

    assert refused.value.status == 404
    assert state(coupon_id) == ("AVAILABLE", 1)


def test_a_key_belongs_to_its_merchant(shop: Shop, now) -> None:
    foreign = business_key(merchant_id=make_shop(now).merchant_id, key="k")

    with pytest.raises(ValueError, match="merchant"):
        lock_coupon(
            merchant_id=shop.merchant_id,
            coupon_id=shop.issue().coupon_id,
            user_id="user-1",
            order_no="A",
            lease_seconds=300,
            key=foreign,
            now=now,
        )


@pytest.mark.parametrize("seconds", [0, -5, 10**9])
def test_a_lease_has_a_length(shop: Shop, seconds) -> None:
    """C11: a blank or zero setting is refused up front, not an eternal or an instant lease."""
    coupon_id = shop.issue().coupon_id

    with pytest.raises(LeaseTimeInvalid):
        shop.lock(coupon_id, lease_seconds=seconds)

    assert state(coupon_id) == ("AVAILABLE", 1)


def test_two_checkouts_of_one_coupon_at_once(shop: Shop) -> None:
    """C1, C5, C6: one order gets it; the other is told why, in words a buyer can read."""
    coupon_id = shop.issue().coupon_id

    results = race([partial(shop.lock, coupon_id, order) for order in "AB"])

    won = [result for result in results if isinstance(result, Locked)]
    lost = [result for result in results if isinstance(result, CouponRefused)]
    assert (len(won), len(lost)) == (1, 1)
    assert lost[0].code == "ILLEGAL_TRANSITION"
    assert "choose_another_coupon" in lost[0].data["next_actions"]
    assert str(lost[0].message)


def test_one_checkout_submitted_twice_at_once(shop: Shop) -> None:
    """C4: the second submission gets the first one's lease, not a refusal."""
    coupon_id = shop.issue().coupon_id

    results = race([partial(shop.lock, coupon_id, "A", key="checkout") for _ in range(6)])

    assert len({(result.lock_id, result.lock_token) for result in results}) == 1
    assert sum(result.replayed for result in results) == 5
    assert CouponLock.objects.count() == 1


def test_one_key_for_two_coupons_at_once(shop: Shop) -> None:
    """C30: whichever comes second is told that the key is used; never two effects under one key."""
    first, second = shop.issue().coupon_id, shop.issue().coupon_id

    results = race([partial(shop.lock, coupon, "A", key="k") for coupon in (first, second)])

    assert sum(isinstance(result, Locked) for result in results) == 1
    assert sum(isinstance(result, KeyReused) for result in results) == 1
    assert sorted(state(coupon)[0] for coupon in (first, second)) == ["AVAILABLE", "LOCKED"]


def test_the_same_coupon_is_usable_again_after_a_release(shop: Shop) -> None:
    """C8, C10: payment declined or cancelled, the coupon is not stuck."""
    coupon_id = shop.issue().coupon_id
    shop.release(shop.lock(coupon_id, "A"))

    lease = shop.lock(coupon_id, "B")

    assert shop.redeem(lease).order_no == "B"
