"""Alarms: what a look opened is logged, and posted to a webhook where one is configured."""

from __future__ import annotations

from typing import Any

import httpx
import structlog
from django.conf import settings

from kernel import inbox

ALARMING = ("P0", "P1")
SECONDS = 5.0

log = structlog.get_logger(__name__)


@inbox.consumer("finding.opened", name="reconciliation.raise_alarm", atomic=False)
def raise_alarm(event: inbox.Event) -> None:
    """One alarm per rule and look, however many findings it opened. A webhook that fails is tried again."""
    said: dict[str, Any] = event.payload
    if said["severity"] not in ALARMING:
        return
    log.error("finding.opened", **said)
    address = getattr(settings, "QUITS_ALARM_WEBHOOK", "")
    if address:
        answer = httpx.post(
            address,
            json={"event": "finding.opened", "event_id": str(event.id), **said},
            timeout=SECONDS,
            follow_redirects=False,
        )
        answer.raise_for_status()
