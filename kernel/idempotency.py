"""One key, one effect. A key binds with the effect, in its transaction; refusals bind nothing.

The same key and request hash gives back the first result; the same key with another hash is refused; a duplicate
that arrives while the first is at work waits up to two seconds for it.
"""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.db import OperationalError, connection

from kernel import numbers, results
from kernel.errors import IdempotencyKeyReused, StillInProgress
from kernel.models import IdempotencyKey

T = TypeVar("T")

WAIT_MILLISECONDS = 2000


@dataclass(frozen=True)
class BusinessKey:
    """Who (merchant), which intention (key, ≤ 200 characters), and a digest of what was asked for."""

    merchant_id: UUID
    key: str
    request_hash: str

    def params(self) -> dict[str, Any]:
        """The parameters that `kernel.statemachine.key_row` needs in an edge's statement."""
        return {"key_merchant_id": self.merchant_id, "key": self.key, "request_hash": self.request_hash}


def business_key(*, merchant_id: UUID, key: str, **parts: Any) -> BusinessKey:
    """A key for callers inside the house; `parts` are what the request consists of."""
    return BusinessKey(merchant_id, key, request_hash(parts))


_SORTED = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=str).encode
"""An encoder of its own: `json.dumps` with options makes one at every call."""


def request_hash(value: Any) -> str:
    """SHA-256 (hex) of a value's JSON with sorted keys."""
    return hashlib.sha256(_SORTED(value).encode()).hexdigest()


def begin(key: BusinessKey, kind: type[T], *, now: datetime) -> T | None:
    """Claim a key inside a unit of work. None: it is ours, carry on and `finish`. Otherwise the first result.

    Raises IdempotencyKeyReused (other request) or StillInProgress (the first one did not end within two seconds).
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{WAIT_MILLISECONDS}ms"])
            cursor.execute(
                "INSERT INTO idempotency_key (id, merchant_id, key, request_hash, created_at)"
                " VALUES (%s, %s, %s, %s, %s) ON CONFLICT (merchant_id, key) DO NOTHING RETURNING 1",
                [numbers.uuid7(), key.merchant_id, key.key, key.request_hash, now],
            )
            ours = cursor.fetchone() is not None
            cursor.execute("SELECT set_config('lock_timeout', '0', true)")
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) == "55P03":
            raise StillInProgress() from error
        raise
    return None if ours else find(key, kind)


def finish(key: BusinessKey, result: Any) -> None:
    """Store the result under a key that `begin` claimed in this transaction."""
    IdempotencyKey.objects.filter(merchant_id=key.merchant_id, key=key.key).update(result=results.to_data(result))


def find(key: BusinessKey, kind: type[T]) -> T | None:
    """The first result of a key that took effect, marked `replayed`; None when it never did.

    Raises IdempotencyKeyReused when the key belongs to another request.
    """
    row = IdempotencyKey.objects.filter(merchant_id=key.merchant_id, key=key.key).first()
    if row is None or row.result is None:
        return None
    if row.request_hash != key.request_hash:
        raise IdempotencyKeyReused(key=key.key)
    return results.from_data(kind, row.result, replayed=True)


def as_replay(result: T) -> T:
    """The same result, marked as a repetition."""
    return dataclasses.replace(result, replayed=True)  # type: ignore[type-var]
