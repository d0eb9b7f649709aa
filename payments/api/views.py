"""Callbacks of the channels. The signature is the credential."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views.decorators.csrf import csrf_exempt
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_view
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.views import APIView

from kernel import clock
from kernel.http.problems import MEDIA_TYPE, ProblemSerializer
from merchants.entrance import address_of
from payments.commands.store_notify import store_notify
from payments.gateway import Channel, NotifyAnswer
from payments.models import ChannelNotify


class AnyBody:
    """Lets every content type through: the bytes are judged by their signature, not by a parser."""

    media_type = "*/*"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> dict[str, Any]:
        return {}


@method_decorator(csrf_exempt, name="dispatch")
class RefundNotifyView(APIView):
    """What became of a refund, as the channel posts it."""

    authentication_classes: list[type] = []
    permission_classes = [AllowAny]
    parser_classes = [AnyBody]  # type: ignore[list-item]

    @extend_schema(
        operation_id="refund_notify",
        summary="Callback of a payment channel about a refund",
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
        return receive(request._request, channel=channel, kind=ChannelNotify.Kind.REFUND, account_id=account_id)


@extend_schema_view(post=extend_schema(operation_id="refund_notify_of_account"))
class RefundNotifyOfAccountView(RefundNotifyView):
    """The same at an address that names the shop's account at the channel: the one we give with each refund."""


def receive(request: HttpRequest, *, channel: str, kind: str, account_id: UUID | None = None) -> HttpResponse:
    """Store a callback and answer as the channel expects. Used by every notify endpoint of the house."""
    if channel not in (Channel.WECHAT, Channel.ALIPAY):
        return HttpResponse(status=404)
    stored = store_notify(
        channel=channel,
        kind=kind,
        headers=dict(request.headers),
        body=request.body,
        address=address_of(request),
        account_id=account_id,
        now=clock.now(),
    )
    return response_of(stored.answer)


def response_of(answer: NotifyAnswer) -> HttpResponse:
    """A driver's answer as HTTP."""
    return HttpResponse(
        answer.body, status=answer.status, content_type=answer.content_type or "text/plain; charset=utf-8"
    )
