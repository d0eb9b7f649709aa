"""The signature scheme QUITS-HMAC-SHA256, as pure functions.

Authorization: QUITS-HMAC-SHA256 key_id="…",timestamp="…",nonce="…",signature="…"

The signature is the base64 of HMAC-SHA-256, under the key's secret (UTF-8), over five lines that each end in a
newline: the method, the path with its query, the Unix time in seconds, the nonce, and the hexadecimal SHA-256 of
the body. The path is percent-encoded as RFC 3986 has it; without a query there is no question mark.
"""

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass

SCHEME = "QUITS-HMAC-SHA256"
SKEW_SECONDS = 300
NONCE_SECONDS = 2 * SKEW_SECONDS
"""A nonce is remembered as long as its timestamp could be accepted."""

_HEADER = re.compile(
    SCHEME + r' key_id="(?P<key_id>[0-9A-Za-z_-]{1,32})"'
    r', ?timestamp="(?P<timestamp>[0-9]{1,12})"'
    r', ?nonce="(?P<nonce>[0-9A-Za-z_-]{16,64})"'
    r', ?signature="(?P<signature>[0-9A-Za-z+/]{43}=)"',
    re.ASCII,
)


@dataclass(frozen=True)
class Signed:
    """What an Authorization header claims."""

    key_id: str
    timestamp: int
    timestamp_text: str
    nonce: str
    signature: str


def parse(header: str) -> Signed | None:
    """Read an Authorization header; None when it is not exactly of this scheme."""
    found = _HEADER.fullmatch(header)
    if found is None:
        return None
    return Signed(found["key_id"], int(found["timestamp"]), found["timestamp"], found["nonce"], found["signature"])


def text_to_sign(*, method: str, target: str, timestamp: str, nonce: str, body: bytes) -> bytes:
    """The five lines that are signed. `target` is the path with its query."""
    digest = hashlib.sha256(body).hexdigest()
    return f"{method}\n{target}\n{timestamp}\n{nonce}\n{digest}\n".encode()


def sign(secret: str, text: bytes) -> str:
    """The signature of a text, base64 (44 characters)."""
    return base64.b64encode(hmac.digest(secret.encode(), text, "sha256")).decode()


def fits(secret: str, text: bytes, signature: str) -> bool:
    """Whether the signature is the secret's, compared in constant time."""
    return hmac.compare_digest(sign(secret, text), signature)


def header(*, key_id: str, secret: str, method: str, target: str, timestamp: int, nonce: str, body: bytes) -> str:
    """The Authorization header of a request, as a client makes it."""
    text = text_to_sign(method=method, target=target, timestamp=str(timestamp), nonce=nonce, body=body)
    return f'{SCHEME} key_id="{key_id}",timestamp="{timestamp}",nonce="{nonce}",signature="{sign(secret, text)}"'
