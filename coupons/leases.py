"""Lease tokens: the lease's id followed by HMAC-SHA-256(server key, lease id), in URL-safe base64.

Unguessable without the key, never stored (a lease keeps the SHA-256 and the key's version), and recomputable for a
replay and for the order coordinator. The id in front only says which lease is meant; the digest proves it.
"""

import base64
import hashlib
import hmac
from uuid import UUID

from django.conf import settings

from coupons.models import CouponLock
from kernel import numbers

TOKEN_LENGTH = 64


def current_key_version() -> int:
    """The version of the server key that signs new leases: the highest one configured."""
    return max(settings.QUITS_LEASE_KEYS)


def make_token(lock_id: UUID, key_version: int) -> str:
    """The token of a lease. Raises LookupError when that version of the server key is no longer configured."""
    key = settings.QUITS_LEASE_KEYS[key_version]
    digest = hmac.digest(key, b"quits.coupon-lease:" + lock_id.bytes, "sha256")
    return base64.urlsafe_b64encode(lock_id.bytes + digest).decode()


def token_for(lock_id: UUID) -> str:
    """The token of a stored lease, made again. Raises CouponLock.DoesNotExist."""
    return make_token(lock_id, CouponLock.objects.values_list("key_version", flat=True).get(pk=lock_id))


def hash_token(token: str) -> bytes:
    """What the database keeps of a token (32 bytes)."""
    return hashlib.sha256(token.encode()).digest()


def lock_id_of(token: str) -> UUID:
    """The lease that a token claims to be for; the nil id for something that is no token of ours."""
    if len(token) == TOKEN_LENGTH:
        try:
            return UUID(bytes=base64.b64decode(token, altchars=b"-_", validate=True)[:16])
        except ValueError:
            pass
    return UUID(int=0)


def new_lease() -> tuple[UUID, int, str]:
    """A fresh lease: its id, the version of the key it is signed with, and its token."""
    lock_id, key_version = numbers.uuid7(), current_key_version()
    return lock_id, key_version, make_token(lock_id, key_version)
