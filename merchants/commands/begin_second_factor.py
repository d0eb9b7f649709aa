"""A fresh secret for an authenticator app."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from kernel import secrets
from kernel.errors import NotFound
from kernel.transactions import unit_of_work
from merchants import one_time_codes
from merchants.commands.check_code import CodeRefused
from merchants.models import SecondFactor, Staff


@dataclass(frozen=True)
class FactorBegun:
    staff_id: UUID
    secret: str = field(metadata={"stored": False}, repr=False)


def begin_second_factor(*, staff_id: UUID, now: datetime) -> FactorBegun:
    """A fresh secret for an authenticator app, in force once confirmed. Begun again before that: a new secret.

    Raises NotFound, CodeRefused when a confirmed factor is there already (it has to be taken away first).
    """
    secret = one_time_codes.new_secret()
    with unit_of_work(now=now):
        if not Staff.objects.select_for_update(no_key=True).filter(pk=staff_id).exists():
            raise NotFound()
        if SecondFactor.objects.filter(staff_id=staff_id, confirmed_at__isnull=False).exists():
            raise CodeRefused()
        SecondFactor.objects.update_or_create(
            staff_id=staff_id,
            defaults={"secret_encrypted": secrets.encrypt(secret), "created_at": now, "failures": 0, "last_step": 0},
        )
    return FactorBegun(staff_id, secret)
