"""Beat entries of the ledgers."""

from __future__ import annotations

import structlog
from celery import shared_task

from kernel import clock
from ledgers.commands.mature_commission import commissions_to_mature, mature_commission

log = structlog.get_logger(__name__)


@shared_task(queue="bulk")
def mature_commissions() -> int:
    """Commissions whose hold is over become withdrawable; one that fails stops no other."""
    moment, matured = clock.now(), 0
    for commission_id in commissions_to_mature(now=moment):
        try:
            matured += mature_commission(commission_id=commission_id, now=moment).matured
        except Exception:
            log.exception("commission.not_matured", commission_id=str(commission_id))
    return matured
