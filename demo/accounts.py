"""The shops' accounts at the simulated channels: keys from the simulator's own key file."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from uuid import UUID

from payments.commands.save_account import save_account
from payments.models import ChannelAccount
from payments.simulator.keys import alipay_account, ensure_keys, wechat_account

# A simulator has no need to wait; a real channel keeps its own pace (payments/accounts.py).
PACE = {
    "refund_spacing_seconds": 0,
    "query_after_seconds": 5,
    "query_backoff_seconds": [5, 10, 30, 60],
    "retry_wait_seconds": [2, 5, 10, 30],
}


MAKERS = {"wechat": wechat_account, "alipay": alipay_account}


def ensure_account(
    *, merchant_id: UUID, channel: str, number: int, name: str, state: Path, base_url: str, now: datetime
) -> bool:
    """The merchant's account at a simulated channel, pointing at where the simulator listens now.

    True when something was changed: a new account, or a simulator that moved to another port or got new keys.
    """
    account = MAKERS[channel](ensure_keys(state), number, base_url)
    settings = {**account["settings"], "pace": PACE}
    known = ChannelAccount.objects.filter(merchant_id=merchant_id, channel=channel, is_active=True).first()
    if known is not None and known.settings == settings and known.mchid == account["mchid"]:
        return False
    save_account(
        merchant_id=merchant_id,
        channel=channel,
        mchid=account["mchid"],
        app_id=account["app_id"],
        name=name,
        settings=settings,
        secret_values=account["secrets"],
        now=now,
    )
    return True
