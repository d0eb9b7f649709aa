"""Codes of an authenticator app (RFC 6238: HMAC-SHA-1, six digits, thirty seconds), as pure functions."""

import base64
import hashlib
import hmac
import secrets
import struct
import unicodedata
from datetime import datetime
from urllib.parse import quote

STEP_SECONDS = 30
DIGITS = 6
DRIFT_STEPS = 1
"""A code may be one step early or late."""


def new_secret() -> str:
    """160 random bits in base32, as authenticator apps take them."""
    return base64.b32encode(secrets.token_bytes(20)).decode()


def code_at(secret: str, step: int, *, digits: int = DIGITS) -> str:
    """The code of one time step (HOTP of RFC 4226 over the step's number)."""
    digest = hmac.digest(base64.b32decode(secret), struct.pack(">Q", step), "sha1")
    offset = digest[-1] & 0x0F
    number = struct.unpack(">I", digest[offset : offset + 4])[0] & 0x7FFFFFFF
    return str(number % 10**digits).zfill(digits)


def step_of(now: datetime) -> int:
    """The number of the time step of an instant."""
    return int(now.timestamp()) // STEP_SECONDS


def typed(code: str) -> str:
    """A code as it was meant: full-width digits (a Chinese keyboard types them) made plain, letters small, and no
    spaces or hyphens."""
    return "".join(sign for sign in unicodedata.normalize("NFKC", code).lower() if sign.isalnum())


def matching_step(secret: str, code: str, *, now: datetime, after: int) -> int | None:
    """The step whose code this is, near now and later than the last one used (`after`); None when there is none."""
    present, given = step_of(now), typed(code).encode()
    for step in range(present - DRIFT_STEPS, present + DRIFT_STEPS + 1):
        if step > after and hmac.compare_digest(code_at(secret, step).encode(), given):
            return step
    return None


def uri(secret: str, *, username: str, issuer: str) -> str:
    """The address that an authenticator app opens (otpauth://)."""
    label = quote(f"{issuer}:{username}")
    return f"otpauth://totp/{label}?secret={secret}&issuer={quote(issuer)}&digits={DIGITS}&period={STEP_SECONDS}"


def new_recovery_codes(count: int = 8) -> list[str]:
    """Codes for the day on which the phone is gone: 40 random bits each, grouped for reading."""
    alphabet = "23456789abcdefghjkmnpqrstuvwxyz"
    texts = ["".join(secrets.choice(alphabet) for _ in range(10)) for _ in range(count)]
    return [f"{text[:5]}-{text[5:]}" for text in texts]


def recovery_hash(code: str) -> str:
    """How a recovery code is stored: as it was shown, however it was typed."""
    text = typed(code)
    return hashlib.sha256(f"{text[:5]}-{text[5:]}".encode()).hexdigest()
