"""After-sales over HTTP: preview, apply, read, cancel, send back."""

from dataclasses import asdict
from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from aftersales import queries
from aftersales.actors import By
from aftersales.api.serializers import (
    AfterSalesDetailSerializer,
    AfterSalesSerializer,
    AppliedSerializer,
    ApplyRequest,
    CancelRequest,
    MovedSerializer,
    PreviewSerializer,
    ReturnShipmentRequest,
    ReturnShippedSerializer,
)
from aftersales.commands.apply_after_sales import apply_after_sales
from aftersales.commands.cancel_after_sales import cancel_after_sales
from aftersales.commands.ship_return import ship_return
from aftersales.drafts import Item
from aftersales.models import Actor, Status
from aftersales.preview import preview_refund
from kernel import clock
from kernel.http.views import CommandView, ReadView, command_schema, read_schema

SCOPE = "after_sales"


def _filter(name: str, **kwargs: Any) -> OpenApiParameter:
    return OpenApiParameter(name, OpenApiTypes.STR, OpenApiParameter.QUERY, **kwargs)


class AfterSalesCollection(CommandView, ReadView):
    scope = SCOPE

    @read_schema(
        response=AfterSalesSerializer(many=True),
        operation_id="list_after_sales",
        parameters=[_filter("user_id"), _filter("order_no"), _filter("status", enum=Status.values)],
        tags=["after-sales"],
    )
    def get(self, request: Request) -> Response:
        """A merchant's after-sales orders, newest first."""
        wanted = {name: request.query_params.get(name, "") for name in ("user_id", "order_no", "status")}
        if wanted["status"] and wanted["status"] not in Status.values:
            raise ValidationError({"status": ["unknown status"]})
        if any("\x00" in value for value in wanted.values()):
            raise ValidationError({"": ["not printable"]})
        claims = queries.list_after_sales(merchant_id=request.auth.merchant_id, **wanted)
        return self.page(claims, AfterSalesSerializer)

    @command_schema(
        request=ApplyRequest, response=AppliedSerializer, operation_id="apply_after_sales", tags=["after-sales"]
    )
    def post(self, request: Request) -> HttpResponse:
        """Apply for one or several lines of an order, all or none; one after-sales order each."""
        body = self.body(ApplyRequest)
        result = apply_after_sales(
            merchant_id=request.auth.merchant_id,
            order_no=body["order_no"],
            user_id=body["user_id"],
            items=[Item(**item) for item in body["items"]],
            key=self.business_key(),
            now=clock.now(),
        )
        return self.answer(result)


class AfterSalesPreview(CommandView):
    scope = SCOPE

    @read_schema(
        request=ApplyRequest, response=PreviewSerializer, operation_id="preview_after_sales", tags=["after-sales"]
    )
    def post(self, request: Request) -> Response:
        """What an application would pay, every share named. Changes nothing and needs no idempotency key."""
        body = self.body(ApplyRequest)
        preview = preview_refund(
            merchant_id=request.auth.merchant_id,
            order_no=body["order_no"],
            user_id=body["user_id"],
            items=[Item(**item) for item in body["items"]],
            now=clock.now(),
        )
        return Response(PreviewSerializer(asdict(preview)).data)


class AfterSalesDetail(ReadView):
    @read_schema(response=AfterSalesDetailSerializer, operation_id="get_after_sales", tags=["after-sales"])
    def get(self, request: Request, after_sales_no: str) -> Response:
        """One after-sales order with units, timeline, parcels, refund attempts and rollbacks."""
        claim = queries.get_after_sales(merchant_id=request.auth.merchant_id, after_sales_no=after_sales_no)
        return Response(AfterSalesDetailSerializer(claim).data)


class AfterSalesCancel(CommandView):
    scope = SCOPE

    @command_schema(
        request=CancelRequest,
        response=MovedSerializer,
        status=200,
        operation_id="cancel_after_sales",
        tags=["after-sales"],
    )
    def post(self, request: Request, after_sales_no: str) -> HttpResponse:
        """The buyer takes the application back."""
        body = self.body(CancelRequest)
        result = cancel_after_sales(
            merchant_id=request.auth.merchant_id,
            after_sales_no=after_sales_no,
            user_id=body["user_id"],
            expected_version=body.get("expected_version"),
            reason=body.get("reason", ""),
            by=By(Actor.BUYER, body["user_id"]),
            key=self.business_key(exclude=("expected_version",)),
            now=clock.now(),
        )
        return self.answer(result, status=200)


class AfterSalesReturnShipment(CommandView):
    scope = SCOPE

    @command_schema(
        request=ReturnShipmentRequest,
        response=ReturnShippedSerializer,
        operation_id="ship_return",
        tags=["after-sales"],
    )
    def post(self, request: Request, after_sales_no: str) -> HttpResponse:
        """The buyer says with which parcel the goods come back."""
        body = self.body(ReturnShipmentRequest)
        result = ship_return(
            merchant_id=request.auth.merchant_id,
            after_sales_no=after_sales_no,
            user_id=body["user_id"],
            carrier=body["carrier"],
            tracking_no=body["tracking_no"],
            expected_version=body.get("expected_version"),
            by=By(Actor.BUYER, body["user_id"]),
            key=self.business_key(exclude=("expected_version",)),
            now=clock.now(),
        )
        return self.answer(result)
