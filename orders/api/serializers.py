"""Bodies and answers of the orders API. Answers are the commands' results; what is declared here documents them."""

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from kernel.http.serializers import FenField, KeyField, StrictIntegerField, StrictSerializer, TextField
from ledgers.models import WalletEntry
from orders.commands.create_quote import MOST_LINES
from orders.models import Order, OrderLine, OrderStatusLog, PayMethod, Shipment
from orders.status_board import NAMES

HIGHEST_PRICE_FEN = 10**10
MOST_UNITS = 9999


class LineRequest(StrictSerializer):
    sku = KeyField()
    title = TextField(max_length=200)
    kind = serializers.ChoiceField(choices=OrderLine.Kind.choices, default="physical")
    unit_price_fen = FenField(max_value=HIGHEST_PRICE_FEN)
    qty = StrictIntegerField(max_value=MOST_UNITS)
    line_discount_fen = FenField(default=0)
    freight_share_fen = FenField(required=False, help_text=_("Give it for every line or for none."))
    attributes = serializers.DictField(child=serializers.CharField(max_length=200), default=dict)


class PointsRequest(StrictSerializer):
    used = StrictIntegerField(max_value=10**9)
    worth_fen = FenField(min_value=1)


class AddressRequest(StrictSerializer):
    """Where a parcel goes. Part of the cart's fingerprint; kept with the order."""

    name = TextField(max_length=60)
    phone = KeyField(max_length=32)
    region = TextField(max_length=120, default="", allow_blank=True)
    street = TextField(max_length=200)


class QuoteRequest(StrictSerializer):
    user_id = KeyField()
    lines = serializers.ListField(child=LineRequest(), min_length=1, max_length=MOST_LINES)
    coupon_id = serializers.UUIDField(required=False)
    freight_fen = FenField(default=0)
    subsidy_fen = FenField(default=0)
    points = PointsRequest(required=False)
    address = AddressRequest(required=False)


class OrderRequest(StrictSerializer):
    quote_id = serializers.UUIDField()
    pay_method = serializers.ChoiceField(
        choices=[choice for choice in PayMethod.choices if choice[0] != PayMethod.NONE],
        default=PayMethod.WECHAT,
        help_text=_("Ignored for an order of 0 fen."),
    )


class PayRequest(StrictSerializer):
    user_id = KeyField()
    payer_ref = KeyField(
        max_length=128,
        required=False,
        help_text=_("openid (WeChat Pay), buyer id (Alipay). Not needed for balance: the buyer's own wallet pays."),
    )


class CancelOrderRequest(StrictSerializer):
    user_id = KeyField()
    reason = TextField(max_length=200, default="", allow_blank=True)


class ShipLineRequest(StrictSerializer):
    line_no = StrictIntegerField(max_value=MOST_LINES)
    qty = StrictIntegerField(max_value=MOST_UNITS)


class ShipRequest(StrictSerializer):
    carrier = KeyField(max_length=40)
    tracking_no = KeyField()
    lines = serializers.ListField(
        child=ShipLineRequest(), required=False, min_length=1, help_text=_("Everything that is left unless given.")
    )


class SignRequest(StrictSerializer):
    shipment_id = serializers.UUIDField(required=False, help_text=_("All parcels on their way unless given."))


class UserRequest(StrictSerializer):
    user_id = KeyField()


class RevokeTokenRequest(StrictSerializer):
    renew = serializers.BooleanField(default=True)


class ListQuery(serializers.Serializer):
    user_id = KeyField(required=False)
    status = serializers.ChoiceField(choices=Order.Status.choices, required=False)


class OwnerQuery(serializers.Serializer):
    user_id = KeyField()


class WalletEntrySerializer(serializers.ModelSerializer):
    class Meta:
        model = WalletEntry
        fields = ["kind", "delta_fen", "balance_after_fen", "reference", "charge_no", "created_at"]


class WalletSerializer(serializers.Serializer):
    """What a buyer has, and the newest movements."""

    user_id = serializers.CharField()
    balance_fen = serializers.IntegerField()
    entries = WalletEntrySerializer(many=True)


# --- Answers ------------------------------------------------------------------------------------------------------


