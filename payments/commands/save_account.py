"""Store a merchant's account at a channel. Secrets are encrypted here and never read back by a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel import errors, numbers, secrets
from kernel.transactions import unit_of_work
from payments.models import ChannelAccount


@dataclass(frozen=True)
class AccountSaved:
    account_id: UUID
    created: bool


def save_account(
    *,
    merchant_id: UUID,
    channel: str,
    mchid: str,
    app_id: str,
    name: str = "",
    settings: Mapping[str, Any] | None = None,
    secret_values: Mapping[str, str] | None = None,
    is_active: bool = True,
    now: datetime,
) -> AccountSaved:
    """Create or change the account (merchant, channel, mchid). `settings` and `secret_values` given as None stay as
    they are; secrets given are merged over the stored ones, an empty string removes one. Raises InvalidInput."""
    if channel not in ChannelAccount.Channel.values:
        raise errors.InvalidInput(channel=channel)
    if channel != ChannelAccount.Channel.BALANCE and not (mchid and app_id):
        raise errors.InvalidInput(fields={"mchid" if not mchid else "app_id": [_("The channel needs it.")]})
    with unit_of_work(now=now):
        account = (
            ChannelAccount.objects.select_for_update()
            .filter(merchant_id=merchant_id, channel=channel, mchid=mchid)
            .first()
        )
        created = account is None
        if account is None:
            account = ChannelAccount(
                id=numbers.uuid7(), merchant_id=merchant_id, channel=channel, mchid=mchid, created_at=now, version=0
            )
        account.app_id = app_id
        account.name = name or account.name
        account.is_active = is_active
        if settings is not None:
            account.settings = dict(settings)
        if secret_values is not None:
            known = json.loads(secrets.decrypt(account.secrets_encrypted)) if account.secrets_encrypted else {}
            merged = {key: value for key, value in {**known, **secret_values}.items() if value}
            account.secrets_encrypted = secrets.encrypt(json.dumps(merged))
        account.version += 1
        account.changed_at = now
        account.save(force_insert=created)
        return AccountSaved(account.id, created)
