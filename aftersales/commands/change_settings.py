"""A merchant sets what is approved at once and how long a carrier may be silent."""

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
    expected_version: int | None = None,
    now: datetime,
) -> SettingsChanged:
    """Amount in fen (None: nothing is approved at once). Raises InvalidInput, VersionConflict."""
    if not 1 <= carrier_silence_days <= 90 or (instant_refund_up_to_fen or 0) < 0:
        raise InvalidInput(carrier_silence_days=carrier_silence_days, instant_refund_up_to_fen=instant_refund_up_to_fen)
    with unit_of_work(now=now):
        AfterSalesSettings.objects.get_or_create(merchant_id=merchant_id)
        settings = AfterSalesSettings.objects.select_for_update().get(merchant_id=merchant_id)
        if expected_version is not None and settings.version != expected_version:
            raise VersionConflict(version=settings.version)
        AfterSalesSettings.objects.filter(pk=merchant_id).update(
            instant_refund_up_to_fen=instant_refund_up_to_fen,
            carrier_silence_days=carrier_silence_days,
            version=settings.version + 1,
        )
        return SettingsChanged(merchant_id, settings.version + 1)