class QuotedLineSerializer(serializers.Serializer):
    line_no = serializers.IntegerField()
    sku = serializers.CharField()
    title = serializers.CharField()
    kind = serializers.CharField()
    unit_price_fen = serializers.IntegerField()
    qty = serializers.IntegerField()
    subtotal_fen = serializers.IntegerField()
    line_discount_fen = serializers.IntegerField()
    base_fen = serializers.IntegerField()
    coupon_share_fen = serializers.IntegerField()
    subsidy_share_fen = serializers.IntegerField()
    points_share_fen = serializers.IntegerField()
    points_used = serializers.IntegerField()
    net_fen = serializers.IntegerField()
    freight_share_fen = serializers.IntegerField()
    attributes = serializers.DictField(child=serializers.CharField())


class QuotedCouponSerializer(serializers.Serializer):
    coupon_id = serializers.UUIDField()
    discount_fen = serializers.IntegerField()
    eligible_lines = serializers.ListField(child=serializers.IntegerField())
    lock_id = serializers.UUIDField(allow_null=True)
    state_version = serializers.IntegerField(allow_null=True)
    lease_expires_at = serializers.DateTimeField(allow_null=True)
    held_by_order_no = serializers.CharField(allow_blank=True)


class QuotedSerializer(serializers.Serializer):
    quote_id = serializers.UUIDField()
    order_no = serializers.CharField()
    user_id = serializers.CharField()
    lines = QuotedLineSerializer(many=True)
    goods_fen = serializers.IntegerField()
    line_discount_fen = serializers.IntegerField()
    discount_fen = serializers.IntegerField()
    subsidy_fen = serializers.IntegerField()
    points_fen = serializers.IntegerField()
    points_used = serializers.IntegerField()
    freight_fen = serializers.IntegerField()
    payable_fen = serializers.IntegerField()
    coupon = QuotedCouponSerializer(allow_null=True)
    algorithm_version = serializers.CharField()
    expires_at = serializers.DateTimeField()


class QuoteReadSerializer(QuotedSerializer):
    state = serializers.CharField()


class OrderedSerializer(serializers.Serializer):
    order_no = serializers.CharField()
    order_id = serializers.UUIDField()
    user_id = serializers.CharField()
    status = serializers.IntegerField()
    version = serializers.IntegerField()
    payable_fen = serializers.IntegerField()
    pay_method = serializers.CharField()
    pay_expires_at = serializers.DateTimeField()
    coupon_state = serializers.CharField()
    reused = serializers.BooleanField()
    order_token = serializers.CharField()
    status_url = serializers.URLField()
    events_url = serializers.URLField()


class PaymentPlacedSerializer(serializers.Serializer):
    order_no = serializers.CharField()
    out_trade_no = serializers.CharField()
    channel = serializers.CharField()
    amount_fen = serializers.IntegerField()
    client_params = serializers.DictField(child=serializers.CharField())
    expires_at = serializers.DateTimeField()
    status = serializers.IntegerField()


class CancelledSerializer(serializers.Serializer):
    order_no = serializers.CharField()
    status = serializers.IntegerField()
    version = serializers.IntegerField()
    cancelled_at = serializers.DateTimeField()


class ShippedLineSerializer(serializers.Serializer):
    line_no = serializers.IntegerField()
    qty = serializers.IntegerField()
    ordinals = serializers.ListField(child=serializers.IntegerField())


class ShippedSerializer(serializers.Serializer):
    order_no = serializers.CharField()
    shipment_id = serializers.UUIDField()
    carrier = serializers.CharField()
    tracking_no = serializers.CharField()
    lines = ShippedLineSerializer(many=True)
    status = serializers.IntegerField()
    version = serializers.IntegerField()
    shipped_at = serializers.DateTimeField()
    auto_sign_at = serializers.DateTimeField()


class SignedSerializer(serializers.Serializer):
    order_no = serializers.CharField()
    shipment_ids = serializers.ListField(child=serializers.UUIDField())
    signed_at = serializers.DateTimeField()
    complete_at = serializers.DateTimeField(allow_null=True)


class CompletedSerializer(serializers.Serializer):
    order_no = serializers.CharField()
    status = serializers.IntegerField()
    version = serializers.IntegerField()
    completed_at = serializers.DateTimeField()


