"""How the fuzz talks: real `requests` objects, signed as a client signs them, answered by Django's WSGI application in
this process. Every exchange is counted and held against the OpenAPI document."""

from __future__ import annotations

import io
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

import requests
from django.core.wsgi import get_wsgi_application
from requests.adapters import BaseAdapter
from schemathesis import Case, Response
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from urllib3 import HTTPResponse

from kernel import clock
from merchants import signing

BASE = "http://testserver"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
NOWHERE = "There is no such address."
_nonces = count(1)


class InProcess(BaseAdapter):
    """`requests` over the WSGI application instead of a socket."""

    def __init__(self) -> None:
        super().__init__()
        self.application = get_wsgi_application()

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        parts = urlsplit(request.url or "")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": request.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote_to_bytes(parts.path).decode("latin-1"),
            "QUERY_STRING": parts.query,
            "SERVER_NAME": "testserver",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "192.0.2.7",
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": False,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        for name, value in request.headers.items():
            text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
            variable = str(name).upper().replace("-", "_")
            if variable == "CONTENT_TYPE":
                environ[variable] = text
            elif variable != "CONTENT_LENGTH":
                environ[f"HTTP_{variable}"] = text
        return self._answer(request, environ)

    def _answer(self, request: requests.PreparedRequest, environ: dict[str, Any]) -> requests.Response:
        began: list[Any] = []
        chunks = self.application(environ, lambda status, headers, exc_info=None: began.append((status, headers)))
        try:
            content = b"".join(chunks)
        finally:
            if hasattr(chunks, "close"):
                chunks.close()
        status, headers = began[-1]
        answer = requests.Response()
        answer.status_code, answer.reason = int(status.split(" ", 1)[0]), status.split(" ", 1)[-1]
        answer.headers.update(dict(headers))
        answer._content = content
        answer.raw = HTTPResponse(io.BytesIO(content), headers=headers, version=11, preload_content=False)
        answer.request, answer.url, answer.encoding = request, request.url or "", "utf-8"
        return answer

    def close(self) -> None: ...


def bytes_of(request: requests.PreparedRequest) -> bytes:
    return request.body.encode() if isinstance(request.body, str) else request.body or b""


class Signed(requests.auth.AuthBase):
    """Signs a request when everything else about it is settled. `changes` spoil one part of what is signed."""

    def __init__(self, key_id: str, secret: str, **changes: Any) -> None:
        self.key_id, self.secret, self.changes = key_id, secret, changes

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        parts = {
            "key_id": self.key_id,
            "secret": self.secret,
            "method": request.method,
            "target": request.path_url,
            "timestamp": int(clock.now().timestamp()),
            "nonce": f"fuzz-{next(_nonces):020d}",
            "body": bytes_of(request),
        }
        request.headers["Authorization"] = signing.header(**{**parts, **self.changes})
        return request


class Unsigned(requests.auth.AuthBase):
    """Leaves out the signature, or puts anything in its place."""

    def __init__(self, header: str = "") -> None:
        self.header = header

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers.pop("Authorization", None)
        if self.header:
            request.headers["Authorization"] = self.header
        return request


@dataclass
class Row:
    """What was seen of one endpoint."""

    requests: int = 0
    inside: int = 0
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def good(self) -> int:
        return sum(many for status, many in self.statuses.items() if 200 <= status < 300)


@dataclass
class Tally:
    """Counts, and each kind of failure once with its first request."""

    rows: dict[str, Row] = field(default_factory=lambda: defaultdict(Row))
    failures: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        return sum(row.requests for row in self.rows.values())

    @property
    def inside(self) -> int:
        return sum(row.inside for row in self.rows.values())

    @property
    def server_errors(self) -> int:
        return sum(many for row in self.rows.values() for status, many in row.statuses.items() if status >= 500)

    def see(self, case: Case, response: Response) -> None:
        label = case.operation.label
        row = self.rows[label]
        row.requests += 1
        row.statuses[response.status_code] += 1
        row.inside += is_inside(response)
        try:
            case.validate_response(response, checks=CHECKS)
        except FailureGroup as group:
            for failure in group.exceptions:
                self._fail(label, failure, response)
        except Failure as failure:
            self._fail(label, failure, response)
        if response.status_code == 503 or (response.status_code >= 400 and not is_problem(response)):
            self._fail(label, f"no problem document, or a service away ({response.status_code})", response)

    def _fail(self, label: str, failure: Any, response: Response) -> None:
        request = response.request
        where = f"{request.method} {request.path_url[:300]}\n  {bytes_of(request)[:600]!r}"
        said = f"{where}\n  → {response.status_code} {response.content[:600]!r}\n  {failure}"
        self.failures.setdefault((label, " ".join(str(failure).split("\n")[:3])[:160]), said)

    def table(self) -> str:
        lines = [f"{'endpoint':<62} {'requests':>8} {'inside':>7} {'2xx':>6}  statuses"]
        for label in sorted(self.rows):
            row = self.rows[label]
            seen = " ".join(f"{status}×{many}" for status, many in sorted(row.statuses.items()))
            lines.append(f"{label:<62} {row.requests:>8} {row.inside:>7} {row.good:>6}  {seen}")
        lines.append(
            f"{self.requests:,} requests, {self.inside:,} ({self.inside / max(self.requests, 1):.0%}) past "
            f"authentication, {self.server_errors} server errors, {len(self.failures)} kinds of failure"
        )
        return "\n".join(lines)


def is_inside(response: Response) -> bool:
    """Whether authentication let the request through. What needs no key is inside when its own credential was good."""
    request = response.request
    if "Authorization" not in request.headers:
        return response.status_code < 300
    if response.status_code in (401, 413, 429):
        return False
    outside = (NOWHERE.encode(), b"SCOPE_MISSING")
    return not (response.status_code in (403, 404) and any(words in response.content for words in outside))


def is_problem(response: Response) -> bool:
    """RFC 9457 with our members. The channels' callbacks are answered in the channel's own words."""
    if "/notify/" in response.request.path_url:
        return True
    if not response.headers.get("content-type", [""])[0].startswith("application/problem+json"):
        return False
    body = json.loads(response.content)
    members = {"type", "title", "detail", "code", "data", "request_id"}
    return body["status"] == response.status_code and members <= set(body)
