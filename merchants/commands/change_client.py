"""What a client may do, how fast, and whether at all."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction

from kernel.errors import InvalidInput, NotFound
from kernel.transactions import unit_of_work
from merchants import credentials
from merchants.commands.create_client import check_scopes
from merchants.models import ApiClient


@dataclass(frozen=True)
class ClientChanged:
    client_id: UUID
    is_active: bool


def change_client(
    *,
    client_id: UUID,
    now: datetime,
    scopes: list[str] | None = None,
    requests_per_minute: int | None = None,
    is_active: bool | None = None,
) -> ClientChanged:
    """Change what is given, leave the rest. In force at once, everywhere. Raises NotFound, InvalidInput."""
    changes: dict[str, object] = {}
    if scopes is not None:
        check_scopes(scopes)
        changes["scopes"] = sorted(set(scopes))
    if requests_per_minute is not None:
        if requests_per_minute < 1:
            raise InvalidInput(fields={"requests_per_minute": ["at least 1"]})
        changes["requests_per_minute"] = requests_per_minute
    if is_active is not None:
        changes["is_active"] = is_active
    if not changes:
        raise InvalidInput(fields={"": ["nothing to change"]})
    with unit_of_work(now=now):
        if not ApiClient.objects.filter(pk=client_id).update(**changes):
            raise NotFound()
        transaction.on_commit(credentials.begin_generation)
    return ClientChanged(client_id, ApiClient.objects.get(pk=client_id).is_active)
