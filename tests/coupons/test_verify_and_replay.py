"""verify_coupons and replay_policy: what they find, what they print, how they end."""

from collections.abc import Iterator
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from coupons.commands.create_policy import create_policy, publish_policy
from coupons.models import CouponOperation, RefundCoupon, ReturnPolicy, UserCoupon
from coupons.policy_replay import replay_policy
from coupons.verification import CHECKS, verify
from merchants.models import Merchant
from tests.coupons.factories import Shop, decide, give_back, make_shop, undo, void


def run(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


@pytest.fixture
def story(shop: Shop) -> UserCoupon:
    """A coupon that has been through everything, beside a free, a held and a used one."""
    shop.issue()
    shop.lock(shop.issue().coupon_id, "H")
    shop.redeem(shop.lock(shop.issue().coupon_id, "U"))
    voided = shop.issue().coupon_id
    void(shop, voided)
    undo(shop, voided)
    done = shop.redeem(shop.lock(shop.issue().coupon_id, "A"))
    give_back(shop, decide(shop, done.redemption_id))
    return UserCoupon.objects.get(pk=done.coupon_id)


def test_nothing_to_complain_about(story: UserCoupon) -> None:
    said = run("verify_coupons")

    assert "5 coupons, 13 operations" in said
    assert said.count(" ok ") == len(CHECKS)
    assert "0 differences" in said
    assert "× the plain count" in said


def test_one_merchant(story: UserCoupon, now) -> None:
    other = make_shop(now)
    other.issue()

    code = Merchant.objects.get(pk=other.merchant_id).code
    assert "1 coupons, 1 operations" in run("verify_coupons", "--merchant", code)
    with pytest.raises(CommandError):
        run("verify_coupons", "--merchant", "nobody")


@pytest.fixture
def bare(story: UserCoupon) -> Iterator[None]:
    """The same rows with every guard of the database taken off for a while: what it would take to break them."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("BEGIN")
        cursor.execute(
            "SELECT conrelid::regclass::text, conname FROM pg_constraint WHERE contype IN ('f', 'c')"
            " AND conrelid::regclass::text IN ('user_coupon', 'coupon_operation', 'coupon_lock', 'coupon_redemption',"
            " 'refund_coupon')"
        )
        for table, name in cursor.fetchall():
            cursor.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')
        for table in ("user_coupon", "coupon_operation", "coupon_lock", "coupon_redemption", "refund_coupon"):
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        yield
        cursor.execute("ROLLBACK")


@pytest.mark.parametrize(
    ("damage", "check"),
    [
        ("DELETE FROM coupon_operation WHERE coupon_id = %(id)s AND to_version = 2", 0),
        ("UPDATE coupon_operation SET to_status = 'VOID' WHERE coupon_id = %(id)s AND to_version = 2", 0),
        ("UPDATE coupon_operation SET command = 'RENEW' WHERE coupon_id = %(id)s AND to_version = 3", 0),
        ("UPDATE user_coupon SET state_version = 9 WHERE id = %(id)s", 0),
        ("UPDATE user_coupon SET status = 'USED' WHERE id = %(id)s", 0),
        ("DELETE FROM coupon_operation WHERE coupon_id = %(id)s", 0),
        ("DELETE FROM user_coupon WHERE id = %(id)s", 0),
        ("UPDATE user_coupon SET lease_expires_at = now() WHERE status = 'LOCKED'", 1),
        ("UPDATE user_coupon SET locked_order_no = 'X' WHERE status = 'LOCKED'", 1),
        ("UPDATE coupon_lock SET ended_by_id = NULL WHERE coupon_id = %(id)s", 1),
        ("DELETE FROM coupon_lock WHERE ended_by_id IS NULL", 1),
        ("UPDATE coupon_redemption SET ended_by_id = NULL WHERE coupon_id = %(id)s", 2),
        ("UPDATE coupon_redemption SET ended_by_id = gen_random_uuid() WHERE ended_by_id IS NULL", 2),
        ("UPDATE coupon_redemption SET order_no = 'X' WHERE coupon_id = %(id)s", 3),
        ("UPDATE coupon_operation SET decision_id = NULL WHERE coupon_id = %(id)s", 4),
        ("UPDATE refund_coupon SET decision = 'KEEP' WHERE coupon_id = %(id)s", 4),
        ("UPDATE coupon_operation SET decision_id = NULL WHERE coupon_id = %(id)s", 5),
    ],
)
def test_every_kind_of_damage_is_found(story: UserCoupon, bare, damage: str, check: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(damage, {"id": story.pk})
        assert cursor.rowcount >= 1

    found = list(verify())

    assert found[check].differences >= 1
    assert found[check].first


def test_the_command_ends_with_1_and_names_the_coupon(story: UserCoupon, bare) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE user_coupon SET state_version = 9 WHERE id = %s", [story.pk])
    out = StringIO()

    with pytest.raises(CommandError) as ended:
        call_command("verify_coupons", stdout=out)

    assert ended.value.returncode == 1
    assert str(story.pk) in out.getvalue()
    assert "v9 ledger AVAILABLE v4" in out.getvalue()


def test_a_decision_that_was_not_carried_out_is_found(shop: Shop) -> None:
    done = shop.redeem(shop.lock(shop.issue().coupon_id, "A"))
    decided = decide(shop, done.redemption_id)

    with pytest.raises(CommandError):
        run("verify_coupons")

    give_back(shop, decided)
    assert "0 differences" in run("verify_coupons")


def test_what_a_new_policy_version_would_change(shop: Shop) -> None:
    for number in range(3):
        done = shop.redeem(shop.lock(shop.issue().coupon_id, f"Q{number}"))
        decide(shop, done.redemption_id, order_wholly_refunded=False)
        decide(shop, done.redemption_id, order_wholly_refunded=True)
    risky = shop.redeem(shop.lock(shop.issue().coupon_id, "Q9"))
    decide(shop, risky.redemption_id, risk_flagged=True)
    before = list(RefundCoupon.objects.order_by("id").values())
    draft = create_policy(merchant_id=shop.merchant_id, code="standard", rules={"on_full_refund": "VOID"}, now=shop.now)

    replayed = replay_policy(ReturnPolicy.objects.get(pk=draft.policy_id))
    said = run("replay_policy", Merchant.objects.get(pk=shop.merchant_id).code, "standard")
    publish_policy(merchant_id=shop.merchant_id, policy_id=draft.policy_id, now=shop.now)

    assert (replayed.looked_at, replayed.changed, replayed.unchanged) == (7, 3, 4)
    (change,) = replayed.changes
    assert (change.then, change.now, change.count) == ("RETURN", "VOID", 3)
    assert sorted(change.order_nos) == ["Q0", "Q1", "Q2"]
    assert "standard v2 (draft) over 7 decisions" in said
    assert "3 would change, 4 would stay" in said
    assert list(RefundCoupon.objects.order_by("id").values()) == before, "nothing is altered, not by publishing either"


def test_the_version_in_force_changes_nothing(shop: Shop) -> None:
    done = shop.redeem(shop.lock(shop.issue().coupon_id, "A"))
    decide(shop, done.redemption_id)
    code = Merchant.objects.get(pk=shop.merchant_id).code

    assert "0 would change, 1 would stay" in run("replay_policy", code, "standard", "--policy-version", "1")
    for wrong in ((code, "unknown"), (code, "standard", "--policy-version", "7")):
        with pytest.raises(CommandError):
            run("replay_policy", *wrong)
    assert CouponOperation.objects.filter(command="RETURN").count() == 0
