"""RFC 9457 problem details for every error the API answers, over drf-standardized-errors."""

from http import HTTPStatus
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.db import IntegrityError, OperationalError
from django.http import HttpRequest, JsonResponse
from django.utils.translation import gettext as _
from drf_standardized_errors.formatter import ExceptionFormatter
from drf_standardized_errors.handler import ExceptionHandler
from rest_framework import exceptions, serializers
from rest_framework.response import Response

from kernel import valkey
from kernel.errors import Refusal, ServiceAway, refusal_for_constraint
from kernel.transactions import constraint_of

MEDIA_TYPE = "application/problem+json"

CODES = {
    400: "INVALID_INPUT",
    401: "NOT_AUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    406: "NOT_ACCEPTABLE",
    413: "BODY_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    429: "THROTTLED",
    500: "INTERNAL_ERROR",
    503: "SERVICE_AWAY",
}


class RefusalProblem(exceptions.APIException):
    """A command's refusal on its way through DRF."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(detail=str(refusal.message), code=refusal.code)
        self.status_code = refusal.status
        self.refusal = refusal
        self.wait = refusal.data.get("retry_after_seconds")
        self.auth_header = getattr(refusal, "auth_header", None)


class BodyTooLarge(exceptions.APIException):
    status_code = 413
    default_code = "BODY_TOO_LARGE"


class ProblemHandler(ExceptionHandler):
    """Turns refusals, known database errors and an absent service into problems; anything else is a plain 500."""

    def convert_known_exceptions(self, exc: Exception) -> Exception:
        if isinstance(exc, Refusal):
            return RefusalProblem(exc)
        if isinstance(exc, IntegrityError):
            kind = refusal_for_constraint(constraint_of(exc))
            if kind is not None:
                return RefusalProblem(kind())
        if isinstance(exc, (OperationalError, valkey.Away)):
            return RefusalProblem(ServiceAway(retry_after_seconds=1))
        if isinstance(exc, RequestDataTooBig):
            return BodyTooLarge(_("The body is too large."))
        return super().convert_known_exceptions(exc)

    def report_exception(self, exc: exceptions.APIException, response: Response) -> None:
        """A refusal is an answer, with 503 too: it is no crash, and the log must not say 500 of it."""
        if not isinstance(exc, RefusalProblem):
            super().report_exception(exc, response)

    def get_response(self, exc: exceptions.APIException, data: dict[str, Any]) -> Response:
        response = super().get_response(exc, data)
        response.content_type = MEDIA_TYPE
        return response


class ProblemFormatter(ExceptionFormatter):
    """type, title, status, detail, code, data, request_id; a validation error also names each field."""

    def run(self) -> dict[str, Any]:
        request = self.context.get("request")
        status = self.exc.status_code
        refusal = getattr(self.exc, "refusal", None)
        body = problem(
            status=status,
            code=refusal.code if refusal else CODES.get(status, "ERROR"),
            detail=str(refusal.message) if refusal else self._detail(),
            data=refusal.data if refusal else {},
            request_id=getattr(getattr(request, "_request", request), "request_id", ""),
        )
        if isinstance(self.exc, exceptions.ValidationError):
            body["errors"] = [
                {"field": error.attr or "", "code": error.code, "detail": str(error.detail)}
                for error in self.get_errors()
            ]
        return body

    def _detail(self) -> str:
        if isinstance(self.exc, exceptions.ValidationError):
            return _("The request is not valid.")
        return "; ".join(str(error.detail) for error in self.get_errors())


def problem(*, status: int, code: str, detail: str, data: dict[str, Any], request_id: str) -> dict[str, Any]:
    """The members of a problem document."""
    return {
        "type": f"urn:quits:problem:{code.lower()}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        "data": data,
        "request_id": request_id,
    }


def problem_response(request: HttpRequest, *, status: int, code: str, detail: str, **data: Any) -> JsonResponse:
    """A problem from outside DRF (middleware, hand-written views, error pages below /api/)."""
    body = problem(status=status, code=code, detail=detail, data=data, request_id=getattr(request, "request_id", ""))
    response = JsonResponse(body, status=status, content_type=MEDIA_TYPE, json_dumps_params={"ensure_ascii": False})
    if "retry_after_seconds" in data:
        response["Retry-After"] = str(data["retry_after_seconds"])
    return response


class FieldErrorSerializer(serializers.Serializer):
    field = serializers.CharField()
    code = serializers.CharField()
    detail = serializers.CharField()


class ProblemSerializer(serializers.Serializer):
    """The shape of every error (RFC 9457)."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    code = serializers.CharField(help_text="Stable, for programs.")
    data = serializers.DictField(child=serializers.JSONField())  # type: ignore[assignment]
    request_id = serializers.CharField()
    errors = FieldErrorSerializer(many=True, required=False)  # type: ignore[assignment]
