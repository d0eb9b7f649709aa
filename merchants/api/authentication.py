"""Who is calling the API: HMAC-signed requests of a merchant's backend (the scheme is in merchants.signing).

`authenticate(request)` serves hand-written views; ClientAuthentication and HasScope are the same for DRF.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from redis.exceptions import NoScriptError
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from kernel import clock, valkey
from kernel.errors import PermissionRefused, Refusal, ServiceAway
from merchants import credentials, signing
from merchants.credentials import Credential

BODY_LIMIT = 1024 * 1024
"""Largest body in bytes, unless the view names its own `max_body_bytes`."""
BURST_SECONDS = 5
"""A client may use this many seconds of its rate at once."""


class NotAuthenticated(Refusal):
    code = "NOT_AUTHENTICATED"
    status = 401
    message = _("The request has to be signed (QUITS-HMAC-SHA256).")
    auth_header: ClassVar[str] = signing.SCHEME


class SignatureInvalid(NotAuthenticated):
    code = "SIGNATURE_INVALID"
    message = _("The key is unknown or the signature does not fit the request.")


class TimestampOutOfRange(NotAuthenticated):
    code = "TIMESTAMP_OUT_OF_RANGE"
    message = _("The timestamp is more than 300 seconds away from the server's clock.")


class NonceReplayed(NotAuthenticated):
    code = "NONCE_REPLAYED"
    message = _("The nonce was used before.")


class CredentialDisabled(NotAuthenticated):
    code = "CREDENTIAL_DISABLED"
    message = _("The key is revoked or expired, or its client is disabled.")


class Throttled(Refusal):
    code = "THROTTLED"
    status = 429
    message = _("Too many requests. Wait as long as the answer says.")


class ScopeMissing(PermissionRefused):
    code = "SCOPE_MISSING"
    message = _("The client lacks the scope for this.")


class BodyTooLarge(Refusal):
    code = "BODY_TOO_LARGE"
    status = 413
    message = _("The body is too large.")


@dataclass(frozen=True)
class ClientAuth:
    """The caller, as views see it in `request.auth`."""

    client_id: UUID
    merchant_id: UUID
    key_id: str
    client_name: str
    scopes: frozenset[str]

    def may(self, scope: str) -> bool:
        """Whether the scope is granted. An empty scope asks for nothing."""
        return not scope or scope in self.scopes


@dataclass(frozen=True)
class Program:
    """`request.user` of an API request: a program, not a person."""

    auth: ClientAuth
    is_authenticated: ClassVar[bool] = True
    is_anonymous: ClassVar[bool] = False
    is_active: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"{self.auth.client_name} ({self.auth.key_id})"


def authenticate(request: HttpRequest, *, scope: str = "", max_body_bytes: int = BODY_LIMIT) -> ClientAuth:
    """Verify a signed request: one round trip to Valkey, none to the database while the key is known.
    Before a key is refused as disabled, the database is asked again.

    Raises NotAuthenticated (or a subclass, 401), Throttled (429, data retry_after_seconds), BodyTooLarge (413),
    ScopeMissing (403), ServiceAway (503: without Valkey no nonce can be checked, so nothing is accepted).
    """
    now = clock.now()
    signed = signing.parse(request.META.get("HTTP_AUTHORIZATION", ""))
    if signed is None:
        raise NotAuthenticated()
    if abs(now.timestamp() - signed.timestamp) > signing.SKEW_SECONDS:
        raise TimestampOutOfRange(server_time=int(now.timestamp()))
    text = signing.text_to_sign(
        method=request.method or "",
        target=request.get_full_path(),
        timestamp=signed.timestamp_text,
        nonce=signed.nonce,
        body=body_of(request, max_body_bytes),
    )
    try:
        credential = credentials.known(signed.key_id, now=now)
        try:
            _verify(credential, text, signed, now)
        except CredentialDisabled:  # it may have been switched on since it was read, elsewhere
            credential = credentials.read(signed.key_id, now=now)
            _verify(credential, text, signed, now)
        if _admit(credential, signed.nonce, now) != credential.generation:  # type: ignore[arg-type, union-attr]
            credential = credentials.read(signed.key_id, now=now)
            _verify(credential, text, signed, now)
    except valkey.Away as error:
        raise ServiceAway(retry_after_seconds=1) from error
    assert credential is not None
    auth = ClientAuth(
        credential.client_id,
        credential.merchant_id,
        credential.key_id,
        credential.client_name,
        credential.scopes,
    )
    if not auth.may(scope):
        raise ScopeMissing(scope=scope)
    return auth


def body_of(request: HttpRequest, limit: int) -> bytes:
    """The raw body, refused by its announced length before it is read."""
    announced = request.META.get("CONTENT_LENGTH") or "0"
    if not str(announced).isdecimal() or int(announced) > limit:
        raise BodyTooLarge(limit_bytes=limit)
    return request.body


def _verify(credential: Credential | None, text: bytes, signed: signing.Signed, now: datetime) -> None:
    """The signature first, so that only the holder of the secret learns that a key is disabled."""
    secret = credential.secret if credential else "no such key"
    if not signing.fits(secret, text, signed.signature) or credential is None:
        raise SignatureInvalid()
    if not credential.is_usable(now):
        raise CredentialDisabled()


# One script, one round trip: the rate (GCRA: `tat` is the instant at which the client's credit is full again), then
# the nonce, then the generation. A throttled request does not use up its nonce.
_ADMIT = """
local now, interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tat = tonumber(redis.call('GET', KEYS[1]) or '0')
if tat < now then tat = now end
local wait = tat + interval - burst - now
if wait > 0 then return {'throttled', math.ceil(wait)} end
if not redis.call('SET', KEYS[2], '1', 'NX', 'EX', ARGV[4]) then return {'replayed', 0} end
redis.call('SET', KEYS[1], string.format('%.3f', tat + interval), 'PX', math.ceil(tat + interval - now) + 1000)
return {'admitted', redis.call('GET', KEYS[3]) or ''}
"""
_ADMIT_SHA: list[str] = []


def _admit(credential: Credential, nonce: str, now: datetime) -> str:
    """Spend one request of the client's rate and remember the nonce. Returns the generation of credentials."""
    interval = 60_000 / credential.requests_per_minute
    arguments: list[Any] = [
        f"quits:rate:{credential.client_id.hex}",
        f"quits:nonce:{credential.key_id}:{nonce}",
        credentials.GENERATION_KEY,
        int(now.timestamp() * 1000),
        f"{interval:.6f}",
        f"{max(interval, BURST_SECONDS * 1000):.6f}",
        signing.NONCE_SECONDS,
    ]
    verdict, detail = _run_admit(arguments)
    if verdict == b"replayed":
        raise NonceReplayed()
    if verdict == b"throttled":
        raise Throttled(retry_after_seconds=max(1, -(-int(detail) // 1000)))
    return detail.decode()


def _run_admit(arguments: list[Any]) -> Any:
    client = valkey.client()
    if not _ADMIT_SHA:
        _ADMIT_SHA.append(str(client.script_load(_ADMIT)))
    try:
        return client.evalsha(_ADMIT_SHA[0], 3, *arguments)
    except NoScriptError:
        return client.eval(_ADMIT, 3, *arguments)


class ClientAuthentication(BaseAuthentication):
    """DRF: `request.auth` is a ClientAuth, `request.user` a Program."""

    def authenticate(self, request: Request) -> tuple[Program, ClientAuth]:
        view = (request.parser_context or {}).get("view")
        limit = getattr(view, "max_body_bytes", BODY_LIMIT)
        auth = authenticate(request._request, max_body_bytes=limit)
        return Program(auth), auth

    def authenticate_header(self, request: Request) -> str:
        return signing.SCHEME


class HasScope(BasePermission):
    """DRF: the client holds the view's `scope`; `read` opens every safe method."""

    def has_permission(self, request: Request, view: Any) -> bool:
        auth = request.auth
        if not isinstance(auth, ClientAuth):
            raise NotAuthenticated()
        scope = getattr(view, "scope", "")
        if auth.may(scope) or (request.method in ("GET", "HEAD", "OPTIONS") and auth.may("read")):
            return True
        raise ScopeMissing(scope=scope)


class ClientAuthenticationScheme(OpenApiAuthenticationExtension):
    """How OpenAPI names the scheme."""

    target_class = "merchants.api.authentication.ClientAuthentication"
    name = "signedRequest"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "description": (
                'QUITS-HMAC-SHA256 key_id="…",timestamp="unix seconds",nonce="16–64 characters, once",'
                'signature="base64 of HMAC-SHA-256 under the secret over METHOD, PATH?QUERY, TIMESTAMP, NONCE and the '
                'hexadecimal SHA-256 of the body, each followed by a newline". 300 seconds of skew are allowed.'
            ),
        }
