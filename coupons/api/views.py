"""The coupons API: each POST runs one command, each GET one query."""

from typing import ClassVar, cast
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from coupons import queries
from coupons.api import serializers as s
from coupons.api.hot import lease_seconds_of
from coupons.commands.issue_coupon import issue_coupon
from coupons.commands.lock_coupon import lock_coupon
from coupons.commands.redeem_coupon import redeem_coupon
from coupons.commands.release_coupon import release_coupon
from coupons.commands.renew_coupon import renew_coupon
from coupons.commands.return_coupon import return_coupon
from coupons.commands.void_coupon import void_coupon
from coupons.models import CouponStatus, UserCoupon
from kernel import clock
from kernel.errors import NotFound
from kernel.http.pagination import KeysetPagination
from kernel.http.views import CommandView, ReadView, command_schema, read_schema
from merchants.api.authentication import ClientAuth

HASH_WITHOUT = ("expected_version",)
"""A caller that has learnt a newer version may repeat its command under the same key."""


def caller(request: Request) -> ClientAuth:
    """The merchant's client behind a signed request."""
    return cast(ClientAuth, request.auth)


def actor_of(request: Request) -> str:
    """Who acts, as the ledger names it."""
    return f"client:{caller(request).key_id}"


class IssueView(CommandView):
    scope: ClassVar[str] = "coupons"

    @command_schema(request=s.IssueRequest, response=s.IssuedSerializer, operation_id="coupon_issue")
    def post(self, request: Request) -> HttpResponse:
        """Issue a coupon of a template to a user. 422 LIMIT_REACHED or NOT_ISSUABLE."""
        result = issue_coupon(
            merchant_id=caller(request).merchant_id,
            **self.body(s.IssueRequest),
            actor=actor_of(request),
            key=self.business_key(),
            now=clock.now(),
        )
        return self.answer(result)


class LockView(CommandView):
    scope: ClassVar[str] = "coupons"

    @command_schema(request=s.LockRequest, response=s.LockedSerializer, operation_id="coupon_lock")
    def post(self, request: Request, coupon_id: UUID) -> HttpResponse:
        """Lease a coupon to an order. The token comes back here only; renew, redeem and release need it."""
        body = self.body(s.LockRequest)
        body.setdefault("lease_seconds", lease_seconds_of(caller(request).merchant_id))
        result = lock_coupon(
            merchant_id=caller(request).merchant_id,
            coupon_id=coupon_id,
            **body,
            actor=actor_of(request),
            key=self.business_key(exclude=HASH_WITHOUT),
            now=clock.now(),
        )
        return self.answer(result)


class RenewView(CommandView):
    scope: ClassVar[str] = "coupons"

    @command_schema(request=s.RenewRequest, response=s.RenewedSerializer, operation_id="coupon_renew")
    def post(self, request: Request, coupon_id: UUID) -> HttpResponse:
        """Lengthen the lease; also after its time, as long as nobody released it."""
        result = renew_coupon(
            merchant_id=caller(request).merchant_id,
            coupon_id=coupon_id,
            **self.body(s.RenewRequest),
            actor=actor_of(request),
            key=self.business_key(exclude=HASH_WITHOUT),
            now=clock.now(),
        )
        return self.answer(result)


class RedeemView(CommandView):
    scope: ClassVar[str] = "coupons"

    @command_schema(request=s.RedeemRequest, response=s.RedeemedSerializer, operation_id="coupon_redeem")
    def post(self, request: Request, coupon_id: UUID) -> HttpResponse:
        """Use the coupon for the paid order that holds it."""
        result = redeem_coupon(
            merchant_id=caller(request).merchant_id,
            coupon_id=coupon_id,
            **self.body(s.RedeemRequest),
            actor=actor_of(request),
            key=self.business_key(exclude=HASH_WITHOUT),
            now=clock.now(),
        )
        return self.answer(result)


