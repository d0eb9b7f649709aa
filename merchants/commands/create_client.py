"""A new API client with its first key."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel import numbers, secrets
from kernel.errors import InvalidInput, NotFound, Refusal, refuse_on_constraint
from kernel.transactions import unit_of_work
from merchants.models import ApiClient, ApiKey, Merchant, Scope


class ClientNameTaken(Refusal):
    code = "CLIENT_NAME_TAKEN"
    message = _("This merchant already has a client of this name.")


refuse_on_constraint("api_client_name_once_per_merchant", ClientNameTaken)


@dataclass(frozen=True)
class KeyIssued:
    """A key; its secret is shown here once and never again."""

    client_id: UUID
    key_id: str
    secret: str = field(default="", metadata={"stored": False}, repr=False)


def create_client(
    *, merchant_id: UUID, name: str, scopes: list[str], now: datetime, requests_per_minute: int = 30_000
) -> KeyIssued:
    """Create a client of a merchant with the scopes it is granted. Raises NotFound, InvalidInput, ClientNameTaken."""
    check_scopes(scopes)
    if not name.strip() or requests_per_minute < 1:
        raise InvalidInput(fields={"name": ["needed"]} if not name.strip() else {"requests_per_minute": ["at least 1"]})
    with unit_of_work(now=now):
        if not Merchant.objects.filter(pk=merchant_id).exists():
            raise NotFound()
        client = ApiClient.objects.create(
            merchant_id=merchant_id,
            name=name.strip(),
            scopes=sorted(set(scopes)),
            requests_per_minute=requests_per_minute,
            created_at=now,
        )
        return issue_key(client, now=now)


def check_scopes(scopes: list[str]) -> None:
    """Known scopes, at least one, or InvalidInput."""
    if not scopes or set(scopes) - set(Scope.values):
        raise InvalidInput(fields={"scopes": [f"one or more of {', '.join(Scope.values)}"]})


def issue_key(client: ApiClient, *, now: datetime) -> KeyIssued:
    """Insert a fresh key of a client, in the caller's transaction."""
    secret = numbers.new_token()
    key = ApiKey.objects.create(
        client=client,
        key_id=f"qk_{numbers.new_token()[:20]}",
        secret_encrypted=secrets.encrypt(secret),
        created_at=now,
    )
    return KeyIssued(client.pk, key.key_id, secret)