class TokenRevokedSerializer(serializers.Serializer):
    order_no = serializers.CharField()
    order_id = serializers.UUIDField()
    token_version = serializers.IntegerField()
    renewed = serializers.BooleanField()
    order_token = serializers.CharField(allow_blank=True)


class StatusSerializer(serializers.Serializer):
    order_no = serializers.CharField()
    status = serializers.IntegerField()
    status_name = serializers.CharField()
    version = serializers.IntegerField()
    payable_fen = serializers.IntegerField()
    pay_expires_at = serializers.DateTimeField()
    terminal = serializers.BooleanField()


class OrderSerializer(serializers.ModelSerializer):
    """An order in a list."""

    status = serializers.IntegerField()
    status_name = serializers.SerializerMethodField()
    closed_reason = serializers.CharField()
    pay_method = serializers.CharField()
    coupon_state = serializers.CharField()
    fulfilment = serializers.CharField()

    class Meta:
        model = Order
        fields = [
            "order_no",
            "user_id",
            "status",
            "status_name",
            "version",
            "closed_reason",
            "goods_fen",
            "discount_fen",
            "subsidy_fen",
            "points_fen",
            "points_used",
            "freight_fen",
            "payable_fen",
            "pay_method",
            "pay_expires_at",
            "coupon_id",
            "coupon_state",
            "fulfilment",
            "trade_no",
            "out_trade_no",
            "created_at",
            "paid_at",
            "delivered_at",
            "completed_at",
            "closed_at",
            "cancelled_at",
            "refund_decided_at",
        ]

    def get_status_name(self, order: Order) -> str:
        return NAMES[order.status]


class OrderLineSerializer(serializers.ModelSerializer):
    kind = serializers.CharField()

    class Meta:
        model = OrderLine
        fields = [
            "line_no",
            "sku",
            "title",
            "kind",
            "attributes",
            "unit_price_fen",
            "qty",
            "line_discount_fen",
            "base_fen",
            "coupon_share_fen",
            "subsidy_share_fen",
            "points_share_fen",
            "points_used",
            "net_fen",
            "freight_share_fen",
            "algorithm_version",
            "shipped_qty",
            "shipped_ordinals",
            "held_ordinals",
            "refunded_ordinals",
            "signed_at",
        ]


class ParcelLineSerializer(serializers.Serializer):
    line_no = serializers.IntegerField(source="line.line_no")
    qty = serializers.IntegerField()
    ordinals = serializers.ListField(child=serializers.IntegerField())


class ParcelSerializer(serializers.ModelSerializer):
    shipment_id = serializers.UUIDField(source="id")
    lines = ParcelLineSerializer(many=True)

    class Meta:
        model = Shipment
        fields = ["shipment_id", "carrier", "tracking_no", "shipped_at", "auto_sign_at", "signed_at", "lines"]


class GrantSerializer(serializers.Serializer):
    line_no = serializers.IntegerField(source="line.line_no")
    sku = serializers.CharField()
    qty = serializers.IntegerField()
    granted_at = serializers.DateTimeField()
    revoked_ordinals = serializers.ListField(child=serializers.IntegerField())


class OrderDetailSerializer(OrderSerializer):
    """An order with its lines, parcels and what it granted."""

    address = serializers.DictField(child=serializers.CharField())
    lines = OrderLineSerializer(many=True)
    shipments = ParcelSerializer(many=True)
    entitlements = GrantSerializer(many=True)

    class Meta(OrderSerializer.Meta):
        fields = [*OrderSerializer.Meta.fields, "address", "lines", "shipments", "entitlements"]


class OrderTimelineEntrySerializer(serializers.ModelSerializer):
    version = serializers.IntegerField(source="to_version")
    command = serializers.CharField()
    from_status = serializers.IntegerField(allow_null=True)
    to_status = serializers.IntegerField()
    actor_kind = serializers.CharField()

    class Meta:
        model = OrderStatusLog
        fields = ["version", "command", "from_status", "to_status", "actor_kind", "reason", "at"]


class OrderTimelineSerializer(serializers.Serializer):
    order_no = serializers.CharField()
    entries = OrderTimelineEntrySerializer(many=True)
