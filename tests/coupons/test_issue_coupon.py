"""Issue: limits, validity, snapshots."""

from datetime import UTC, date, datetime, timedelta
from functools import partial

import pytest

from coupons.commands.create_policy import create_policy, publish_policy
from coupons.commands.create_template import close_campaign, create_template, open_campaign
from coupons.models import CouponOperation, IssueCount, UserCoupon
from coupons.refusals import CouponExpired, KeyReused, LimitReached, NotIssuable
from kernel.models import OutboxEvent
from tests.coupons.factories import Shop, make_shop, race, refusals, written


def test_a_coupon_carries_its_own_copy_of_template_and_policy(shop: Shop) -> None:
    issued = shop.issue()

    create_template(
        merchant_id=shop.merchant_id,
        code="off50",
        name="now 60 off",
        kind="THRESHOLD",
        threshold_fen=30000,
        off_fen=6000,
        valid_days=1,
        policy_code="standard",
        now=shop.now,
    )
    policy = create_policy(
        merchant_id=shop.merchant_id, code="standard", rules={"on_full_refund": "KEEP"}, now=shop.now
    )
    publish_policy(merchant_id=shop.merchant_id, policy_id=policy.policy_id, now=shop.now)

    coupon = UserCoupon.objects.get(pk=issued.coupon_id)
    assert coupon.template_snapshot["off_fen"] == 5000
    assert coupon.policy_snapshot["rules"]["on_full_refund"] == "RETURN"
    newer = UserCoupon.objects.get(pk=shop.issue("user-2").coupon_id)
    assert (newer.template_snapshot["version"], newer.template_snapshot["off_fen"]) == (2, 6000)
    assert (newer.policy_snapshot["version"], newer.policy_snapshot["rules"]["on_full_refund"]) == (2, "KEEP")


def test_issuing_writes_the_root_of_the_ledger_and_an_event(shop: Shop) -> None:
    issued = shop.issue()

    root = CouponOperation.objects.get(coupon_id=issued.coupon_id)
    assert (root.command, root.from_version, root.from_status) == ("ISSUE", None, None)
    assert (root.to_version, root.to_status) == (1, "AVAILABLE")
    assert OutboxEvent.objects.get(name="coupon.issued").subject == str(issued.coupon_id)


@pytest.mark.parametrize(
    ("zone", "until", "ends"),
    [
        ("Asia/Shanghai", date(2026, 12, 31), datetime(2026, 12, 31, 16, tzinfo=UTC)),
        ("America/New_York", date(2026, 12, 31), datetime(2027, 1, 1, 5, tzinfo=UTC)),
        # The day on which clocks go forward there is 23 hours long and still ends at its own midnight.
        ("America/New_York", date(2027, 3, 14), datetime(2027, 3, 15, 4, tzinfo=UTC)),
    ],
)
def test_until_a_date_ends_at_the_end_of_that_day_where_the_shop_is(shop: Shop, now, zone, until, ends) -> None:
    from merchants.models import Merchant

    there = make_shop(now, valid_from_on=date(2026, 11, 1), valid_until_on=until)
    Merchant.objects.filter(pk=there.merchant_id).update(timezone=zone)

    assert there.issue().valid_until == ends


def test_days_count_from_the_day_of_issue_where_the_shop_is(transactional_db, now) -> None:
    shop = make_shop(now, valid_days=0)  # 12:00 in Shanghai: valid for the rest of today

    assert shop.issue().valid_until == datetime(2026, 11, 30, 16, tzinfo=UTC)


def test_a_limit_per_user(transactional_db, now) -> None:
    shop = make_shop(now, per_user_limit=2)
    shop.issue()
    shop.issue()
    before = written()

    with pytest.raises(LimitReached) as refused:
        shop.issue()

    assert refused.value.data["per"] == "user"
    assert written() == before
    assert refusals() == [("ISSUE", "LIMIT_REACHED", None, None, None)]
    assert shop.issue("user-2").state_version == 1


def test_a_limit_in_total_in_parallel(transactional_db, now) -> None:
    """C2: limit 3, five in parallel: 3 succeed, 2 are refused and say why."""
    shop = make_shop(now, total_limit=3)

    results = race([partial(shop.issue, f"user-{number}") for number in range(5)])

    assert sum(isinstance(result, LimitReached) for result in results) == 2
    assert UserCoupon.objects.count() == 3
    assert IssueCount.objects.get(user_id="").issued == 3
    assert len(refusals()) == 2


def test_the_very_first_coupon_of_a_user_twice_at_once(transactional_db, now) -> None:
    """C7: there is no row to lock yet; one wins all the same."""
    shop = make_shop(now, per_user_limit=1)

    results = race([partial(shop.issue, "new-user") for _ in range(6)])

    assert sum(isinstance(result, LimitReached) for result in results) == 5
    assert UserCoupon.objects.filter(user_id="new-user").count() == 1


def test_the_same_key_at_once_issues_one_coupon(transactional_db, now) -> None:
    shop = make_shop(now)

    results = race([partial(shop.issue, key="once") for _ in range(5)])

    assert len({result.coupon_id for result in results}) == 1
    assert sum(result.replayed for result in results) == 4
    assert UserCoupon.objects.count() == 1


def test_a_replay_and_a_reused_key(shop: Shop) -> None:
    first = shop.issue(key="k")
    before = written()

    again = shop.issue(key="k", now=shop.now + timedelta(hours=1))
    with pytest.raises(KeyReused):
        shop.issue("user-2", key="k")

    assert again.replayed
    assert (again.coupon_id, again.valid_until) == (first.coupon_id, first.valid_until)
    assert written() == before
    assert refusals() == [("ISSUE", "IDEMPOTENCY_KEY_REUSED", None, None, None)]


def test_what_is_not_issued(shop: Shop) -> None:
    before = written()

    with pytest.raises(NotIssuable):
        shop.issue(template_code="unknown")
    with pytest.raises(NotIssuable):
        shop.issue(campaign_code="unknown")

    assert written() == before
    assert [code for _command, code, *_ in refusals()] == ["NOT_ISSUABLE", "NOT_ISSUABLE"]


def test_a_template_whose_dates_are_over(transactional_db, now) -> None:
    shop = make_shop(now, valid_from_on=date(2026, 1, 1), valid_until_on=date(2026, 11, 29))

    with pytest.raises(CouponExpired):
        shop.issue()

    assert UserCoupon.objects.count() == 0


def test_a_campaign_has_limits_of_its_own_and_can_be_closed(shop: Shop) -> None:
    open_campaign(
        merchant_id=shop.merchant_id,
        code="spring",
        name="Spring",
        template_code="off50",
        per_user_limit=1,
        total_limit=2,
        starts_at=shop.now,
        now=shop.now,
    )
    shop.issue(campaign_code="spring")
    with pytest.raises(LimitReached) as refused:
        shop.issue(campaign_code="spring")
    assert (refused.value.data["owner"], refused.value.data["per"]) == ("campaign", "user")
    assert shop.issue().state_version == 1

    shop.issue("user-2", campaign_code="spring")
    with pytest.raises(LimitReached):
        shop.issue("user-3", campaign_code="spring")
    close_campaign(merchant_id=shop.merchant_id, code="spring", now=shop.now)
    with pytest.raises(NotIssuable):
        shop.issue("user-4", campaign_code="spring")
