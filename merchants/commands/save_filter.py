"""A person keeps a list as they like to see it, or forgets it."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel.errors import InvalidInput, Refusal
from kernel.transactions import unit_of_work
from merchants.models import SavedFilter, Staff

MOST_PER_LIST = 12


class TooManyFilters(Refusal):
    code = "TOO_MANY_FILTERS"
    message = _("This list has as many saved filters as fit. Forget one first.")


@dataclass(frozen=True)
class FilterSaved:
    filter_id: UUID
    label: str


def save_filter(*, staff_id: UUID, page: str, label: str, query: str, now: datetime) -> FilterSaved:
    """Keep a list's filters under a name; the same name again replaces them. Raises InvalidInput, TooManyFilters."""
    label = label.strip()[:40]
    if "\x00" in label or "\x00" in query or "%00" in query:
        raise InvalidInput(fields={"label": ["without NUL, and the filters too"]})
    if not label or not query or len(query) > 500 or len(page) > 80:
        raise InvalidInput(fields={"label": ["needed, with at least one filter set"]})
    with unit_of_work(now=now):
        Staff.objects.select_for_update(no_key=True).get(pk=staff_id)
        mine = SavedFilter.objects.filter(staff_id=staff_id, page=page)
        if mine.exclude(label=label).count() >= MOST_PER_LIST:
            raise TooManyFilters(most=MOST_PER_LIST)
        row, _created = SavedFilter.objects.update_or_create(
            staff_id=staff_id, page=page, label=label, defaults={"query": query, "created_at": now}
        )
    return FilterSaved(row.pk, row.label)


def forget_filter(*, staff_id: UUID, filter_id: UUID, now: datetime) -> bool:
    """Forget a saved filter of one's own. False: there was none."""
    with unit_of_work(now=now):
        forgotten, _rows = SavedFilter.objects.filter(pk=filter_id, staff_id=staff_id).delete()
    return bool(forgotten)
