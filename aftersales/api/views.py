"""After-sales over HTTP: everything a buyer's backend may ask for."""

import hashlib
from dataclasses import asdict, replace
from typing import Any, cast
from uuid import UUID

from django.http import FileResponse, HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from aftersales import queries
from aftersales.actors import By
from aftersales.api.serializers import (
    AfterSalesDetailSerializer,
    AfterSalesSerializer,
    AppliedSerializer,
    ApplyRequest,
    ArbitrationOpenedSerializer,
    ArbitrationRequest,
    CancelRequest,
    CarrierEventRecordedSerializer,
    CarrierEventRequest,
    CommissionsDeclaredSerializer,
    CommissionsRequest,
    ConfirmReceiptRequest,
    EvidenceAddedSerializer,
    EvidenceRequest,
    LateArbitrationRequest,
    MovedSerializer,
    PaySupplementRequest,
    PointsEntrySerializer,
    PreviewRequest,
    PreviewSerializer,
    ReplacementConfirmedSerializer,
    ReturnShipmentRequest,
    ReturnShippedSerializer,
    StatementAddedSerializer,
    StatementRequest,
    SupplementPlacedSerializer,
)
from aftersales.commands.add_evidence import MAX_BYTES, add_evidence
from aftersales.commands.add_statement import add_statement
from aftersales.commands.apply_after_sales import apply_after_sales
from aftersales.commands.cancel_after_sales import cancel_after_sales
from aftersales.commands.confirm_replacement import confirm_replacement
from aftersales.commands.declare_order_commission import declare_order_commission
from aftersales.commands.open_arbitration import open_arbitration
from aftersales.commands.open_late_arbitration import open_late_arbitration
from aftersales.commands.pay_supplement import pay_supplement
from aftersales.commands.record_carrier_event import record_carrier_event
from aftersales.commands.ship_return import ship_return
from aftersales.drafts import Item, Replacement
from aftersales.images import path_of
from aftersales.models import Actor, Evidence, Status
from aftersales.preview import preview_refund
from aftersales.risk import Application
from kernel import clock, idempotency
from kernel.errors import NotFound
from kernel.http.views import CommandView, ReadView, command_schema, read_schema
from ledgers.commands.declare_commission import Share
from merchants.api.authentication import ClientAuth

SCOPE = "after_sales"


def client(request: Request) -> ClientAuth:
    """Who asks."""
    return cast(ClientAuth, request.auth)


def item_of(given: dict[str, Any]) -> Item:
    """An item of a body as the command takes it."""
    replacement = given.get("replacement")
    return Item(**{**given, "replacement": Replacement(**replacement) if replacement else None})


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
        claims = queries.list_after_sales(merchant_id=client(request).merchant_id, **wanted)
        return self.page(claims, AfterSalesSerializer)

    @command_schema(
        request=ApplyRequest, response=AppliedSerializer, operation_id="apply_after_sales", tags=["after-sales"]
    )
    def post(self, request: Request) -> HttpResponse:
        """Apply for one or several lines of an order, all or none; one after-sales order each."""
        body = self.body(ApplyRequest)
        result = apply_after_sales(
            merchant_id=client(request).merchant_id,
            order_no=body["order_no"],
            user_id=body["user_id"],
            items=[item_of(item) for item in body["items"]],
            key=self.business_key(),
            application=Application(
                device_hash=body.get("device_hash", ""),
                account_created_at=body.get("account_created_at"),
                freight_insured=body.get("freight_insured", False),
            ),
            now=clock.now(),
        )
        return self.answer(result)


class AfterSalesPreview(CommandView):
    scope = SCOPE

    @read_schema(
        request=PreviewRequest,
        response=PreviewSerializer,
        also=(409, 415, 422),
        operation_id="preview_after_sales",
        tags=["after-sales"],
    )
    def post(self, request: Request) -> Response:
        """What an application would pay, every share named. Changes nothing and needs no idempotency key."""
        body = self.body(PreviewRequest)
        preview = preview_refund(
            merchant_id=client(request).merchant_id,
            order_no=body["order_no"],
            user_id=body["user_id"],
            items=[item_of(item) for item in body["items"]],
            now=clock.now(),
        )
        return Response(PreviewSerializer(asdict(preview)).data)


