"""Known credentials: read from the database once, then from memory for seconds, and forgotten the moment
something about them changes.

One word in Valkey names the generation of all credentials. Every request reads it anyway (in the same round trip
that remembers its nonce), and a process whose memory is of another generation reads the database again. So a
revoked key is refused at once everywhere; if the word were lost, the memory still ends after SECONDS_KNOWN.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import structlog

from kernel import numbers, secrets, valkey
from merchants.models import ApiKey

log = structlog.get_logger(__name__)

SECONDS_KNOWN = 15
MOST_KNOWN = 10_000
GENERATION_KEY = "quits:credentials:generation"


@dataclass(frozen=True)
class Credential:
    """Everything a request needs to know of its key, client and merchant."""

    key_id: str
    client_id: UUID
    client_name: str
    merchant_id: UUID
    scopes: frozenset[str]
    requests_per_minute: int
    secret: str
    is_active: bool
    expires_at: datetime | None
    revoked_at: datetime | None
    generation: str
    known_until: float

    def is_usable(self, now: datetime) -> bool:
        """Neither revoked, expired, nor of a disabled client or merchant."""
        return self.is_active and self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


_KNOWN: dict[str, Credential] = {}


def known(key_id: str, *, now: datetime) -> Credential | None:
    """The credential behind a key id, from memory or from the database; None when there is no such key."""
    credential = _KNOWN.get(key_id)
    if credential is not None and now.timestamp() < credential.known_until:
        return credential
    return read(key_id, now=now)


def read(key_id: str, *, now: datetime) -> Credential | None:
    """Read a credential from the database and remember it under the present generation. The generation is read
    first: a change that comes between makes the memory stale, never the other way round."""
    generation = current_generation()
    key = ApiKey.objects.select_related("client__merchant").filter(key_id=key_id).first()
    if key is None:
        _KNOWN.pop(key_id, None)
        return None
    client = key.client
    credential = Credential(
        key_id=key.key_id,
        client_id=client.pk,
        client_name=client.name,
        merchant_id=client.merchant_id,
        scopes=frozenset(client.scopes),
        requests_per_minute=client.requests_per_minute,
        secret=secrets.decrypt(key.secret_encrypted),
        is_active=client.is_active and client.merchant.is_active,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        generation=generation,
        known_until=now.timestamp() + SECONDS_KNOWN,
    )
    if len(_KNOWN) >= MOST_KNOWN:
        _KNOWN.clear()
    _KNOWN[key_id] = credential
    return credential


def current_generation() -> str:
    """The word that names the present state of all credentials."""
    value = valkey.client().get(GENERATION_KEY)
    return value.decode() if value else ""  # type: ignore[union-attr]


def begin_generation() -> None:
    """Something about credentials changed and is committed: every process reads the database again."""
    _KNOWN.clear()
    try:
        valkey.client().set(GENERATION_KEY, numbers.uuid7().hex)
    except valkey.Away:
        log.warning("credentials.generation_not_told", ends_after_seconds=SECONDS_KNOWN)
