"""The channel's day as two instants."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any

from kernel.clock import CHANNEL_ZONE


@dataclass(frozen=True)
class ChannelDay:
    """Midnight to midnight in Asia/Shanghai, half open: the day by which every channel cuts its bills."""

    on: date

    @property
    def start(self) -> datetime:
        return datetime.combine(self.on, time.min, CHANNEL_ZONE)

    @property
    def end(self) -> datetime:
        return datetime.combine(self.on + timedelta(days=1), time.min, CHANNEL_ZONE)

    def params(self, *, merchant_id: Any, now: datetime) -> dict[str, Any]:
        """What every rule's SELECT may use."""
        return {
            "day": self.on,
            "day_start": self.start,
            "day_end": self.end,
            "merchant_id": merchant_id,
            "now": now,
        }
