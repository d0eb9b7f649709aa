"""A merchant's backend that signs its requests, over Django's test client."""

import json
from itertools import count
from typing import Any

from django.test import Client

from kernel import clock
from merchants import signing
from tests.merchants.factories import a_client

_nonces = count(1)


class Backend:
    """One API client of a merchant. `post` makes an idempotency key of its own unless one is given."""

    def __init__(self, merchant, scopes: list[str] | None = None) -> None:
        name = f"backend-{next(_nonces)}"
        self.issued = a_client(merchant=merchant, now=clock.now(), name=name, scopes=scopes)
        self.http = Client()

    def get(self, path: str, **query: Any):
        target = "/api/v1" + path
        if query:
            target += "?" + "&".join(f"{name}={value}" for name, value in query.items())
        return self.http.get(target, headers={"Authorization": self._sign("GET", target, b"")})

    def post(self, path: str, body: Any, *, key: str = ""):
        target, raw = "/api/v1" + path, json.dumps(body).encode()
        return self.http.post(
            target,
            raw,
            content_type="application/json",
            headers={
                "Authorization": self._sign("POST", target, raw),
                "Idempotency-Key": key or f"http-{next(_nonces)}",
            },
        )

    def upload(self, path: str, fields: dict[str, str], content: bytes, *, key: str = ""):
        """A multipart post of one file."""
        target, edge = "/api/v1" + path, "edge-of-a-part"
        parts = [f'--{edge}\r\nContent-Disposition: form-data; name="{n}"\r\n\r\n{v}\r\n' for n, v in fields.items()]
        head = f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
        raw = "".join(parts).encode() + head.encode() + content + f"\r\n--{edge}--\r\n".encode()
        return self.http.post(
            target,
            raw,
            content_type=f"multipart/form-data; boundary={edge}",
            headers={
                "Authorization": self._sign("POST", target, raw),
                "Idempotency-Key": key or f"http-{next(_nonces)}",
            },
        )

    def _sign(self, method: str, target: str, body: bytes) -> str:
        return signing.header(
            key_id=self.issued.key_id,
            secret=self.issued.secret,
            method=method,
            target=target,
            timestamp=int(clock.now().timestamp()),
            nonce=f"after-sales-{next(_nonces):020d}",
            body=body,
        )
