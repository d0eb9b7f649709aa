"""The orders API: each POST runs one command, each GET one query."""

from typing import ClassVar, cast
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views.decorators.csrf import csrf_exempt
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from kernel import clock
from kernel.errors import NotFound
from kernel.http.problems import MEDIA_TYPE, ProblemSerializer
from kernel.http.views import CommandView, ReadView, command_schema, read_schema
from merchants.api.authentication import ClientAuth
from orders import queries, status_board, wallets
from orders.actors import staff
from orders.api import serializers as s
from orders.commands.cancel_order import cancel_order
from orders.commands.complete_order import confirm_receipt
from orders.commands.create_order import create_order
from orders.commands.create_quote import AskedLine, create_quote
from orders.commands.pay_order import pay_order
from orders.commands.revoke_order_token import revoke_order_token
from orders.commands.ship_order import ShipLine, ship_order
from orders.commands.sign_shipment import sign_shipment
from payments.api.views import AnyBody, receive
from payments.models import ChannelNotify


def caller(request: Request) -> ClientAuth:
    """The merchant's client behind a signed request."""
    return cast(ClientAuth, request.auth)


class QuoteCreateView(CommandView):
    scope: ClassVar[str] = "orders"

    @command_schema(request=s.QuoteRequest, response=s.QuotedSerializer, operation_id="quote_create")
    def post(self, request: Request) -> HttpResponse:
        """Price a cart: every share named, under the number the order will have. With a coupon it is leased for as
        long as the quote stands, and the user's own earlier quote that leased it is replaced: an order by that one is
        409 QUOTE_REPLACED. 422 DISCOUNT_EXCEEDS_GOODS, FREIGHT_SHARES_DO_NOT_ADD_UP, COUPON_NOT_APPLICABLE."""
        body = self.body(s.QuoteRequest)
        points = body.get("points") or {}
        quoted = create_quote(
            merchant_id=caller(request).merchant_id,
            user_id=body["user_id"],
            lines=[AskedLine(**line) for line in body["lines"]],
            coupon_id=body.get("coupon_id"),
            freight_fen=body["freight_fen"],
            subsidy_fen=body["subsidy_fen"],
            points_fen=points.get("worth_fen", 0),
            points_used=points.get("used", 0),
            address=body.get("address"),
            key=self.business_key(),
            now=clock.now(),
        )
        return self.answer(quoted)


class QuoteView(ReadView):
    @read_schema(response=s.QuoteReadSerializer, operation_id="quote_read")
    def get(self, request: Request, quote_id: UUID) -> Response:
        """One quote as it was priced."""
        quote = queries.get_quote(merchant_id=caller(request).merchant_id, quote_id=quote_id)
        if quote is None:
            raise NotFound()
        return Response({**quote.breakdown, "state": quote.state})


class OrdersView(CommandView, ReadView):
    """POST makes an order, GET lists orders."""

    scope: ClassVar[str] = "orders"

    @command_schema(request=s.OrderRequest, response=s.OrderedSerializer, operation_id="order_create")
    def post(self, request: Request) -> HttpResponse:
        """Make an order from a quote; with nothing to pay it is PAID at once. The token in the answer shows the order's
        status to whoever holds it. Read `order_no` from this answer: the same basket again is the pending order that is
        there already, and another one closes it (`closed_reason` superseded). 409 ORDER_ALREADY_PAID, QUOTE_EXPIRED,
        QUOTE_REPLACED, QUOTE_USED; 422 OUT_OF_STOCK."""
        ordered = create_order(
            merchant_id=caller(request).merchant_id,
            **self.body(s.OrderRequest),
            key=self.business_key(),
            now=clock.now(),
        )
        path = f"/api/v1/orders/status/{ordered.order_token}"
        return self.answer(
            ordered,
            order_token=ordered.order_token,
            status_url=f"{settings.QUITS_BASE_URL}{path}",
            events_url=f"{settings.QUITS_STREAM_URL}{path}/events",
        )

    @read_schema(
        response=s.OrderSerializer(many=True),
        operation_id="order_list",
        parameters=[
            OpenApiParameter("user_id", str, description="Orders of this user only."),
            OpenApiParameter("status", int, enum=[0, 10, 20, 30, 40, 50]),
        ],
    )
    def get(self, request: Request) -> Response:
        """Orders, newest first."""
        asked = {name: value for name, value in request.query_params.items() if name in ("user_id", "status")}
        query = s.ListQuery(data=asked)
        query.is_valid(raise_exception=True)
        found = queries.list_orders(merchant_id=caller(request).merchant_id, **query.validated_data)
        return self.page(found, s.OrderSerializer)


