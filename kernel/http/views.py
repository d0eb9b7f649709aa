"""The shape of API views: serializer → one command → answer."""

import re
from typing import Any, ClassVar

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView

from kernel import idempotency, results
from kernel.http.pagination import KeysetPagination
from kernel.http.problems import MEDIA_TYPE, ProblemSerializer

KEY = re.compile(r"[\x21-\x7e]{1,128}")

IDEMPOTENCY_PARAMETER = OpenApiParameter(
    "Idempotency-Key",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    required=True,
    description="1 to 128 printable characters. The same key and body repeat the first answer.",
)

PROBLEMS = {
    400: "The request is not valid.",
    401: "The signature is missing or wrong.",
    403: "The client lacks the scope.",
    404: "No such object for this merchant.",
    409: "Conflict of state, or a request with this key is in progress.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "Business refusal, or the idempotency key was used for another request.",
    429: "Too many requests.",
    503: "A service this request needs is away.",
}


def _schema(*, problems: tuple[int, ...], **kwargs: Any) -> Any:
    kwargs["responses"] = {
        **kwargs.pop("responses"),
        **{(code, MEDIA_TYPE): OpenApiResponse(ProblemSerializer, description=PROBLEMS[code]) for code in problems},
    }
    return extend_schema(**kwargs)


def command_schema(*, request: Any, response: Any, status: int = 201, **kwargs: Any) -> Any:
    """OpenAPI for a POST that changes something: idempotency header, body, answer, problems."""
    return _schema(
        problems=(400, 401, 403, 404, 409, 413, 415, 422, 429, 503),
        request=request,
        responses={status: response},
        parameters=[IDEMPOTENCY_PARAMETER, *kwargs.pop("parameters", [])],
        **kwargs,
    )


def read_schema(
    *, response: Any, also: tuple[int, ...] = (), media_types: tuple[str, ...] = ("application/json",), **kwargs: Any
) -> Any:
    """OpenAPI for a GET; `also` are problems that a read with a body has."""
    responses = {(200, media_type): response for media_type in media_types}
    return _schema(problems=(400, 401, 403, 404, 413, 429, 503, *also), responses=responses, **kwargs)


class ReadView(APIView):
    """A signed read. `scope` names what the client has to hold; 'read' is enough to read anything."""

    scope: ClassVar[str] = "read"
    pagination_class = KeysetPagination

    def page(self, queryset: Any, serializer: type[BaseSerializer]) -> Response:
        """One keyset page of a queryset."""
        paginator = self.pagination_class()
        rows: Any = paginator.paginate_queryset(queryset, self.request, view=self)
        return paginator.get_paginated_response(serializer(rows, many=True).data)


class CommandView(APIView):
    """A signed POST that runs one command under an idempotency key."""

    scope: ClassVar[str] = ""
    request: Request

    def body(self, serializer: type[BaseSerializer]) -> dict[str, Any]:
        """The validated body; anything that is not a JSON object is refused."""
        if not isinstance(self.request.data, dict):
            raise ValidationError({"": ["a JSON object is needed"]})
        checked = serializer(data=self.request.data)
        checked.is_valid(raise_exception=True)
        return dict(checked.validated_data)

    def business_key(self, *, exclude: tuple[str, ...] = ()) -> idempotency.BusinessKey:
        """The request's key: hash over method, path and canonical body without the `exclude`d members."""
        key = self.request.headers.get("Idempotency-Key", "")
        if not KEY.fullmatch(key):
            raise ValidationError({"Idempotency-Key": ["1 to 128 printable characters are needed"]})
        data = self.request.data if isinstance(self.request.data, dict) else {}
        asked = {name: value for name, value in data.items() if name not in exclude}
        return idempotency.BusinessKey(
            merchant_id=self.request.auth.merchant_id,  # type: ignore[union-attr]  # ClientAuth
            key=key,
            request_hash=idempotency.request_hash([self.request.method, self.request.path, asked]),
        )

    def answer(self, result: Any, *, status: int = 201, **extra: Any) -> HttpResponse:
        """The canonical JSON of a result. `extra` members are derived, not stored (addresses, recomputed tokens)."""
        text = results.canonical_json({**results.to_data(result), **extra})
        response = HttpResponse(text, status=status, content_type="application/json")
        if getattr(result, "replayed", False):
            response["Idempotency-Replayed"] = "true"
        return response
