"""A fresh key for a client; the older ones end after an overlap."""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy as _

from kernel.errors import InvalidInput, NotFound, Refusal
from kernel.transactions import unit_of_work
from merchants import credentials
from merchants.commands.create_client import KeyIssued, issue_key
from merchants.models import ApiClient, ApiKey

MOST_KEYS = 5


class TooManyKeys(Refusal):
    code = "TOO_MANY_KEYS"
    message = _("The client has too many active keys. Revoke one first.")


def rotate_key(*, client_id: UUID, overlap_seconds: int, now: datetime) -> KeyIssued:
    """Issue a new key; every other active key of the client ends `overlap_seconds` from now (0: at once), unless
    it ends earlier anyway. Raises NotFound, InvalidInput (negative overlap, more than 90 days), TooManyKeys."""
    if not 0 <= overlap_seconds <= 90 * 86400:
        raise InvalidInput(fields={"overlap_seconds": ["0 seconds to 90 days"]})
    ends_at = now + timedelta(seconds=overlap_seconds)
    with unit_of_work(now=now):
        client = ApiClient.objects.select_for_update(no_key=True).filter(pk=client_id).first()
        if client is None:
            raise NotFound()
        older = active_keys(client_id, now)
        if older.count() >= MOST_KEYS:
            raise TooManyKeys(most=MOST_KEYS)
        older.filter(Q(expires_at__isnull=True) | Q(expires_at__gt=ends_at)).update(expires_at=ends_at)
        issued = issue_key(client, now=now)
        transaction.on_commit(credentials.begin_generation)
    return issued


def active_keys(client_id: UUID, now: datetime) -> QuerySet[ApiKey]:
    """The keys of a client that still open the door."""
    alive = Q(expires_at__isnull=True) | Q(expires_at__gt=now)
    return ApiKey.objects.filter(alive, client_id=client_id, revoked_at__isnull=True)
