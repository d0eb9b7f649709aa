"""Bodies and answers of the coupons API. Answers are the commands' results; what is declared here documents them."""

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from coupons.commands.lock_coupon import LONGEST_LEASE_SECONDS
from coupons.leases import TOKEN_LENGTH
from coupons.models import CouponStatus, ReturnDecision, UserCoupon
from kernel.http.serializers import KeyField, StrictIntegerField, StrictSerializer, TextField

HIGHEST_VERSION = 2**31 - 1
TIME_FORMAT = "ISO 8601 with offset"


class VersionField(StrictIntegerField):
    """A version of a coupon that the caller has seen."""

    def __init__(self, **kwargs):
        super().__init__(max_value=HIGHEST_VERSION, **kwargs)


class AwareDateTimeField(serializers.DateTimeField):
    """An instant with its offset; a local time without one is refused."""

    def to_internal_value(self, value):
        if not isinstance(value, str) or not (value.endswith(("Z", "z")) or "+" in value[10:] or "-" in value[10:]):
            self.fail("invalid", format=TIME_FORMAT)
        return super().to_internal_value(value)


class IssueRequest(StrictSerializer):
    user_id = KeyField()
    template_code = KeyField()
    campaign_code = KeyField(required=False, default="", allow_blank=True)


class LockRequest(StrictSerializer):
    user_id = KeyField()
    order_no = KeyField()
    lease_seconds = StrictIntegerField(
        required=False, max_value=LONGEST_LEASE_SECONDS, help_text=_("The merchant's setting unless given.")
    )
    expected_version = VersionField(required=False)


class LeaseRequest(StrictSerializer):
    """What every command under a lease proves."""

    order_no = KeyField()
    lock_token = KeyField(max_length=TOKEN_LENGTH)
    expected_version = VersionField()


class RenewRequest(LeaseRequest):
    expires_at = AwareDateTimeField()


class RedeemRequest(LeaseRequest):
    payment_no = KeyField()


class ReleaseRequest(LeaseRequest):
    reason = TextField(required=False, default="", allow_blank=True, max_length=200)


class ReturnRequest(StrictSerializer):
    redemption_id = serializers.UUIDField()
    decision_id = serializers.UUIDField()
    expected_version = VersionField(required=False)


class VoidRequest(StrictSerializer):
    reason = TextField(max_length=200)
    expected_version = VersionField()


class ListQuery(StrictSerializer):
    user_id = KeyField(required=False, default="", help_text=_("Coupons of this user only."))
    status = serializers.ChoiceField(CouponStatus.choices, required=False, default="")


class StateSerializer(serializers.Serializer):
    coupon_id = serializers.UUIDField()
    status = serializers.ChoiceField(CouponStatus.choices)
    state_version = serializers.IntegerField()


class IssuedSerializer(StateSerializer):
    user_id = serializers.CharField()
    template_code = serializers.CharField()
    template_version = serializers.IntegerField()
    valid_from = serializers.DateTimeField()
    valid_until = serializers.DateTimeField()


class RenewedSerializer(StateSerializer):
    order_no = serializers.CharField()
    lock_id = serializers.UUIDField()
    expires_at = serializers.DateTimeField()


class LockedSerializer(RenewedSerializer):
    lock_token = serializers.CharField()


class RedeemedSerializer(StateSerializer):
    order_no = serializers.CharField()
    redemption_id = serializers.UUIDField()
    payment_no = serializers.CharField()
    redeemed_at = serializers.DateTimeField()


class ReleasedSerializer(StateSerializer):
    order_no = serializers.CharField()
    lock_id = serializers.UUIDField()


class ReturnedSerializer(StateSerializer):
    order_no = serializers.CharField()
    redemption_id = serializers.UUIDField()


class CouponSerializer(serializers.ModelSerializer):
    """A coupon as it is now. The lease's token is not among it: only the answer to `lock` gives it out."""

    coupon_id = serializers.UUIDField(source="id")
    status = serializers.ChoiceField(CouponStatus.choices)
    template = serializers.JSONField(source="template_snapshot")
    policy = serializers.JSONField(source="policy_snapshot")
    lease_order_no = serializers.CharField(source="locked_order_no", allow_null=True)

    class Meta:
        model = UserCoupon
        fields: tuple[str, ...] = (
            "coupon_id",
            "user_id",
            "status",
            "state_version",
            "valid_from",
            "valid_until",
            "template",
            "policy",
            "lease_order_no",
            "lock_id",
            "lease_expires_at",
            "created_at",
            "updated_at",
        )
        read_only_fields: tuple[str, ...] = fields


class RedemptionSerializer(serializers.Serializer):
    redemption_id = serializers.UUIDField(source="id")
    order_no = serializers.CharField()
    payment_no = serializers.CharField()
    redeemed_at = serializers.DateTimeField()
    in_force = serializers.SerializerMethodField()

    def get_in_force(self, row) -> bool:
        return row.ended_by_id is None


class DecisionSerializer(serializers.Serializer):
    decision_id = serializers.UUIDField(source="id")
    redemption_id = serializers.UUIDField()
    cause_no = serializers.CharField()
    decision = serializers.ChoiceField(ReturnDecision.choices)
    reasons = serializers.ListField(child=serializers.CharField())
    decided_at = serializers.DateTimeField()


class CouponDetailSerializer(CouponSerializer):
    redemptions = RedemptionSerializer(source="couponredemption_set", many=True)
    return_decisions = DecisionSerializer(source="refundcoupon_set", many=True)

    class Meta(CouponSerializer.Meta):
        fields = (*CouponSerializer.Meta.fields, "redemptions", "return_decisions")
        read_only_fields = fields


class TimelineEntrySerializer(serializers.Serializer):
    at = serializers.DateTimeField(allow_null=True)
    kind = serializers.CharField(help_text=_("operation, refusal, decision, gap, order, payment or refund"))
    title = serializers.CharField()
    version = serializers.IntegerField(allow_null=True)
    status = serializers.CharField()
    order_no = serializers.CharField()
    actor = serializers.CharField()
    reference = serializers.CharField()
    detail = serializers.DictField()


class TimelineSerializer(StateSerializer):
    entries = TimelineEntrySerializer(many=True)
    gaps = serializers.ListField(child=serializers.IntegerField())
