"""The one door through which commission moves between buckets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from django.db.models import F
from django.utils.translation import gettext_lazy as _

from kernel import errors, numbers
from ledgers.models import Commission, CommissionAccount, CommissionEntry

Bucket = CommissionEntry.Bucket
Kind = CommissionEntry.Kind


class NotWithdrawable(errors.Refusal):
    code = "COMMISSION_NOT_WITHDRAWABLE"
    status = 422
    message = _("There is not so much commission to withdraw.")


class CommissionKeyReused(errors.Refusal):
    code = "IDEMPOTENCY_KEY_REUSED"
    status = 422
    message = _("This reference was used for another movement of commission.")


errors.refuse_on_constraint("commission_movement_happens_once", CommissionKeyReused)
errors.refuse_on_constraint("commission_is_withdrawn_within_balance", NotWithdrawable)


def locked_commission_account(*, merchant_id: UUID, beneficiary: str, now: datetime) -> CommissionAccount:
    """The beneficiary's account, made when it is new, locked until the caller's transaction ends."""
    CommissionAccount.objects.bulk_create(
        [CommissionAccount(id=numbers.uuid7(), merchant_id=merchant_id, beneficiary=beneficiary, created_at=now)],
        ignore_conflicts=True,
    )
    return CommissionAccount.objects.select_for_update().get(merchant_id=merchant_id, beneficiary=beneficiary)


def locked_commissions(*, merchant_id: UUID, order_no: str, line_no: int) -> list[Commission]:
    """The commissions of a line with their accounts, accounts locked in one order for everybody."""
    found = Commission.objects.filter(merchant_id=merchant_id, order_no=order_no, line_no=line_no)
    accounts = sorted({row.account_id for row in found})
    if not accounts:
        return []
    list(CommissionAccount.objects.select_for_update().filter(id__in=accounts).order_by("id"))
    return list(found.select_related("account").order_by("account_id", "level"))


def move_commission(
    *,
    account: CommissionAccount,
    kind: str,
    deltas: Mapping[str, int],
    business_key: str,
    reference: str,
    commission: Commission | None,
    now: datetime,
) -> None:
    """One entry per bucket that moves, and the balances with them; the account is locked by the caller, who has also
    made sure that this key is new."""
    moving = {bucket: delta for bucket, delta in deltas.items() if delta}
    if not moving:
        return
    current = CommissionAccount.objects.get(id=account.id)
    CommissionAccount.objects.filter(id=account.id).update(
        version=F("version") + 1, **{f"{bucket}_fen": F(f"{bucket}_fen") + delta for bucket, delta in moving.items()}
    )
    CommissionEntry.objects.bulk_create(
        CommissionEntry(
            merchant_id=account.merchant_id,
            account=account,
            commission=commission,
            kind=kind,
            bucket=bucket,
            delta_fen=delta,
            balance_after_fen=getattr(current, f"{bucket}_fen") + delta,
            business_key=business_key,
            reference=reference,
            created_at=now,
        )
        for bucket, delta in moving.items()
    )
