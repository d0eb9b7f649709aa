"""The shadow run's switch: begin a second algorithm, stop it, or let it go live after a week without a difference."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Sum
from django.utils.translation import gettext_lazy as _

from aftersales.algorithms import ALGORITHMS
from aftersales.models import AfterSalesSettings, ShadowDay
from kernel.errors import InvalidInput, NotFound, Refusal, VersionConflict
from kernel.transactions import unit_of_work
from merchants.models import Merchant

SHADOW_DAYS = 7


class ShadowNotProven(Refusal):
    code = "SHADOW_NOT_PROVEN"
    status = 422
    message = _("The second algorithm goes live after seven days and enough calculations without one difference.")


@dataclass(frozen=True)
class AlgorithmSwitched:
    merchant_id: UUID
    algorithm: str
    shadow_algorithm: str
    version: int


@dataclass(frozen=True)
class ShadowReport:
    """What the run has shown since it began."""

    since: datetime | None
    calculations: int
    differences: int
    needed: int

    def proves(self, *, now: datetime) -> bool:
        """Seven days and enough calculations, all alike."""
        return (
            self.since is not None
            and now - self.since >= timedelta(days=SHADOW_DAYS)
            and self.calculations >= self.needed
            and self.differences == 0
        )


def switch_algorithm(
    *, merchant_id: UUID, to: str, expected_version: int | None = None, now: datetime
) -> AlgorithmSwitched:
    """`to` = "live": the second algorithm becomes the live one for new lines. `to` = "": the run stops. Otherwise the
    named algorithm begins to run beside. Raises NotFound, InvalidInput, VersionConflict, ShadowNotProven.
    """
    with unit_of_work(now=now):
        if not Merchant.objects.filter(pk=merchant_id).exists():
            raise NotFound(merchant_id=str(merchant_id))
        AfterSalesSettings.objects.get_or_create(merchant_id=merchant_id)
        settings = AfterSalesSettings.objects.select_for_update().get(merchant_id=merchant_id)
        if expected_version is not None and settings.version != expected_version:
            raise VersionConflict(version=settings.version)
        change: dict[str, Any]
        if to == "live":
            report = report_of(settings)
            if not report.proves(now=now):
                raise ShadowNotProven(
                    calculations=report.calculations, differences=report.differences, needed=report.needed
                )
            change = {"algorithm": settings.shadow_algorithm, "shadow_algorithm": "", "shadow_since": None}
        elif to == "":
            change = {"shadow_algorithm": "", "shadow_since": None}
        elif to in ALGORITHMS and to != settings.algorithm:
            change = {"shadow_algorithm": to, "shadow_since": now}
        else:
            raise InvalidInput(algorithm=to)
        AfterSalesSettings.objects.filter(pk=settings.pk).update(version=settings.version + 1, **change)
        fresh = AfterSalesSettings.objects.get(pk=settings.pk)
        return AlgorithmSwitched(merchant_id, fresh.algorithm, fresh.shadow_algorithm, fresh.version)


def report_of(settings: AfterSalesSettings) -> ShadowReport:
    """The figures of the run that is on now."""
    days = ShadowDay.objects.filter(
        merchant_id=settings.merchant_id, live=settings.algorithm, shadow=settings.shadow_algorithm
    )
    if settings.shadow_since is not None:
        days = days.filter(on_date__gte=settings.shadow_since.date())
    sums = days.aggregate(calculations=Sum("calculations"), differences=Sum("differences"))
    return ShadowReport(
        since=settings.shadow_since,
        calculations=sums["calculations"] or 0,
        differences=sums["differences"] or 0,
        needed=settings.shadow_minimum,
    )