class OrderView(ReadView):
    @read_schema(response=s.OrderDetailSerializer, operation_id="order_read")
    def get(self, request: Request, order_no: str) -> Response:
        """One order with its lines, parcels and entitlements."""
        order = queries.get_order(merchant_id=caller(request).merchant_id, order_no=order_no)
        if order is None:
            raise NotFound()
        return Response(s.OrderDetailSerializer(order).data)


class PayView(CommandView):
    scope: ClassVar[str] = "orders"

    @command_schema(request=s.PayRequest, response=s.PaymentPlacedSerializer, operation_id="order_pay")
    def post(self, request: Request, order_no: str) -> HttpResponse:
        """Place the payment at the channel; `client_params` go to the mini-program as they are. An order by balance is
        paid at once: `status` 10. 503 CHANNEL_AWAY: call again, nothing was charged. 422 NOT_ENOUGH_BALANCE: the order
        stays payable."""
        placed = pay_order(
            merchant_id=caller(request).merchant_id,
            order_no=order_no,
            **{"payer_ref": "", **self.body(s.PayRequest)},
            key=self.business_key(),
            now=clock.now(),
        )
        return self.answer(placed)


class CancelView(CommandView):
    scope: ClassVar[str] = "orders"

    @command_schema(request=s.CancelOrderRequest, response=s.CancelledSerializer, operation_id="order_cancel")
    def post(self, request: Request, order_no: str) -> HttpResponse:
        """The user cancels a pending order; the channel is asked first. 409 ORDER_ALREADY_PAID. 503 GATEWAY_UNDECIDED:
        the channel does not say whether it was paid, or a payment is just being placed; nothing changed, ask again
        after `Retry-After` seconds."""
        cancelled = cancel_order(
            merchant_id=caller(request).merchant_id,
            order_no=order_no,
            **self.body(s.CancelOrderRequest),
            key=self.business_key(),
            now=clock.now(),
        )
        return self.answer(cancelled)


class ShipView(CommandView):
    scope: ClassVar[str] = "orders"

    @command_schema(request=s.ShipRequest, response=s.ShippedSerializer, operation_id="order_ship")
    def post(self, request: Request, order_no: str) -> HttpResponse:
        """A parcel leaves. The last one makes the order DELIVERED. 409 UNITS_NOT_FREE: refunded or under a claim."""
        body = self.body(s.ShipRequest)
        lines = body.get("lines")
        shipped = ship_order(
            merchant_id=caller(request).merchant_id,
            order_no=order_no,
            carrier=body["carrier"],
            tracking_no=body["tracking_no"],
            lines=[ShipLine(**line) for line in lines] if lines else None,
            actor=staff(f"client:{caller(request).key_id}"),
            key=self.business_key(),
            now=clock.now(),
        )
        return self.answer(shipped)


class SignView(CommandView):
    scope: ClassVar[str] = "orders"

    @command_schema(request=s.SignRequest, response=s.SignedSerializer, operation_id="order_sign")
    def post(self, request: Request, order_no: str) -> HttpResponse:
        """A parcel has arrived, as the carrier says."""
        signed = sign_shipment(
            merchant_id=caller(request).merchant_id,
            order_no=order_no,
            **self.body(s.SignRequest),
            by=f"client:{caller(request).key_id}",
            key=self.business_key(),
            now=clock.now(),
        )
        return self.answer(signed)


class ConfirmReceiptView(CommandView):
    scope: ClassVar[str] = "orders"

    @command_schema(request=s.UserRequest, response=s.CompletedSerializer, operation_id="order_confirm_receipt")
    def post(self, request: Request, order_no: str) -> HttpResponse:
        """The buyer confirms receipt: COMPLETED."""
        completed = confirm_receipt(
            merchant_id=caller(request).merchant_id,
            order_no=order_no,
            **self.body(s.UserRequest),
            key=self.business_key(),
            now=clock.now(),
        )
        return self.answer(completed)


