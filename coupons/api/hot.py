"""The hot commands (lock, renew, redeem, release) without the framework's toll.

`hot` puts a hand-written front before a DRF view. The front only answers what is plainly right: a signed POST of a
JSON object whose members are exactly the expected ones, plain text, plain integers. Everything else (a wrong or odd
body, another method, another media type) goes to the view as if the front were not there: the view stays the one
place that says what a request means, and OpenAPI, validation errors and status codes are its own. Authentication,
business key and command are the same functions on both ways (tested against each other).
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from time import monotonic
from typing import Any
from uuid import UUID

from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from rest_framework.views import APIView

from coupons.api.serializers import HIGHEST_VERSION
from coupons.commands.lock_coupon import LONGEST_LEASE_SECONDS
from coupons.leases import TOKEN_LENGTH
from kernel import clock, idempotency, results, valkey
from kernel.errors import Refusal, ServiceAway
from kernel.http import json_body
from kernel.http.problems import MEDIA_TYPE, problem
from kernel.http.views import KEY
from merchants.api.authentication import BODY_LIMIT, ClientAuth, authenticate
from merchants.models import Merchant

Check = Callable[[Any], bool]
JSON_TYPES = ("application/json", "application/json; charset=utf-8")
ACCEPTED = ("", "*/*", "application/json")
SETTING_SECONDS = 5.0
"""How long a merchant's lease setting is remembered by a process."""
_SETTINGS: dict[UUID, tuple[float, int]] = {}


def is_text(value: Any, longest: int = 64) -> bool:
    """Text that every text field takes as it is: not blank, nothing to trim, printable."""
    return isinstance(value, str) and 0 < len(value) <= longest and value.isprintable() and value == value.strip()


def is_version(value: Any) -> bool:
    return type(value) is int and 1 <= value <= HIGHEST_VERSION


def is_instant(value: Any) -> bool:
    return is_text(value) and _instant(value) is not None


def _instant(value: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo is not None and value[10:11] == "T" else None


LEASE: dict[str, Check] = {
    "order_no": is_text,
    "lock_token": lambda value: is_text(value, TOKEN_LENGTH),
    "expected_version": is_version,
}
NEEDED: dict[str, dict[str, Check]] = {
    "lock": {"user_id": is_text, "order_no": is_text},
    "renew": {**LEASE, "expires_at": is_instant},
    "redeem": {**LEASE, "payment_no": is_text},
    "release": LEASE,
}
OPTIONAL: dict[str, dict[str, Check]] = {
    "lock": {
        "lease_seconds": lambda value: type(value) is int and 1 <= value <= LONGEST_LEASE_SECONDS,
        "expected_version": is_version,
    },
    "release": {"reason": lambda value: is_text(value, 200)},
}


def lease_seconds_of(merchant_id: UUID) -> int:
    """The merchant's lease setting, remembered for a few seconds."""
    known = _SETTINGS.get(merchant_id)
    if known is None or known[0] < monotonic():
        found = Merchant.objects.values_list("lease_seconds", flat=True).get(pk=merchant_id)
        known = _SETTINGS[merchant_id] = (monotonic() + SETTING_SECONDS, found)
    return known[1]


def hot(name: str, view: type[APIView], command: Callable[..., Any]) -> Callable[..., Any]:
    """The view of a hot command with its front."""
    slow = view.as_view()
    needed, optional = NEEDED[name], OPTIONAL.get(name, {})

    def front(request: HttpRequest, coupon_id: UUID) -> Any:
        asked = read(request, needed, optional)
        if asked is None:
            return slow(request, coupon_id=coupon_id)
        try:
            auth = authenticate(request, scope="coupons")
            return run(command, auth, request, coupon_id, asked)
        except Refusal as refusal:
            return refuse(request, refusal)
        except (OperationalError, *valkey.Away):
            return refuse(request, ServiceAway(retry_after_seconds=1))

    front.csrf_exempt = True  # type: ignore[attr-defined]
    # What OpenAPI looks for behind an address.
    front.cls = view  # type: ignore[attr-defined]
    front.initkwargs = {}  # type: ignore[attr-defined]
    return front


def read(request: HttpRequest, needed: Mapping[str, Check], optional: Mapping[str, Check]) -> dict[str, Any] | None:
    """The body, when nothing about the request is unusual."""
    meta = request.META
    length = meta.get("CONTENT_LENGTH") or ""
    if (
        request.method != "POST"
        or meta.get("CONTENT_TYPE", "").lower() not in JSON_TYPES
        or meta.get("HTTP_ACCEPT", "") not in ACCEPTED
        or not length.isdecimal()
        or int(length) > BODY_LIMIT
        or not KEY.fullmatch(meta.get("HTTP_IDEMPOTENCY_KEY", ""))
    ):
        return None
    try:
        asked = json_body.loads(request.body)
    except ValueError:
        return None
    if type(asked) is not dict or not needed.keys() <= asked.keys():
        return None
    for member, value in asked.items():
        check = needed.get(member) or optional.get(member)
        if check is None or not check(value):
            return None
    return asked


def run(
    command: Callable[..., Any], auth: ClientAuth, request: HttpRequest, coupon_id: UUID, asked: dict[str, Any]
) -> HttpResponse:
    """One command under the request's business key, and its answer."""
    hashed = {name: value for name, value in asked.items() if name != "expected_version"}
    key = idempotency.BusinessKey(
        auth.merchant_id,
        request.META["HTTP_IDEMPOTENCY_KEY"],
        idempotency.request_hash([request.method, request.path, hashed]),
    )
    values = dict(asked)
    if "expires_at" in values:
        values["expires_at"] = _instant(values["expires_at"])
    if "user_id" in values and "lease_seconds" not in values:
        values["lease_seconds"] = lease_seconds_of(auth.merchant_id)
    result = command(
        merchant_id=auth.merchant_id,
        coupon_id=coupon_id,
        **values,
        actor=f"client:{auth.key_id}",
        key=key,
        now=clock.now(),
    )
    response = HttpResponse(results.to_json(result), status=201, content_type="application/json")
    if result.replayed:
        response["Idempotency-Replayed"] = "true"
    return response


def refuse(request: HttpRequest, refusal: Refusal) -> HttpResponse:
    """The problem document that DRF's handler makes of the same refusal."""
    body = problem(
        status=refusal.status,
        code=refusal.code,
        detail=str(refusal.message),
        data=refusal.data,
        request_id=getattr(request, "request_id", ""),
    )
    response = HttpResponse(results.canonical_json(body), status=refusal.status, content_type=MEDIA_TYPE)
    if "retry_after_seconds" in refusal.data:
        response["Retry-After"] = str(refusal.data["retry_after_seconds"])
    challenge = getattr(refusal, "auth_header", None)
    if challenge:
        response["WWW-Authenticate"] = challenge
    return response
