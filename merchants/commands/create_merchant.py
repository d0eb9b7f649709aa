"""A new merchant."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from kernel.errors import InvalidInput, Refusal, refuse_on_constraint
from kernel.transactions import unit_of_work
from merchants.models import Merchant


class MerchantCodeTaken(Refusal):
    code = "MERCHANT_CODE_TAKEN"
    message = _("Another merchant has this code.")


refuse_on_constraint("merchant_code_key", MerchantCodeTaken)


@dataclass(frozen=True)
class MerchantCreated:
    merchant_id: UUID
    code: str


def create_merchant(*, code: str, name: str, now: datetime, **settings: Any) -> MerchantCreated:
    """Create a merchant; `settings` are fields of Merchant, windows in the unit of their name.

    Raises InvalidInput for a value out of its bounds, MerchantCodeTaken.
    """
    merchant = Merchant(code=code, name=name, created_at=now, **settings)
    check_fields(merchant)
    with unit_of_work(now=now):
        merchant.save(force_insert=True)
    return MerchantCreated(merchant.pk, merchant.code)


def check_fields(merchant: Merchant) -> None:
    """Every field within its bounds and the time zone a real one, or InvalidInput naming the fields."""
    from zoneinfo import available_timezones

    try:
        merchant.clean_fields()
    except ValidationError as error:
        raise InvalidInput(fields=error.message_dict) from error
    if merchant.timezone not in available_timezones():
        raise InvalidInput(fields={"timezone": ["unknown time zone"]})
