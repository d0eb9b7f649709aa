"""Bodies and answers of the after-sales API."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from aftersales.funding import refund_requests_of
from aftersales.models import (
    Actor,
    AfterSalesLog,
    AfterSalesOrder,
    AfterSalesUnit,
    ArbitrationCase,
    CarrierEvent,
    Evidence,
    Exchange,
    GoodsState,
    Liability,
    ReturnShipment,
    Rollback,
    Status,
    Type,
)
from kernel.http.serializers import FenField, KeyField, StrictIntegerField, StrictSerializer, TextField
from ledgers.models import PointsEntry
from payments.models import RefundAttempt


class ReplacementRequest(StrictSerializer):
    sku = KeyField()
    title = TextField(max_length=200)
    unit_price_fen = FenField()


class ItemRequest(StrictSerializer):
    line_no = StrictIntegerField()
    type = StrictIntegerField(
        max_value=5, help_text="1 refund only, 2 return, 3 exchange, 4 reship, 5 price protection"
    )
    qty = StrictIntegerField()
    reason_code = KeyField(max_length=32)
    goods_fen = FenField(required=False, help_text="only to ask for less than the units are worth")
    liability = serializers.ChoiceField(choices=Liability.choices, required=False, help_text="what the buyer proposes")
    description = TextField(max_length=2000, required=False, allow_blank=True)
    replacement = ReplacementRequest(required=False, help_text="what an exchange shall give instead")


class PreviewRequest(StrictSerializer):
    order_no = KeyField(max_length=20)
    user_id = KeyField()
    items = serializers.ListField(child=ItemRequest(), min_length=1, max_length=50)


class ApplyRequest(PreviewRequest):
    device_hash = KeyField(required=False, help_text="for the risk rules; never shown again")
    account_created_at = serializers.DateTimeField(required=False, help_text="for the risk rules")
    freight_insured = serializers.BooleanField(required=False, help_text="for the risk rules")


class AppliedItemSerializer(serializers.Serializer):
    after_sales_no = serializers.CharField()
    line_no = serializers.IntegerField()
    type = serializers.ChoiceField(choices=Type.choices)
    qty = serializers.IntegerField()
    ordinals = serializers.ListField(child=serializers.IntegerField())
    status = serializers.ChoiceField(choices=Status.choices)
    version = serializers.IntegerField()
    liability = serializers.ChoiceField(choices=Liability.choices)
    goods_fen = serializers.IntegerField()
    freight_fen = serializers.IntegerField()
    due_at = serializers.DateTimeField(allow_null=True)


class AppliedSerializer(serializers.Serializer):
    order_no = serializers.CharField()
    user_id = serializers.CharField()
    refund_fen = serializers.IntegerField()
    after_sales = AppliedItemSerializer(many=True)


class LineSharesSerializer(serializers.Serializer):
    unit_price_fen = serializers.IntegerField()
    qty = serializers.IntegerField()
    line_discount_fen = serializers.IntegerField()
    base_fen = serializers.IntegerField()
    coupon_share_fen = serializers.IntegerField()
    subsidy_share_fen = serializers.IntegerField()
    points_share_fen = serializers.IntegerField()
    net_fen = serializers.IntegerField()
    freight_share_fen = serializers.IntegerField()


class PreviewUnitSerializer(serializers.Serializer):
    ordinal = serializers.IntegerField()
    worth_fen = serializers.IntegerField()
    earlier_fen = serializers.IntegerField()
    goods_fen = serializers.IntegerField()
    freight_fen = serializers.IntegerField()


class PreviewItemSerializer(serializers.Serializer):
    line_no = serializers.IntegerField()
    type = serializers.ChoiceField(choices=Type.choices)
    qty = serializers.IntegerField()
    goods_state = serializers.ChoiceField(choices=GoodsState.choices)
    keeps_units = serializers.BooleanField()
    liability = serializers.ChoiceField(choices=Liability.choices)
    freight_refundable = serializers.BooleanField()
    goods_fen = serializers.IntegerField()
    freight_fen = serializers.IntegerField()
    refund_fen = serializers.IntegerField()
    refund_if_merchant_liable_fen = serializers.IntegerField()
    refund_if_buyer_liable_fen = serializers.IntegerField()
    points_back = serializers.IntegerField()
    apply_until = serializers.DateTimeField(allow_null=True)
    algorithm = serializers.CharField()
    line = LineSharesSerializer()
    units = PreviewUnitSerializer(many=True)


class PreviewSerializer(serializers.Serializer):
    order_no = serializers.CharField()
    user_id = serializers.CharField()
    terms_version = serializers.CharField()
    refund_fen = serializers.IntegerField()
    items = PreviewItemSerializer(many=True)


class ShareRequest(StrictSerializer):
    line_no = StrictIntegerField()
    level = StrictIntegerField(max_value=9)
    beneficiary = KeyField()
    rate_bp = StrictIntegerField(max_value=10_000, help_text="of the line's net goods, in basis points: 1250 is 12.5 %")


class CommissionsRequest(StrictSerializer):
    shares = serializers.ListField(child=ShareRequest(), min_length=1, max_length=200)


class CommissionsDeclaredSerializer(serializers.Serializer):
    order_no = serializers.CharField()
    shares = serializers.IntegerField()
    booked_fen = serializers.IntegerField(help_text="booked at once, because the order is completed already")


class CancelRequest(StrictSerializer):
    user_id = KeyField()
    reason = TextField(max_length=400, required=False, allow_blank=True)
    expected_version = StrictIntegerField(required=False)


class ReturnShipmentRequest(StrictSerializer):
    user_id = KeyField()
    carrier = KeyField(max_length=32)
    tracking_no = KeyField()
    expected_version = StrictIntegerField(required=False)


class MovedSerializer(serializers.Serializer):
    after_sales_no = serializers.CharField()
    status = serializers.ChoiceField(choices=Status.choices)
    version = serializers.IntegerField()


class ConfirmReceiptRequest(StrictSerializer):
    user_id = KeyField()
    expected_version = StrictIntegerField(required=False)


class ReplacementConfirmedSerializer(MovedSerializer):
    line_no = serializers.IntegerField(allow_null=True, help_text="the line the exchange made")
    difference_no = serializers.CharField(allow_blank=True, help_text="the linked claim that pays a difference")


class PaySupplementRequest(StrictSerializer):
    user_id = KeyField()
    payer_ref = KeyField(max_length=128, required=False, help_text="not needed for balance")


class SupplementPlacedSerializer(serializers.Serializer):
    after_sales_no = serializers.CharField()
    out_trade_no = serializers.CharField()
    channel = serializers.CharField()
    amount_fen = serializers.IntegerField()
    client_params = serializers.DictField(child=serializers.JSONField())
    expires_at = serializers.DateTimeField(allow_null=True)
    status = serializers.ChoiceField(choices=Status.choices)


class ArbitrationRequest(StrictSerializer):
    user_id = KeyField()
    wish = TextField(max_length=4000)


class LateArbitrationRequest(ArbitrationRequest):
    line_no = StrictIntegerField()
    qty = StrictIntegerField()


class ArbitrationOpenedSerializer(serializers.Serializer):
    case_id = serializers.UUIDField()
    after_sales_no = serializers.CharField(allow_blank=True)
    cause = serializers.ChoiceField(choices=ArbitrationCase.Cause.choices)
    ordinals = serializers.ListField(child=serializers.IntegerField())
    entitled_fen = serializers.IntegerField()


class StatementRequest(StrictSerializer):
    user_id = KeyField()
    text = TextField(max_length=4000)


class StatementAddedSerializer(serializers.Serializer):
    statement_id = serializers.UUIDField()
    case_id = serializers.UUIDField()
    side = serializers.ChoiceField(choices=Actor.choices)


class EvidenceRequest(StrictSerializer):
    user_id = KeyField()
    note = TextField(max_length=200, required=False, allow_blank=True)
    file = serializers.FileField(help_text="JPEG, PNG, WebP or GIF, judged by its content, up to 10 MiB")


class EvidenceAddedSerializer(serializers.Serializer):
    evidence_id = serializers.UUIDField()
    content_type = serializers.CharField()
    size = serializers.IntegerField()
    width = serializers.IntegerField()
    height = serializers.IntegerField()
    sha256 = serializers.CharField()


class CarrierEventRequest(StrictSerializer):
    carrier = KeyField(max_length=32)
    tracking_no = KeyField()
    what = serializers.ChoiceField(choices=CarrierEvent.What.choices)
    happened_at = serializers.DateTimeField()


class CarrierEventRecordedSerializer(serializers.Serializer):
    carrier = serializers.CharField()
    tracking_no = serializers.CharField()
    what = serializers.ChoiceField(choices=CarrierEvent.What.choices)
    after_sales_no = serializers.CharField(allow_blank=True)


class PointsEntrySerializer(serializers.ModelSerializer):
    class Meta:
        model = PointsEntry
        fields = ["kind", "delta", "balance_after", "reference", "created_at"]


class EvidenceSerializer(serializers.ModelSerializer):
    class Meta:
        model = Evidence
        fields = ["id", "side", "note", "content_type", "size", "width", "height", "created_at"]


class ExchangeSerializer(serializers.ModelSerializer):
    class Meta:
        model = Exchange
        fields = [
            "sku",
            "title",
            "unit_price_fen",
            "credit_fen",
            "supplement_fen",
            "difference_fen",
            "supplement_no",
        ]


class CaseSerializer(serializers.ModelSerializer):
    class Meta:
        model = ArbitrationCase
        fields = [
            "id",
            "cause",
            "opened_by",
            "state",
            "entitled_fen",
            "awarded_goods_fen",
            "awarded_freight_fen",
            "responsible",
            "decision",
            "opened_at",
            "closed_at",
        ]


class ReturnShippedSerializer(MovedSerializer):
    carrier = serializers.CharField()
    tracking_no = serializers.CharField()


class UnitSerializer(serializers.ModelSerializer):
    class Meta:
        model = AfterSalesUnit
        fields = ["ordinal", "live", "worth_fen", "earlier_fen", "goods_fen", "freight_fen", "disposition"]


class LogSerializer(serializers.ModelSerializer):
    class Meta:
        model = AfterSalesLog
        fields = ["command", "from_status", "to_status", "to_version", "actor_kind", "reason", "created_at"]


class ShipmentSerializer(serializers.ModelSerializer):
    class Meta:
        model = ReturnShipment
        fields = ["direction", "carrier", "tracking_no", "entered_at", "first_moved_at", "delivered_at"]


class RollbackSerializer(serializers.ModelSerializer):
    class Meta:
        model = Rollback
        fields = ["system", "state", "result", "requested_at", "done_at"]


class RefundAttemptSerializer(serializers.ModelSerializer):
    class Meta:
        model = RefundAttempt
        fields = ["number", "status", "amount_fen", "channel_refund_id", "sent_at", "finished_at"]


class AfterSalesSerializer(serializers.ModelSerializer):
    units = UnitSerializer(many=True)

    class Meta:
        model = AfterSalesOrder
        fields = [
            "after_sales_no",
            "order_no",
            "line_no",
            "user_id",
            "type",
            "qty",
            "accepted_qty",
            "reason_code",
            "description",
            "goods_state",
            "liability_proposed",
            "liability",
            "status",
            "version",
            "applied_goods_fen",
            "applied_freight_fen",
            "entitled_goods_fen",
            "approved_goods_fen",
            "approved_freight_fen",
            "reduction_reason",
            "refund_channel",
            "algorithm",
            "terms_version",
            "due_at",
            "decided_at",
            "finished_at",
            "created_at",
            "units",
        ]


class AfterSalesDetailSerializer(AfterSalesSerializer):
    timeline = LogSerializer(source="log", many=True)
    shipments = ShipmentSerializer(many=True)
    rollbacks = RollbackSerializer(many=True)
    refund_attempts = serializers.SerializerMethodField()
    evidence = EvidenceSerializer(many=True)
    arbitrations = CaseSerializer(many=True)
    exchange = ExchangeSerializer(allow_null=True)

    class Meta(AfterSalesSerializer.Meta):
        fields = [
            *AfterSalesSerializer.Meta.fields,
            "timeline",
            "shipments",
            "rollbacks",
            "refund_attempts",
            "evidence",
            "arbitrations",
            "exchange",
        ]

    def to_representation(self, claim: AfterSalesOrder) -> dict[str, Any]:
        """Only an exchange has a replacement; the others say so with null."""
        if not hasattr(claim, "exchange"):
            claim.exchange = None
        shown: dict[str, Any] = super().to_representation(claim)
        return shown

    @extend_schema_field(RefundAttemptSerializer(many=True))
    def get_refund_attempts(self, claim: AfterSalesOrder) -> list[dict[str, Any]]:
        attempts = RefundAttempt.objects.filter(request__in=refund_requests_of(claim)).order_by("number")
        return list(RefundAttemptSerializer(attempts, many=True).data)
