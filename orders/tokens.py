"""Order tokens: what a client shows to see one order's status. HMAC-SHA-256 under a server key: unguessable, never
stored (the order keeps the SHA-256 and the key's version), and recomputable for a replay of the order's creation."""

import base64
import hmac
from uuid import UUID

from django.conf import settings


def current_key_version() -> int:
    """The version of the server key that signs new tokens: the highest one configured."""
    return max(settings.QUITS_LEASE_KEYS)


def make_token(*, order_id: UUID, token_version: int, key_version: int) -> str:
    """The token (43 URL-safe characters, 256 bits) of an order. A new `token_version` revokes the one before.

    Raises LookupError when that version of the server key is no longer configured.
    """
    key = settings.QUITS_LEASE_KEYS[key_version]
    message = b"quits.order-token:" + order_id.bytes + token_version.to_bytes(4, "big")
    return base64.urlsafe_b64encode(hmac.digest(key, message, "sha256")).decode().rstrip("=")
