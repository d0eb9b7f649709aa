"""Each status of coupons, decisions and campaigns in a line."""

from django.utils.translation import gettext_lazy as _

from coupons.coupon_page import DECISION_TONES, TONES
from coupons.models import Campaign, CouponStatus, ReturnDecision
from kernel.admin import Legend

CAMPAIGN_TONES = {"OPEN": "success", "CLOSED": "neutral"}
COUPONS = [
    Legend(
        "status",
        {
            CouponStatus.AVAILABLE: _("Its holder can use it until its validity is over."),
            CouponStatus.LOCKED: _("One open order holds it by a lease with an end; nobody else can use it."),
            CouponStatus.USED: _("Used by one paid order. A refund of the whole order may bring it back."),
            CouponStatus.EXPIRED: _("Its validity is over."),
            CouponStatus.VOID: _("Taken out of use by a person or by a return decision."),
        },
        TONES,
    )
]
DECISIONS = [
    Legend(
        "decision",
        {
            ReturnDecision.RETURN: _("The holder has the coupon again."),
            ReturnDecision.KEEP: _("It stays used: part of the order was kept, or the policy says so."),
            ReturnDecision.VOID: _("Neither used nor usable any more."),
            ReturnDecision.REVIEW: _("The policy leaves it to a person. The money has gone back already."),
        },
        DECISION_TONES,
    )
]
CAMPAIGNS = [
    Legend(
        "state",
        {
            Campaign.State.OPEN: _("Coupons are issued from it."),
            Campaign.State.CLOSED: _("It issues no more. Coupons in wallets stay valid."),
        },
        CAMPAIGN_TONES,
    )
]