class AfterSalesDetail(ReadView):
    @read_schema(response=AfterSalesDetailSerializer, operation_id="get_after_sales", tags=["after-sales"])
    def get(self, request: Request, after_sales_no: str) -> Response:
        """One after-sales order with units, timeline, parcels, refund attempts and rollbacks."""
        claim = queries.get_after_sales(merchant_id=client(request).merchant_id, after_sales_no=after_sales_no)
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
            merchant_id=client(request).merchant_id,
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
            merchant_id=client(request).merchant_id,
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


class AfterSalesConfirmReceipt(CommandView):
    scope = SCOPE

    @command_schema(
        request=ConfirmReceiptRequest,
        response=ReplacementConfirmedSerializer,
        status=200,
        operation_id="confirm_replacement",
        tags=["after-sales"],
    )
    def post(self, request: Request, after_sales_no: str) -> HttpResponse:
        """The buyer has the replacement of an exchange or a reship."""
        body = self.body(ConfirmReceiptRequest)
        result = confirm_replacement(
            merchant_id=client(request).merchant_id,
            after_sales_no=after_sales_no,
            user_id=body["user_id"],
            expected_version=body.get("expected_version"),
            by=By(Actor.BUYER, body["user_id"]),
            key=self.business_key(exclude=("expected_version",)),
            now=clock.now(),
        )
        return self.answer(result, status=200)


class AfterSalesPay(CommandView):
    scope = SCOPE

    @command_schema(
        request=PaySupplementRequest,
        response=SupplementPlacedSerializer,
        operation_id="pay_supplement",
        tags=["after-sales"],
    )
    def post(self, request: Request, after_sales_no: str) -> HttpResponse:
        """Place the supplement of a dearer exchange at its channel. Asked again, the same parameters come back."""
        body = self.body(PaySupplementRequest)
        result = pay_supplement(
            merchant_id=client(request).merchant_id,
            after_sales_no=after_sales_no,
            user_id=body["user_id"],
            payer_ref=body.get("payer_ref", ""),
            now=clock.now(),
        )
        return self.answer(result)


class AfterSalesArbitration(CommandView):
    scope = SCOPE

    @command_schema(
        request=ArbitrationRequest,
        response=ArbitrationOpenedSerializer,
        operation_id="open_arbitration",
        tags=["after-sales"],
    )
    def post(self, request: Request, after_sales_no: str) -> HttpResponse:
        """The buyer calls the platform in: after a refusal, a lowered amount, or a replacement that never came."""
        body = self.body(ArbitrationRequest)
        result = open_arbitration(
            merchant_id=client(request).merchant_id,
            after_sales_no=after_sales_no,
            user_id=body["user_id"],
            wish=body["wish"],
            by=By(Actor.BUYER, body["user_id"]),
            key=self.business_key(),
            now=clock.now(),
        )
        return self.answer(result)


class OrderArbitration(CommandView):
    scope = SCOPE

    @command_schema(
        request=LateArbitrationRequest,
        response=ArbitrationOpenedSerializer,
        operation_id="open_late_arbitration",
        tags=["after-sales"],
    )
    def post(self, request: Request, order_no: str) -> HttpResponse:
        """After the window only arbitration is left, over units of a line."""
        body = self.body(LateArbitrationRequest)
        result = open_late_arbitration(
            merchant_id=client(request).merchant_id,
            order_no=order_no,
            user_id=body["user_id"],
            line_no=body["line_no"],
            qty=body["qty"],
            wish=body["wish"],
            key=self.business_key(),
            now=clock.now(),
        )
        return self.answer(result)


class ArbitrationStatements(CommandView):
    scope = SCOPE

    @command_schema(
        request=StatementRequest,
        response=StatementAddedSerializer,
        operation_id="add_statement",
        tags=["after-sales"],
    )
    def post(self, request: Request, case_id: UUID) -> HttpResponse:
        """The buyer says something in an open case."""
        body = self.body(StatementRequest)
        result = add_statement(
            merchant_id=client(request).merchant_id,
            case_id=case_id,
            user_id=body["user_id"],
            text=body["text"],
            by=By(Actor.BUYER, body["user_id"]),
            key=self.business_key(),
            now=clock.now(),
        )
        return self.answer(result)


