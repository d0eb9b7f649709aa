"""Let a person who was locked out by failed attempts try again."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from axes.models import AccessAttempt

from kernel.errors import NotFound
from kernel.transactions import unit_of_work
from merchants.models import Staff


@dataclass(frozen=True)
class LoginUnlocked:
    staff_id: UUID
    forgotten: int


def unlock_login(*, staff_id: UUID, now: datetime) -> LoginUnlocked:
    """Forget the failed attempts of a login, from every address. Raises NotFound."""
    with unit_of_work(now=now):
        staff = Staff.objects.select_related("user").filter(pk=staff_id).first()
        if staff is None:
            raise NotFound()
        forgotten, _ = AccessAttempt.objects.filter(username=staff.user.get_username()).delete()
    return LoginUnlocked(staff_id, forgotten)
