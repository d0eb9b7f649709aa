"""A merchant's own settings."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from kernel.errors import InvalidInput, NotFound, VersionConflict
from kernel.transactions import unit_of_work
from merchants.commands.create_merchant import check_fields
from merchants.models import Merchant

CHANGEABLE = (
    "name",
    "timezone",
    "freight_policy",
    "lease_seconds",
    "payment_window_seconds",
    "return_window_days",
    "audit_hours",
    "auto_approve_unshipped",
    "send_back_days",
    "receive_days",
    "supplement_hours",
    "buyer_confirm_days",
    "ship_exchange_hours",
)
"""What an owner may change. They hold for what begins later; running windows keep the deadline they were given."""


@dataclass(frozen=True)
class SettingsChanged:
    merchant_id: UUID
    version: int


def change_settings(
    *, merchant_id: UUID, changes: dict[str, Any], expected_version: int | None, now: datetime
) -> SettingsChanged:
    """Change some settings, all or none. Raises NotFound, InvalidInput, VersionConflict."""
    if unknown := set(changes) - set(CHANGEABLE):
        raise InvalidInput(fields={name: ["cannot be changed"] for name in sorted(unknown)})
    with unit_of_work(now=now):
        merchant = Merchant.objects.select_for_update(no_key=True).filter(pk=merchant_id).first()
        if merchant is None:
            raise NotFound()
        if expected_version is not None and merchant.version != expected_version:
            raise VersionConflict(expected=expected_version, present=merchant.version)
        for name, value in changes.items():
            setattr(merchant, name, value)
        merchant.version += 1
        check_fields(merchant)
        merchant.save(update_fields=[*changes, "version"])
    return SettingsChanged(merchant.pk, merchant.version)
