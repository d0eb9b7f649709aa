"""A merchant as a whole, on or off."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import F

from kernel.errors import NotFound
from kernel.transactions import unit_of_work
from merchants import credentials
from merchants.models import Merchant


@dataclass(frozen=True)
class MerchantSwitched:
    merchant_id: UUID
    is_active: bool


def switch_merchant(*, merchant_id: UUID, is_active: bool, now: datetime) -> MerchantSwitched:
    """Off: staff cannot work and API clients are refused, at once; business rows stay, and what is on its way
    (refunds, callbacks) still ends. Raises NotFound."""
    with unit_of_work(now=now):
        if not Merchant.objects.filter(pk=merchant_id).update(is_active=is_active, version=F("version") + 1):
            raise NotFound()
        transaction.on_commit(credentials.begin_generation)
    return MerchantSwitched(merchant_id, is_active)
