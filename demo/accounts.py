"""The shops' accounts at the simulated channels: keys from the simulator's own key file."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from payments.commands.save_account import save_account
from payments.models import ChannelAccount
from payments.simulator.keys import ensure_keys

# A simulator has no need to wait; a real channel keeps its own pace (payments/accounts.py).
PACE = {
    "refund_spacing_seconds": 0,
    "query_after_seconds": 5,
    "query_backoff_seconds": [5, 10, 30, 60],
    "retry_wait_seconds": [2, 5, 10, 30],
}


def wechat_settings(keys: dict[str, Any], account: dict[str, Any], *, base_url: str) -> dict[str, Any]:
    platform = keys["wechat"]["platform"]
    return {
        "base_url": base_url,
        "merchant_serial": account["serial"],
        "public_key_id": platform["public_key_id"],
        "platform_serials": [platform["public_key_id"]],
        "platform_keys": [{"id": platform["public_key_id"], "pem": platform["public_key"]}],
        "pace": PACE,
    }


def ensure_wechat_account(
    *, merchant_id: UUID, index: int, name: str, state: Path, base_url: str, now: datetime
) -> bool:
    """The merchant's account at the simulated WeChat Pay, pointing at where the simulator listens now.

    True when something was changed: a new account, or a simulator that moved to another port or got new keys.
    """
    keys = ensure_keys(state)
    account = keys["wechat"]["accounts"][index]
    settings = wechat_settings(keys, account, base_url=base_url)
    known = ChannelAccount.objects.filter(merchant_id=merchant_id, channel="wechat", is_active=True).first()
    if known is not None and known.settings == settings and known.mchid == account["mchid"]:
        return False
    save_account(
        merchant_id=merchant_id,
        channel="wechat",
        mchid=account["mchid"],
        app_id=account["app_id"],
        name=name,
        settings=settings,
        secret_values={"private_key": account["private_key"], "api_v3_key": account["api_v3_key"]},
        now=now,
    )
    return True
