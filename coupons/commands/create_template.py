"""Templates and campaigns: what is written once and then only superseded by a newer version, or closed."""

from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from django.db.models import Max
from django.utils.translation import gettext_lazy as _

from coupons.models import Campaign, CouponTemplate
from kernel.errors import IllegalTransition, InvalidInput, NotFound, VersionConflict, refuse_on_constraint
from kernel.transactions import unit_of_work


class TemplateInvalid(InvalidInput):
    code = "TEMPLATE_INVALID"
    message = _("The amounts, limits or validity of this template do not fit its kind.")


class CampaignExists(InvalidInput):
    code = "CAMPAIGN_EXISTS"
    message = _("There is a campaign with this code already.")


refuse_on_constraint("coupon_template_kind_has_its_amounts", TemplateInvalid)
refuse_on_constraint("coupon_template_threshold_not_negative", TemplateInvalid)
refuse_on_constraint("coupon_template_validity_is_complete", TemplateInvalid)
refuse_on_constraint("coupon_template_user_limit_from_1", TemplateInvalid)
refuse_on_constraint("coupon_template_version_is_one_row", VersionConflict)
refuse_on_constraint("campaign_code_is_one_row", CampaignExists)
refuse_on_constraint("campaign_ends_after_start", TemplateInvalid)


@dataclass(frozen=True)
class TemplateVersion:
    """One version of a template."""

    template_id: UUID
    code: str
    version: int


@dataclass(frozen=True)
class CampaignOpened:
    """A campaign that coupons can be issued from."""

    campaign_id: UUID
    code: str


def create_template(
    *,
    merchant_id: UUID,
    code: str,
    name: str,
    kind: str,
    policy_code: str,
    now: datetime,
    threshold_fen: int = 0,
    off_fen: int = 0,
    rate_bp: int = 0,
    cap_fen: int | None = None,
    exchange_sku: str = "",
    eligible_skus: list[str] | None = None,
    excluded_skus: list[str] | None = None,
    valid_from_on: date | None = None,
    valid_until_on: date | None = None,
    valid_days: int | None = None,
    per_user_limit: int | None = None,
    total_limit: int | None = None,
    actor: str = "system",
) -> TemplateVersion:
    """The next version of a template; coupons issued from now on carry it, earlier ones keep theirs.

    Amounts in fen, rate in 1/10000. Either two dates (both inclusive, in the merchant's time zone) or `valid_days`
    from the day of issue. Raises TemplateInvalid when the figures do not fit the kind.
    """
    if kind not in ("THRESHOLD", "PERCENT", "EXCHANGE", "LINE"):
        raise TemplateInvalid(kind=kind)
    with unit_of_work(now=now):
        last = CouponTemplate.objects.filter(merchant_id=merchant_id, code=code).aggregate(last=Max("version"))
        template = CouponTemplate.objects.create(
            merchant_id=merchant_id,
            code=code,
            version=(last["last"] or 0) + 1,
            name=name,
            kind=kind,
            threshold_fen=threshold_fen,
            off_fen=off_fen,
            rate_bp=rate_bp,
            cap_fen=cap_fen,
            exchange_sku=exchange_sku,
            eligible_skus=eligible_skus or [],
            excluded_skus=excluded_skus or [],
            validity="DAYS" if valid_days is not None else "DATES",
            valid_from_on=valid_from_on,
            valid_until_on=valid_until_on,
            valid_days=valid_days,
            per_user_limit=per_user_limit,
            total_limit=total_limit,
            policy_code=policy_code,
            created_by=actor,
            created_at=now,
        )
    return TemplateVersion(template.pk, code, template.version)


def open_campaign(
    *,
    merchant_id: UUID,
    code: str,
    name: str,
    template_code: str,
    starts_at: datetime,
    now: datetime,
    ends_at: datetime | None = None,
    per_user_limit: int | None = None,
    total_limit: int | None = None,
) -> CampaignOpened:
    """A campaign for one template, with its own limits. Raises CampaignExists, TemplateInvalid."""
    with unit_of_work(now=now):
        campaign = Campaign.objects.create(
            merchant_id=merchant_id,
            code=code,
            name=name,
            template_code=template_code,
            per_user_limit=per_user_limit,
            total_limit=total_limit,
            starts_at=starts_at,
            ends_at=ends_at,
            created_at=now,
        )
    return CampaignOpened(campaign.pk, code)


def close_campaign(*, merchant_id: UUID, code: str, now: datetime) -> CampaignOpened:
    """Issue no more from it, and let return decisions know. Raises NotFound, IllegalTransition."""
    with unit_of_work(now=now):
        campaigns = Campaign.objects.filter(merchant_id=merchant_id, code=code)
        campaign = campaigns.first()
        if campaign is None:
            raise NotFound()
        if not campaigns.filter(state=Campaign.State.OPEN).update(state=Campaign.State.CLOSED):
            raise IllegalTransition(state=campaign.state)
    return CampaignOpened(campaign.pk, code)
