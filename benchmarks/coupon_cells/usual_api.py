"""The lock as one usually writes it: a token, a serializer, a DRF view, the ORM. For comparison only."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.crypto import constant_time_compare
from rest_framework import serializers
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from benchmarks.coupon_cells.work import lock_as_usual
from coupons.models import UserCoupon
from merchants.models import ApiClient

DAY = timedelta(days=1)


class Caller:
    is_authenticated = True


class TokenAuthentication(BaseAuthentication):
    """A token looked up in the database, as rest_framework.authtoken does it."""

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        _word, _, given = get_authorization_header(request).decode().partition(" ")
        client = ApiClient.objects.select_related("merchant").filter(name=given, is_active=True).first()
        if client is None or not constant_time_compare(client.name, given):
            return None
        return Caller(), client


class LockSerializer(serializers.Serializer):
    user_id = serializers.CharField(max_length=64)
    order_no = serializers.CharField(max_length=64)
    lease_seconds = serializers.IntegerField(min_value=1)


class CouponSerializer(serializers.ModelSerializer):
    class Meta:
        model = UserCoupon
        fields = ("id", "user_id", "status", "state_version", "locked_order_no", "lock_id", "lease_expires_at")


class UsualLock(APIView):
    authentication_classes = [TokenAuthentication]
    permission_classes = [IsAuthenticated]

    def post(self, request: Request, coupon_id: UUID) -> Response:
        asked = LockSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        with transaction.atomic():
            coupon = lock_as_usual(
                merchant_id=request.auth.merchant_id,
                coupon_id=coupon_id,
                key=request.headers["Idempotency-Key"],
                **asked.validated_data,
            )
        return Response(CouponSerializer(coupon).data, status=201)


def healthz(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok")


urlpatterns = [
    path("healthz", healthz),
    path("api/v1/coupons/<uuid:coupon_id>/lock", UsualLock.as_view()),
]
