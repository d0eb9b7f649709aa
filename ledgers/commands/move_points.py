"""The one door through which points move."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db.models import F
from django.utils.translation import gettext_lazy as _

from kernel import errors, numbers
from ledgers.models import PointsAccount, PointsEntry


class NotEnoughPoints(errors.Refusal):
    code = "NOT_ENOUGH_POINTS"
    status = 422
    message = _("There are not enough points.")


class PointsKeyReused(errors.Refusal):
    code = "IDEMPOTENCY_KEY_REUSED"
    status = 422
    message = _("This business key was used for another movement of points.")


errors.refuse_on_constraint("points_movement_happens_once", PointsKeyReused)
errors.refuse_on_constraint("points_are_spent_within_the_balance", NotEnoughPoints)


def locked_points_account(*, merchant_id: UUID, user_id: str, now: datetime) -> PointsAccount:
    """The user's account, made when it is new, locked until the caller's transaction ends."""
    PointsAccount.objects.bulk_create(
        [PointsAccount(id=numbers.uuid7(), merchant_id=merchant_id, user_id=user_id, created_at=now)],
        ignore_conflicts=True,
    )
    return PointsAccount.objects.select_for_update().get(merchant_id=merchant_id, user_id=user_id)


def move_points(
    *, account: PointsAccount, kind: str, delta: int, business_key: str, reference: str, now: datetime
) -> bool:
    """One entry and the balance with it; the account is locked by the caller. False: this key moved it before.
    Raises NotEnoughPoints (spending below zero), PointsKeyReused (same key, another movement)."""
    done = PointsEntry.objects.filter(merchant_id=account.merchant_id, business_key=business_key).first()
    if done is not None:
        if (done.account_id, done.kind, done.delta) != (account.id, kind, delta):
            raise PointsKeyReused(business_key=business_key)
        return False
    after = account.balance + delta
    if kind == PointsEntry.Kind.SPEND and after < 0:
        raise NotEnoughPoints(asked=-delta, have=account.balance)
    PointsAccount.objects.filter(id=account.id).update(balance=F("balance") + delta, version=F("version") + 1)
    account.balance = after
    PointsEntry.objects.create(
        merchant_id=account.merchant_id,
        account=account,
        kind=kind,
        delta=delta,
        balance_after=after,
        business_key=business_key,
        reference=reference,
        created_at=now,
    )
    return True
