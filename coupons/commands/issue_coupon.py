"""Issue: a coupon goes into somebody's wallet, carrying its own copy of template and return policy."""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db import connection

from coupons.commands.create_policy import get_published
from coupons.commands.move import begin, finish
from coupons.models import Campaign, CouponCommand, CouponOperation, CouponTemplate, IssueCount, UserCoupon
from coupons.refusals import Attempt, CouponExpired, LimitReached, NotIssuable
from kernel import numbers, outbox
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work
from merchants.models import Merchant

SNAPSHOT = (
    "code",
    "version",
    "name",
    "kind",
    "threshold_fen",
    "off_fen",
    "rate_bp",
    "cap_fen",
    "exchange_sku",
    "eligible_skus",
    "excluded_skus",
)


@dataclass(frozen=True)
class Issued:
    """The new coupon. `valid_until` is the first instant at which it is no longer valid."""

    coupon_id: UUID
    user_id: str
    template_code: str
    template_version: int
    status: str
    state_version: int
    valid_from: datetime
    valid_until: datetime
    replayed: bool = False


def issue_coupon(
    *,
    merchant_id: UUID,
    template_code: str,
    user_id: str,
    key: BusinessKey,
    now: datetime,
    campaign_code: str = "",
    actor: str = "system",
) -> Issued:
    """– → AVAILABLE, from the newest version of the template; joins the caller's transaction, if any.

    Limits per user and in total, of the template and of the campaign, are counted by conditional upserts, so the
    first coupon ever of a user is as safe as the last one of a campaign. Raises NOT_ISSUABLE, LIMIT_REACHED,
    COUPON_EXPIRED (the template's dates are over), IDEMPOTENCY_KEY_REUSED, each leaving evidence.
    """
    attempt = Attempt(CouponCommand.ISSUE, key, None, actor)
    with unit_of_work(now=now):
        replay = begin(attempt, Issued, now=now)
        if replay is not None:
            return replay
        template = (
            CouponTemplate.objects.filter(merchant_id=merchant_id, code=template_code).order_by("-version").first()
        )
        policy = get_published(merchant_id=merchant_id, code=template.policy_code) if template else None
        if template is None or policy is None or template.retired_at is not None:
            raise NotIssuable(attempt, template_code=template_code)
        campaign = _open_campaign(attempt, campaign_code, template, now=now) if campaign_code else None
        valid_from, valid_until = validity_of(template, Merchant.objects.get(pk=merchant_id), now=now)
        if valid_until <= now:
            raise CouponExpired(attempt, valid_until=valid_until.isoformat())
        _count(attempt, template, campaign, user_id)
        coupon = UserCoupon.objects.create(
            merchant_id=merchant_id,
            user_id=user_id,
            template=template,
            template_snapshot={name: getattr(template, name) for name in SNAPSHOT},
            policy=policy,
            policy_snapshot={"code": policy.code, "version": policy.version, "rules": policy.rules},
            campaign=campaign,
            valid_from=valid_from,
            valid_until=valid_until,
            created_at=now,
            updated_at=now,
        )
        CouponOperation.objects.create(
            merchant_id=merchant_id,
            coupon=coupon,
            command=CouponCommand.ISSUE,
            to_version=1,
            to_status=coupon.status,
            actor=actor,
            reason=campaign_code,
            business_key=key.key,
            at=now,
        )
        outbox.append(
            name="coupon.issued",
            merchant_id=merchant_id,
            subject=str(coupon.pk),
            payload={"coupon_id": str(coupon.pk), "template_code": template_code, "state_version": 1},
            now=now,
        )
        result = Issued(coupon.pk, user_id, template.code, template.version, coupon.status, 1, valid_from, valid_until)
        finish(attempt, result)
    return result


def _open_campaign(attempt: Attempt, code: str, template: CouponTemplate, *, now: datetime) -> Campaign:
    campaign = Campaign.objects.filter(merchant_id=attempt.key.merchant_id, code=code).first()
    if (
        campaign is None
        or campaign.template_code != template.code
        or campaign.state != Campaign.State.OPEN
        or campaign.starts_at > now
        or (campaign.ends_at is not None and campaign.ends_at <= now)
    ):
        raise NotIssuable(attempt, campaign_code=code)
    return campaign


def validity_of(template: CouponTemplate, merchant: Merchant, *, now: datetime) -> tuple[datetime, datetime]:
    """From when to when (exclusive) a coupon issued now is valid: "until a date" ends at the end of that day in the
    merchant's time zone, whatever clock changes that day has."""
    zone = ZoneInfo(merchant.timezone)
    if template.validity == CouponTemplate.Validity.DATES:
        assert template.valid_from_on and template.valid_until_on  # kept by coupon_template_validity_is_complete
        first, last = template.valid_from_on, template.valid_until_on
        start = datetime.combine(first, time.min, zone).astimezone(UTC)
    else:
        start = now
        last = now.astimezone(zone).date() + timedelta(days=template.valid_days or 0)
    return start, datetime.combine(last + timedelta(days=1), time.min, zone).astimezone(UTC)


def _count(attempt: Attempt, template: CouponTemplate, campaign: Campaign | None, user_id: str) -> None:
    """Take one from every limit that applies; always in the same order, so that two issues never deadlock."""
    wanted: list[tuple[str, str, str, int | None]] = [
        (IssueCount.Owner.TEMPLATE, template.code, "", template.total_limit),
        (IssueCount.Owner.TEMPLATE, template.code, user_id, template.per_user_limit),
    ]
    if campaign is not None:
        wanted += [
            (IssueCount.Owner.CAMPAIGN, campaign.code, "", campaign.total_limit),
            (IssueCount.Owner.CAMPAIGN, campaign.code, user_id, campaign.per_user_limit),
        ]
    for owner, code, user, limit in wanted:
        # A limit in total is one row for everybody, so it is only counted where there is one.
        if (user or limit is not None) and not _take(attempt.key.merchant_id, owner, code, user, limit):
            raise LimitReached(attempt, limit=limit, per="user" if user else "total", owner=owner.lower(), code=code)


def _take(merchant_id: UUID, owner: str, code: str, user_id: str, limit: int | None) -> bool:
    if limit == 0:
        return False
    bound: Any = limit if limit is not None else 2**62
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO coupon_issue_count AS c (id, merchant_id, owner_kind, owner_code, user_id, issued)"
            " VALUES (%s, %s, %s, %s, %s, 1)"
            " ON CONFLICT (merchant_id, owner_kind, owner_code, user_id)"
            " DO UPDATE SET issued = c.issued + 1 WHERE c.issued < %s RETURNING c.issued",
            [numbers.uuid7(), merchant_id, owner, code, user_id, bound],
        )
        return cursor.fetchone() is not None
