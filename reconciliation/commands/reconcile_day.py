"""One channel day from its bills to its findings: what beat, the command line and the back office call."""

from __future__ import annotations

import uuid
from datetime import date, datetime

import structlog

from payments.commands.download_bill import download_bill
from payments.gateway import ChannelRefused, ChannelUnknown
from payments.models import ChannelAccount, ChannelBill
from payments.queries import bill_kinds
from reconciliation.commands.run_reconciliation import Reconciled, run_reconciliation

CHANNELS = ("wechat", "alipay")
"""The channels with a side of their own."""

log = structlog.get_logger(__name__)


def reconcile_day(*, on_date: date, now: datetime, merchant_id: uuid.UUID | None = None) -> Reconciled:
    """Fetch what bills are missing (over HTTP, outside any transaction), then run the reconciliation.

    A bill that is not there, does not add up or cannot be fetched stops nothing: its account is not judged,
    the run is WAITING, and the next call of the same day goes on from there.
    """
    accounts = ChannelAccount.objects.filter(is_active=True, channel__in=CHANNELS)
    if merchant_id is not None:
        accounts = accounts.filter(merchant_id=merchant_id)
    waiting = [
        f"{account.merchant.code} {account.channel} {kind}"
        for account in accounts.select_related("merchant").order_by("merchant__code", "channel")
        for kind in bill_kinds(account)
        if not _has_bill(account, kind=kind, on_date=on_date, now=now)
    ]
    return run_reconciliation(on_date=on_date, merchant_id=merchant_id, waiting=waiting, now=now)


def _has_bill(account: ChannelAccount, *, kind: str, on_date: date, now: datetime) -> bool:
    try:
        state = download_bill(account_id=account.pk, kind=kind, bill_on=on_date, now=now).state
    except (ChannelUnknown, ChannelRefused, ValueError) as error:  # ValueError: the account's settings are incomplete
        log.warning("bill.away", account=str(account.pk), kind=kind, bill_on=str(on_date), error=str(error)[:200])
        return False
    return state in (ChannelBill.State.PARSED, ChannelBill.State.EMPTY)
