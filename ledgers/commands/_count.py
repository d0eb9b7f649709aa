"""How sales and returns are counted, by day and SKU."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db.models import F
from django.utils.translation import gettext_lazy as _

from kernel import errors, numbers
from kernel.transactions import unit_of_work
from ledgers.models import SalesDay, SalesEntry
from merchants.models import Merchant

COLUMNS = {
    SalesEntry.Kind.SALE: ("sold_qty", "sold_fen"),
    SalesEntry.Kind.RETURN: ("returned_qty", "returned_fen"),
}


class SalesKeyReused(errors.Refusal):
    code = "IDEMPOTENCY_KEY_REUSED"
    status = 422
    message = _("This business key was used for another sale.")


errors.refuse_on_constraint("sale_is_counted_once", SalesKeyReused)


@dataclass(frozen=True)
class SalesCounted:
    on_date: date
    replayed: bool = False


def count(
    *,
    kind: SalesEntry.Kind,
    merchant_id: UUID,
    sku: str,
    qty: int,
    amount_fen: int,
    business_key: str,
    reference: str,
    at: datetime,
    now: datetime,
) -> SalesCounted:
    if qty < 0 or amount_fen < 0 or not sku:
        raise errors.InvalidInput(sku=sku, qty=qty, amount_fen=amount_fen)
    with unit_of_work(now=now):
        zone = ZoneInfo(Merchant.objects.values_list("timezone", flat=True).get(pk=merchant_id))
        on_date = at.astimezone(zone).date()
        told = (kind, sku, qty, amount_fen)
        known = _known(merchant_id, business_key, told)
        if known is not None:
            return known
        SalesDay.objects.bulk_create(
            [SalesDay(id=numbers.uuid7(), merchant_id=merchant_id, on_date=on_date, sku=sku)], ignore_conflicts=True
        )
        # The day's row is locked before the key is looked at again: one sale told twice at once meets here, and the
        # later one finds the entry of the earlier.
        day = SalesDay.objects.select_for_update().get(merchant_id=merchant_id, on_date=on_date, sku=sku)
        known = _known(merchant_id, business_key, told)
        if known is not None:
            return known
        SalesEntry.objects.create(
            merchant_id=merchant_id,
            kind=kind,
            on_date=on_date,
            sku=sku,
            qty=qty,
            amount_fen=amount_fen,
            business_key=business_key,
            reference=reference,
            created_at=now,
        )
        pieces, fen = COLUMNS[kind]
        SalesDay.objects.filter(pk=day.pk).update(**{pieces: F(pieces) + qty, fen: F(fen) + amount_fen})
        return SalesCounted(on_date)


def _known(merchant_id: UUID, business_key: str, told: tuple[str, str, int, int]) -> SalesCounted | None:
    """The answer of the first telling; SalesKeyReused when that one said something else."""
    entry = SalesEntry.objects.filter(merchant_id=merchant_id, business_key=business_key).first()
    if entry is None:
        return None
    if (entry.kind, entry.sku, entry.qty, entry.amount_fen) != told:
        raise SalesKeyReused(business_key=business_key)
    return SalesCounted(entry.on_date, replayed=True)