class ReleaseView(CommandView):
    scope: ClassVar[str] = "coupons"

    @command_schema(request=s.ReleaseRequest, response=s.ReleasedSerializer, operation_id="coupon_release")
    def post(self, request: Request, coupon_id: UUID) -> HttpResponse:
        """Give the coupon up. It is EXPIRED afterwards when its own validity is over."""
        result = release_coupon(
            merchant_id=caller(request).merchant_id,
            coupon_id=coupon_id,
            **self.body(s.ReleaseRequest),
            actor=actor_of(request),
            key=self.business_key(exclude=HASH_WITHOUT),
            now=clock.now(),
        )
        return self.answer(result)


class ReturnView(CommandView):
    scope: ClassVar[str] = "coupons"

    @command_schema(request=s.ReturnRequest, response=s.ReturnedSerializer, operation_id="coupon_return")
    def post(self, request: Request, coupon_id: UUID) -> HttpResponse:
        """Give a used coupon back by a recorded RETURN decision (the coupon's `return_decisions`)."""
        body = self.body(s.ReturnRequest)
        found = queries.get_coupon(merchant_id=caller(request).merchant_id, coupon_id=coupon_id)
        if found is None or not found.couponredemption_set.filter(pk=body["redemption_id"]).exists():
            raise NotFound()
        result = return_coupon(
            merchant_id=caller(request).merchant_id,
            **body,
            actor=actor_of(request),
            key=self.business_key(exclude=HASH_WITHOUT),
            now=clock.now(),
        )
        return self.answer(result)


class VoidView(CommandView):
    scope: ClassVar[str] = "coupons"

    @command_schema(request=s.VoidRequest, response=s.StateSerializer, operation_id="coupon_void")
    def post(self, request: Request, coupon_id: UUID) -> HttpResponse:
        """Take an available or used coupon out of use, with a reason."""
        result = void_coupon(
            merchant_id=caller(request).merchant_id,
            coupon_id=coupon_id,
            **self.body(s.VoidRequest),
            actor=actor_of(request),
            key=self.business_key(exclude=HASH_WITHOUT),
            now=clock.now(),
        )
        return self.answer(result)


class NewestFirst(KeysetPagination):
    """Pages by id: ids are made in order of time and are unique, so one column is a whole key."""

    ordering = ("-id",)  # type: ignore[assignment]


class CouponListView(ReadView):
    pagination_class = NewestFirst

    @read_schema(
        response=s.CouponSerializer(many=True),
        operation_id="coupon_list",
        parameters=[
            OpenApiParameter("user_id", str, description="Coupons of this user only."),
            OpenApiParameter("status", str, enum=CouponStatus.values),
        ],
    )
    def get(self, request: Request) -> Response:
        """Coupons, newest first."""
        asked = {name: value for name, value in request.query_params.items() if name in ("user_id", "status")}
        query = s.ListQuery(data=asked)
        query.is_valid(raise_exception=True)
        coupons = queries.list_coupons(merchant_id=caller(request).merchant_id, **query.validated_data)
        return self.page(coupons, s.CouponSerializer)


class CouponView(ReadView):
    @read_schema(response=s.CouponDetailSerializer, operation_id="coupon_read")
    def get(self, request: Request, coupon_id: UUID) -> Response:
        """One coupon with its redemptions and return decisions."""
        return Response(s.CouponDetailSerializer(_read(request, coupon_id)).data)


class TimelineView(ReadView):
    @read_schema(response=s.TimelineSerializer, operation_id="coupon_timeline")
    def get(self, request: Request, coupon_id: UUID) -> Response:
        """Everything that happened to a coupon by version, with refused commands and gaps."""
        return Response(s.TimelineSerializer(queries.get_timeline(_read(request, coupon_id))).data)


def _read(request: Request, coupon_id: UUID) -> UserCoupon:
    found = queries.get_coupon(merchant_id=caller(request).merchant_id, coupon_id=coupon_id)
    if found is None:
        raise NotFound()
    return found