class EvidenceUpload(CommandView):
    """Shared shape of both uploads: multipart, hashed by content."""

    scope = SCOPE
    parser_classes = [MultiPartParser]
    max_body_bytes = MAX_BYTES + 64 * 1024

    def take(self, request: Request, **owner: Any) -> HttpResponse:
        body = self.body(EvidenceRequest)
        content = body["file"].read()
        asked = [
            request.method,
            request.path,
            body["user_id"],
            body.get("note", ""),
            hashlib.sha256(content).hexdigest(),
        ]
        result = add_evidence(
            merchant_id=client(request).merchant_id,
            content=content,
            note=body.get("note", ""),
            user_id=body["user_id"],
            by=By(Actor.BUYER, body["user_id"]),
            key=replace(self.business_key(exclude=tuple(request.data)), request_hash=idempotency.request_hash(asked)),
            now=clock.now(),
            **owner,
        )
        return self.answer(result)


class AfterSalesEvidence(EvidenceUpload):
    @command_schema(
        request={"multipart/form-data": EvidenceRequest},
        response=EvidenceAddedSerializer,
        operation_id="add_evidence",
        tags=["after-sales"],
    )
    def post(self, request: Request, after_sales_no: str) -> HttpResponse:
        """The buyer shows an image for a claim."""
        return self.take(request, after_sales_no=after_sales_no)


class ArbitrationEvidence(EvidenceUpload):
    @command_schema(
        request={"multipart/form-data": EvidenceRequest},
        response=EvidenceAddedSerializer,
        operation_id="add_case_evidence",
        tags=["after-sales"],
    )
    def post(self, request: Request, case_id: UUID) -> HttpResponse:
        """The buyer shows an image in an arbitration case."""
        return self.take(request, case_id=case_id)


class EvidenceFile(ReadView):
    @read_schema(
        response=OpenApiTypes.BINARY,
        media_types=("image/jpeg", "image/png", "image/webp", "image/gif"),
        operation_id="get_evidence",
        parameters=[_filter("user_id", required=True)],
        tags=["after-sales"],
    )
    def get(self, request: Request, evidence_id: UUID) -> FileResponse:
        """An image, for the buyer whose claim it belongs to."""
        user_id = request.query_params.get("user_id", "")
        if not user_id or "\x00" in user_id:
            raise ValidationError({"user_id": ["needed"]})
        found = queries.get_evidence(merchant_id=client(request).merchant_id, evidence_id=evidence_id, user_id=user_id)
        return image_response(found)


def image_response(evidence: Evidence) -> FileResponse:
    """The bytes under the type we found, which no browser may take for anything else. Raises NotFound."""
    path = path_of(evidence.sha256)
    if not path.exists():
        raise NotFound(evidence_id=str(evidence.pk))
    response = FileResponse(path.open("rb"), content_type=evidence.content_type)
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response["Cache-Control"] = "private, max-age=3600"
    return response


class CarrierEvents(CommandView):
    scope = SCOPE

    @command_schema(
        request=CarrierEventRequest,
        response=CarrierEventRecordedSerializer,
        operation_id="record_carrier_event",
        tags=["after-sales"],
    )
    def post(self, request: Request) -> HttpResponse:
        """What a carrier says about a parcel. The same event again is the same row."""
        body = self.body(CarrierEventRequest)
        result = record_carrier_event(merchant_id=client(request).merchant_id, **body, now=clock.now())
        return self.answer(result)


class OrderCommissions(CommandView):
    scope = SCOPE

    @command_schema(
        request=CommissionsRequest,
        response=CommissionsDeclaredSerializer,
        operation_id="declare_commissions",
        tags=["after-sales"],
    )
    def post(self, request: Request, order_no: str) -> HttpResponse:
        """Who earns from which line, and how much of it. Booked when the order completes."""
        body = self.body(CommissionsRequest)
        result = declare_order_commission(
            merchant_id=client(request).merchant_id,
            order_no=order_no,
            shares=[Share(**share) for share in body["shares"]],
            key=self.business_key(),
            now=clock.now(),
        )
        return self.answer(result)


class PointsLedger(ReadView):
    @read_schema(
        response=PointsEntrySerializer(many=True),
        operation_id="list_points",
        parameters=[_filter("user_id", required=True)],
        tags=["after-sales"],
    )
    def get(self, request: Request) -> Response:
        """A user's points: every movement, newest first."""
        user_id = request.query_params.get("user_id", "")
        if not user_id or "\x00" in user_id:
            raise ValidationError({"user_id": ["needed"]})
        entries = queries.list_points(merchant_id=client(request).merchant_id, user_id=user_id)
        return self.page(entries, PointsEntrySerializer)
