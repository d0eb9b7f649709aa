"""A lost phone: the second factor is taken away."""

from datetime import datetime
from uuid import UUID

from kernel.transactions import unit_of_work
from merchants.models import RecoveryCode, SecondFactor


def remove_second_factor(*, staff_id: UUID, now: datetime) -> bool:
    """Take a person's factor and recovery codes away (lost phone). False: there was none."""
    with unit_of_work(now=now):
        RecoveryCode.objects.filter(staff_id=staff_id).delete()
        removed, _rows = SecondFactor.objects.filter(staff_id=staff_id).delete()
    return bool(removed)
