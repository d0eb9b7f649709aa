"""The second step of a login."""

from datetime import datetime, timedelta
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel import secrets
from kernel.errors import NotFound, Refusal
from kernel.transactions import unit_of_work
from merchants import one_time_codes
from merchants.models import RecoveryCode, SecondFactor

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
