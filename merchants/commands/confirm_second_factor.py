"""A second factor takes force with its first code."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from kernel import secrets
from kernel.errors import NotFound
from kernel.transactions import unit_of_work
from merchants import one_time_codes
from merchants.commands.check_code import CodeRefused
from merchants.models import RecoveryCode, SecondFactor


@dataclass(frozen=True)
class FactorConfirmed:
    staff_id: UUID
    recovery_codes: list[str] = field(metadata={"stored": False}, repr=False)


def confirm_second_factor(*, staff_id: UUID, code: str, now: datetime) -> FactorConfirmed:
    """The first code proves that the app has the secret; the recovery codes are shown once. Raises NotFound,
    CodeRefused."""
    codes = one_time_codes.new_recovery_codes()
    with unit_of_work(now=now):
        factor = SecondFactor.objects.select_for_update().filter(staff_id=staff_id, confirmed_at__isnull=True).first()
        if factor is None:
            raise NotFound()
        step = one_time_codes.matching_step(secrets.decrypt(factor.secret_encrypted), code, now=now, after=0)
        if step is None:
            raise CodeRefused()
        SecondFactor.objects.filter(pk=factor.pk).update(confirmed_at=now, last_step=step, failures=0)
        RecoveryCode.objects.filter(staff_id=staff_id).delete()
        RecoveryCode.objects.bulk_create(
            RecoveryCode(staff_id=staff_id, digest=one_time_codes.recovery_hash(text)) for text in codes
        )
    return FactorConfirmed(staff_id, codes)