class RevokeTokenView(CommandView):
    scope: ClassVar[str] = "orders"

    @command_schema(request=s.RevokeTokenRequest, response=s.TokenRevokedSerializer, operation_id="order_revoke_token")
    def post(self, request: Request, order_no: str) -> HttpResponse:
        """Make the order's status token worthless and give out a new one, unless none is wanted."""
        revoked = revoke_order_token(
            merchant_id=caller(request).merchant_id,
            order_no=order_no,
            **self.body(s.RevokeTokenRequest),
            key=self.business_key(),
            now=clock.now(),
        )
        return self.answer(revoked, order_token=revoked.order_token)


class TimelineView(ReadView):
    @read_schema(
        response=s.OrderTimelineSerializer,
        operation_id="order_timeline",
        parameters=[OpenApiParameter("user_id", str, required=True, description="The owner of the order.")],
    )
    def get(self, request: Request, order_no: str) -> Response:
        """The status log, for the owner only: anybody else's order is not there."""
        asked = {name: value for name, value in request.query_params.items() if name == "user_id"}
        query = s.OwnerQuery(data=asked)
        query.is_valid(raise_exception=True)
        entries = queries.get_timeline(
            merchant_id=caller(request).merchant_id, order_no=order_no, **query.validated_data
        )
        if entries is None:
            raise NotFound()
        return Response(s.OrderTimelineSerializer({"order_no": order_no, "entries": entries}).data)


class WalletView(ReadView):
    @read_schema(response=s.WalletSerializer, operation_id="wallet_read")
    def get(self, request: Request, user_id: str) -> Response:
        """A buyer's balance with its newest 50 movements. A buyer without a wallet has 0 fen."""
        s.OwnerQuery(data={"user_id": user_id}).is_valid(raise_exception=True)
        wallet, entries = wallets.get_wallet(merchant_id=caller(request).merchant_id, user_id=user_id)
        balance_fen = wallet.balance_fen if wallet else 0
        return Response(s.WalletSerializer({"user_id": user_id, "balance_fen": balance_fen, "entries": entries}).data)


class StatusView(APIView):
    """The status of an order for whoever holds its token."""

    authentication_classes: list[type] = []
    permission_classes = [AllowAny]

    @extend_schema(
        operation_id="order_status",
        auth=[],
        responses={
            200: s.StatusSerializer,
            (400, MEDIA_TYPE): OpenApiResponse(ProblemSerializer, description="The address holds NUL."),
            (404, MEDIA_TYPE): OpenApiResponse(ProblemSerializer, description="No such token, or it was revoked."),
            (503, MEDIA_TYPE): OpenApiResponse(ProblemSerializer, description="The database is away."),
        },
    )
    def get(self, request: Request, token: str) -> Response:
        """Poll the status. The token is the credential; it names one order and tells nothing else."""
        frame = status_board.read_status(token)
        if frame is None:
            raise NotFound()
        return Response(frame, headers={"Cache-Control": "no-store"})


@method_decorator(csrf_exempt, name="dispatch")
class PaymentNotifyView(APIView):
    """What became of a payment, as the channel posts it."""

    authentication_classes: list[type] = []
    permission_classes = [AllowAny]
    parser_classes = [AnyBody]  # type: ignore[list-item]

    @extend_schema(
        operation_id="payment_notify",
        summary="Callback of a payment channel about a payment",
        description="Verified, stored, acknowledged; worked on afterwards. A forged or stale post is kept as evidence.",
        auth=[],
        request={"application/json": OpenApiTypes.OBJECT, "application/x-www-form-urlencoded": OpenApiTypes.OBJECT},
        responses={
            200: OpenApiResponse(description="Acknowledged (Alipay)."),
            204: OpenApiResponse(description="Acknowledged (WeChat Pay)."),
            400: OpenApiResponse(description="Not what the channel posts."),
            401: OpenApiResponse(description="The signature is missing, wrong or stale."),
            404: OpenApiResponse(description="There is no such channel."),
            (413, MEDIA_TYPE): OpenApiResponse(ProblemSerializer, description="The body is too large."),
        },
    )
    def post(self, request: Request, channel: str, account_id: UUID | None = None) -> HttpResponse:
        raw: HttpRequest = request._request
        return receive(raw, channel=channel, kind=ChannelNotify.Kind.PAYMENT, account_id=account_id)
