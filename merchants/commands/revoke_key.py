"""End a key at once, everywhere."""

from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from kernel.errors import NotFound
from kernel.transactions import unit_of_work
from merchants import credentials
from merchants.models import ApiKey


@dataclass(frozen=True)
class KeyRevoked:
    key_id: str
    revoked_at: datetime
    replayed: bool = False


def revoke_key(*, key_id: str, now: datetime) -> KeyRevoked:
    """Revoke a key; a second call says the same. Raises NotFound."""
    with unit_of_work(now=now):
        changed = ApiKey.objects.filter(key_id=key_id, revoked_at__isnull=True).update(revoked_at=now)
        transaction.on_commit(credentials.begin_generation)
    key = ApiKey.objects.filter(key_id=key_id).first()
    if key is None or key.revoked_at is None:
        raise NotFound()
    return KeyRevoked(key_id, key.revoked_at, replayed=not changed)
