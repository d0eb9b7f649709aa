"""The only clock. Commands receive `now`; edges (tasks, API, admin, management commands) read it here."""

from datetime import date, datetime
from zoneinfo import ZoneInfo

from django.utils import timezone

CHANNEL_ZONE = ZoneInfo("Asia/Shanghai")
"""The zone in which payment channels count their days, whatever the merchant's own zone is."""


def now() -> datetime:
    """The current instant, aware, in UTC."""
    return timezone.now()


def channel_day(moment: datetime) -> date:
    """The channel's calendar day of an instant: bills are cut at midnight in Asia/Shanghai."""
    return moment.astimezone(CHANNEL_ZONE).date()
