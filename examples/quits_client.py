"""A mini-program backend's client of Quits: the standard library only, meant to be read.

Every request is signed with the key that the merchant was given. What is signed is five lines, each
ended by a newline:

    METHOD
    PATH?QUERY            exactly as it goes over the wire
    TIMESTAMP             Unix seconds; Quits allows 300 seconds of skew
    NONCE                 never used before by this key
    SHA-256 of the body   in hexadecimal; of nothing when there is no body

The HMAC-SHA-256 of that text, in base64, travels in the Authorization header.

A POST that changes something also carries an Idempotency-Key. Choose it from your own business (for
example "pay:<order number>") and send the same key again when an answer is lost: Quits then repeats its
first answer instead of doing the work twice.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import secrets
import time
import urllib.parse
import uuid
from typing import Any

SCHEME = "QUITS-HMAC-SHA256"


class QuitsError(Exception):
    """An answer of Quits that is not a success: an RFC 9457 problem.

    `code` is stable and made for programs ("VERSION_CONFLICT"), `detail` is made for people.
    """

    def __init__(self, status: int, problem: dict[str, Any]):
        self.status = status
        self.problem = problem
        self.code = problem.get("code", "")
        self.data = problem.get("data", {})
        detail = problem.get("detail") or problem.get("title")
        super().__init__(f"{status} {self.code}: {detail} {self.data or ''}".rstrip())


def sign(*, secret: str, method: str, target: str, timestamp: str, nonce: str, body: bytes) -> str:
    """The signature of one request, in base64. `target` is the path with its query."""
    lines = [method, target, timestamp, nonce, hashlib.sha256(body).hexdigest()]
    text = "".join(line + "\n" for line in lines)
    return base64.b64encode(hmac.new(secret.encode(), text.encode(), hashlib.sha256).digest()).decode()


class QuitsClient:
    """One merchant's access to Quits.

    >>> quits = QuitsClient("http://127.0.0.1:8000", key_id="…", secret="…")
    >>> quits.get("/orders", user_id="u-1", status=10)
    >>> quits.post("/quotes", {"user_id": "u-1", …}, idempotency_key="quote:basket-7")
    """

    def __init__(self, base_url: str, *, key_id: str, secret: str, timeout: float = 15.0):
        self._address = urllib.parse.urlsplit(base_url)
        self._key_id = key_id
        self._secret = secret
        self._timeout = timeout

    def get(self, path: str, **query: Any) -> Any:
        if query:
            path += "?" + urllib.parse.urlencode(query)
        return self.request("GET", path)[1]

    def post(self, path: str, body: dict[str, Any] | None = None, *, idempotency_key: str = "") -> Any:
        """Do something. Without a key of your own, one is made that no retry can repeat."""
        key = idempotency_key or uuid.uuid4().hex
        return self.request("POST", path, body or {}, headers={"Idempotency-Key": key})[1]

    def request(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Send one signed request under /api/v1 and return (status, answer). Raises QuitsError."""
        target = "/api/v1" + path
        payload = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
        sent = {"Accept": "application/json", **(headers or {})}
        if body is not None:
            sent["Content-Type"] = "application/json"
        sent["Authorization"] = self.authorization(method, target, payload)
        status, answer = self._exchange(method, target, payload, sent)
        if status >= 400:
            raise QuitsError(status, answer if isinstance(answer, dict) else {"detail": str(answer)})
        return status, answer

    def authorization(self, method: str, target: str, payload: bytes) -> str:
        timestamp, nonce = str(int(time.time())), secrets.token_hex(16)
        signature = sign(
            secret=self._secret, method=method, target=target, timestamp=timestamp, nonce=nonce, body=payload
        )
        return f'{SCHEME} key_id="{self._key_id}",timestamp="{timestamp}",nonce="{nonce}",signature="{signature}"'

    def _exchange(self, method: str, target: str, payload: bytes, headers: dict[str, str]) -> tuple[int, Any]:
        make = http.client.HTTPSConnection if self._address.scheme == "https" else http.client.HTTPConnection
        connection = make(self._address.hostname or "", self._address.port, timeout=self._timeout)
        try:
            connection.request(method, target, body=payload or None, headers=headers)
            response = connection.getresponse()
            raw = response.read()
        finally:
            connection.close()
        try:
            return response.status, json.loads(raw) if raw else None
        except ValueError:
            return response.status, raw.decode(errors="replace")
