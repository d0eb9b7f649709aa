"""Ask a channel about a payment that does not exist: whoever gets a signed "no such order" is connected."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel import errors
from kernel.transactions import is_outermost, unit_of_work
from payments.gateway import ChannelRefused, ChannelUnknown
from payments.models import ChannelAccount
from payments.registry import gateway_for

PROBE = "QUITSCONNECTIONTEST"


@dataclass(frozen=True)
class AccountProbed:
    works: bool
    result: str


def probe_account(*, merchant_id: UUID, account_id: UUID, now: datetime) -> AccountProbed:
    """One signed question and its signed answer: address, keys and clock are right, or `result` says what is not.
    Never inside a transaction. Raises NotFound."""
    if not is_outermost():
        raise RuntimeError("a channel is never asked inside a transaction")
    account = ChannelAccount.objects.filter(id=account_id, merchant_id=merchant_id).first()
    if account is None:
        raise errors.NotFound(account_id=str(account_id))
    works, result = _ask(account, now=now)
    with unit_of_work(now=now):
        ChannelAccount.objects.filter(id=account_id).update(tested_at=now, test_result=result[:200])
    return AccountProbed(works, result)


def _ask(account: ChannelAccount, *, now: datetime) -> tuple[bool, str]:
    try:
        fact = gateway_for(account).query_payment(out_trade_no=PROBE, now=now)
    except ChannelRefused as refusal:
        return False, f"{refusal.code}: {refusal.message}"
    except ChannelUnknown as unknown:
        return False, str(unknown)
    except (ValueError, KeyError) as error:
        return False, f"the configuration is incomplete: {error}"
    return True, f"OK ({fact.state})"
