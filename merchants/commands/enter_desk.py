"""A person comes in: their session is written down, and the oldest ones beyond the limit end."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.contrib.sessions.models import Session

from kernel.transactions import unit_of_work
from merchants.models import Staff, StaffSession


@dataclass(frozen=True)
class Entered:
    session_id: UUID
    ended: int


def enter_desk(
    *, staff_id: UUID, session_key: str, address: str, user_agent: str, most_sessions: int, now: datetime
) -> Entered:
    """Record a login and end all open sessions but the newest `most_sessions` of the person."""
    with unit_of_work(now=now):
        Staff.objects.select_for_update(no_key=True).get(pk=staff_id)
        row = StaffSession.objects.create(
            staff_id=staff_id,
            session_key=session_key,
            entered_at=now,
            address=address[:45],
            user_agent=user_agent[:200],
        )
        open_ones = StaffSession.objects.filter(staff_id=staff_id, ended_at__isnull=True).order_by("-id")
        ended = end_sessions([item.session_key for item in open_ones[most_sessions:]], now=now)
    return Entered(row.pk, ended)


def leave_desk(*, session_key: str, now: datetime) -> None:
    """A person goes out, or is sent out."""
    with unit_of_work(now=now):
        end_sessions([session_key], now=now)


def end_all_sessions(*, staff_id: UUID, except_key: str = "", now: datetime) -> int:
    """End every open session of a person but the named one. Returns how many ended."""
    with unit_of_work(now=now):
        open_ones = StaffSession.objects.filter(staff_id=staff_id, ended_at__isnull=True)
        return end_sessions([row.session_key for row in open_ones if row.session_key != except_key], now=now)


def end_sessions(keys: list[str], *, now: datetime) -> int:
    """End sessions, in the caller's transaction: the next click of each finds the login page."""
    Session.objects.filter(session_key__in=keys).delete()
    return StaffSession.objects.filter(session_key__in=keys, ended_at__isnull=True).update(ended_at=now)
