"""What a person has to do before they may work: a live session, a second factor, a password of their own."""

from datetime import datetime

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest
from django.utils.translation import gettext as _

from merchants.commands.enter_desk import enter_desk, leave_desk
from merchants.models import SecondFactor, Staff

ENTERED, SEEN, FACTOR = "quits_entered", "quits_seen", "quits_factor"
ASKED, PASSED, NONE = "asked", "passed", "none"
SEEN_EVERY_SECONDS = 60


def duty(request: HttpRequest, staff: Staff | None, *, now: datetime) -> str:
    """The name of the page where the person has to go first, or "" when they may work.

    The first request of a session writes the session down; later ones read the session's own marks and ask the
    database nothing.
    """
    if staff is None:
        return ""
    session, seconds = request.session, int(now.timestamp())
    if ENTERED not in session:
        _enter(request, staff, now)
    elif _is_over(session, seconds):
        leave_desk(session_key=session.session_key or "", now=now)
        logout(request)
        messages.info(request, _("You were logged out because the session was too old or idle for too long."))
        return "login"
    elif seconds - session[SEEN] >= SEEN_EVERY_SECONDS:
        session[SEEN] = seconds
    if session[FACTOR] == ASKED:
        return "second_factor"
    if session[FACTOR] == NONE and staff.role in settings.QUITS_SECOND_FACTOR_ROLES:
        return "second_factor_setup"
    return "password_change" if staff.must_change_password else ""


def _enter(request: HttpRequest, staff: Staff, now: datetime) -> None:
    session = request.session
    has_factor = SecondFactor.objects.filter(staff=staff, confirmed_at__isnull=False).exists()
    session[ENTERED] = session[SEEN] = int(now.timestamp())
    session[FACTOR] = ASKED if has_factor else NONE
    enter_desk(
        staff_id=staff.pk,
        session_key=session.session_key or "",
        address=address_of(request),
        user_agent=request.META.get("HTTP_USER_AGENT", ""),
        most_sessions=settings.QUITS_SESSIONS_PER_PERSON,
        now=now,
    )


def _is_over(session: SessionBase, seconds: int) -> bool:
    is_idle = seconds - session[SEEN] > settings.QUITS_SESSION_IDLE_SECONDS
    return is_idle or seconds - session[ENTERED] > settings.SESSION_COOKIE_AGE


def address_of(request: HttpRequest) -> str:
    """Where the request came from, as far as the configured number of proxies can be trusted."""
    count = settings.QUITS_PROXY_COUNT
    hops = [hop.strip() for hop in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",") if hop.strip()]
    if count and len(hops) >= count:
        return hops[-count][:45]
    return request.META.get("REMOTE_ADDR", "")[:45]
