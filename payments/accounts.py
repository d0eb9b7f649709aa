"""How fast an account may be asked to refund, and which accounts a notify may come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Case, IntegerField, Q, Value, When

from payments.models import ChannelAccount

MAX_NOTIFY_CANDIDATES = 20
"""A notify names its key, not always its account: at most this many accounts are tried before it is called forged."""

REFUND_WINDOW_DAYS = 365
"""Channels take refunds for this long after the payment."""


@dataclass(frozen=True)
class Pace:
    """Seconds. `spacing` lies between two sends for one payment, `query_after` between a send and the first query,
    `backoff` between queries, `wait` before the same number is sent again after "not now" (no funds, too fast)."""

    spacing: int = 60
    query_after: int = 600
    backoff: tuple[int, ...] = (60, 300, 600, 1200, 1800)
    wait: tuple[int, ...] = (60, 300, 600, 1800)

    def backoff_array(self) -> str:
        """The back-off as the text of a PostgreSQL array."""
        return "{" + ",".join(str(seconds) for seconds in self.backoff) + "}"

    def wait_array(self) -> str:
        """The waits as the text of a PostgreSQL array."""
        return "{" + ",".join(str(seconds) for seconds in self.wait) + "}"


WECHAT_PACE = Pace()
ALIPAY_PACE = Pace(spacing=3)
BALANCE_PACE = Pace(spacing=0)


def pace_of(account: ChannelAccount) -> Pace:
    """The channel's own pace, or what the account's settings say under "pace" (a simulator has no need to wait)."""
    usual = {"wechat": WECHAT_PACE, "alipay": ALIPAY_PACE}.get(account.channel, BALANCE_PACE)
    chosen = account.settings.get("pace") or {}
    return Pace(
        spacing=int(chosen.get("refund_spacing_seconds", usual.spacing)),
        query_after=int(chosen.get("query_after_seconds", usual.query_after)),
        backoff=tuple(int(each) for each in chosen.get("query_backoff_seconds", usual.backoff)),
        wait=tuple(int(each) for each in chosen.get("retry_wait_seconds", usual.wait)),
    )


def accounts_for_notify(
    *, channel: str, headers: Mapping[str, str], account_id: UUID | None = None
) -> list[ChannelAccount]:
    """The active accounts whose keys may have signed this notify, likeliest first. Local reads only: a notify never
    makes us call anyone."""
    found = ChannelAccount.objects.filter(channel=channel, is_active=True)
    if account_id is not None:
        return list(found.filter(id=account_id))
    serial = {name.lower(): value for name, value in headers.items()}.get("wechatpay-serial", "")[:128]
    if not serial:
        return list(found.order_by("id")[:MAX_NOTIFY_CANDIDATES])
    named = Q(settings__public_key_id=serial) | Q(settings__platform_serials__contains=[serial])
    likely = Case(When(named, then=Value(0)), default=Value(1), output_field=IntegerField())
    return list(found.alias(likely=likely).order_by("likely", "id")[:MAX_NOTIFY_CANDIDATES])
