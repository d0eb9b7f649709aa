"""A merchant sets what is approved at once, how long a carrier may be silent, and what a completed order earns."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aftersales.models import AfterSalesSettings
from kernel.errors import InvalidInput, VersionConflict
from kernel.transactions import unit_of_work


@dataclass(frozen=True)
class SettingsChanged:
    merchant_id: UUID
    version: int


def change_settings(
    *,
    merchant_id: UUID,
    instant_refund_up_to_fen: int | None,
    carrier_silence_days: int,
    points_per_yuan: int | None = None,
    commission_hold_days: int | None = None,
    expected_version: int | None = None,
    now: datetime,
) -> SettingsChanged:
    """Amount in fen (None: nothing is approved at once). Points 0..100 a yuan, a hold of 0..365 days; None: as it was.
    They hold for orders that complete from now on. Raises InvalidInput, VersionConflict."""
    if not 1 <= carrier_silence_days <= 90 or (instant_refund_up_to_fen or 0) < 0:
        raise InvalidInput(carrier_silence_days=carrier_silence_days, instant_refund_up_to_fen=instant_refund_up_to_fen)
    if not 0 <= (points_per_yuan or 0) <= 100 or not 0 <= (commission_hold_days or 0) <= 365:
        raise InvalidInput(points_per_yuan=points_per_yuan, commission_hold_days=commission_hold_days)
    with unit_of_work(now=now):
        AfterSalesSettings.objects.get_or_create(merchant_id=merchant_id)
        settings = AfterSalesSettings.objects.select_for_update().get(merchant_id=merchant_id)
        if expected_version is not None and settings.version != expected_version:
            raise VersionConflict(version=settings.version)
        AfterSalesSettings.objects.filter(pk=merchant_id).update(
            instant_refund_up_to_fen=instant_refund_up_to_fen,
            carrier_silence_days=carrier_silence_days,
            points_per_yuan=settings.points_per_yuan if points_per_yuan is None else points_per_yuan,
            commission_hold_days=settings.commission_hold_days
            if commission_hold_days is None
            else commission_hold_days,
            version=settings.version + 1,
        )
        return SettingsChanged(merchant_id, settings.version + 1)
