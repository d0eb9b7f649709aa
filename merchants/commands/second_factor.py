"""A second factor: begun, confirmed, asked for at login, taken away."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel import secrets
from kernel.errors import NotFound, Refusal
from kernel.transactions import unit_of_work
from merchants import one_time_codes
from merchants.models import RecoveryCode, SecondFactor, Staff

MOST_FAILURES = 5
LOCKED_FOR = timedelta(minutes=15)


class CodeRefused(Refusal):
    code = "CODE_REFUSED"
    status = 401
    message = _("The code is not right, or was used before.")


class CodesLocked(Refusal):
    code = "CODES_LOCKED"
    status = 429
    message = _("Too many wrong codes. Wait 15 minutes.")


@dataclass(frozen=True)
class FactorBegun:
    staff_id: UUID
    secret: str = field(metadata={"stored": False}, repr=False)


@dataclass(frozen=True)
class FactorConfirmed:
    staff_id: UUID
    recovery_codes: list[str] = field(metadata={"stored": False}, repr=False)


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


def check_code(*, staff_id: UUID, code: str, now: datetime) -> bool:
    """A code of the app, or an unused recovery code; each counts once. Five wrong ones lock for 15 minutes.

    True: it was a recovery code. Raises NotFound, CodeRefused, CodesLocked.
    """
    refused: Refusal | None = None
    with unit_of_work(now=now):
        factor = SecondFactor.objects.select_for_update().filter(staff_id=staff_id, confirmed_at__isnull=False).first()
        if factor is None:
            raise NotFound()
        if factor.locked_until is not None and now < factor.locked_until:
            raise CodesLocked()
        mine = SecondFactor.objects.filter(pk=factor.pk)
        step = one_time_codes.matching_step(
            secrets.decrypt(factor.secret_encrypted), code, now=now, after=factor.last_step
        )
        if step is not None:
            mine.update(last_step=step, failures=0, locked_until=None)
            return False
        unused = RecoveryCode.objects.filter(staff_id=staff_id, used_at__isnull=True)
        if unused.filter(digest=one_time_codes.recovery_hash(code)).update(used_at=now):
            mine.update(failures=0, locked_until=None)
            return True
        # The count of failures has to stay, so the refusal is raised after the commit.
        failures = factor.failures + 1
        is_last = failures >= MOST_FAILURES
        mine.update(failures=0 if is_last else failures, locked_until=now + LOCKED_FOR if is_last else None)
        refused = CodesLocked() if is_last else CodeRefused()
    raise refused


def remove_second_factor(*, staff_id: UUID, now: datetime) -> bool:
    """Take a person's factor and recovery codes away (lost phone). False: there was none."""
    with unit_of_work(now=now):
        RecoveryCode.objects.filter(staff_id=staff_id).delete()
        removed, _rows = SecondFactor.objects.filter(staff_id=staff_id).delete()
    return bool(removed)
