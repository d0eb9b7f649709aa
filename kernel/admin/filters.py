"""List filters that cannot leak: a foreign key in `list_filter` would list every merchant to everybody."""

from collections.abc import Callable, Iterable
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _

COUNT_CAP = 10_000
"""Lists count this far; more rows are reached by search and filters, not by page number."""


FOUND_CAP = 500
"""Rows that one column of a search may find: more than anybody reads."""


class MerchantFilter(admin.SimpleListFilter):
    """By merchant, for people of the house only. The list's model needs a `merchant` of its own; subclass with
    another `path` otherwise."""

    title = _("merchant")
    parameter_name = "merchant"
    path = "merchant"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        if model_admin.admin_site.policy.merchant_of(request.user) is not None:
            return []
        merchants = apps.get_model("merchants", "Merchant")._default_manager.order_by("code")[:200]
        return [(str(row.pk), str(row)) for row in merchants]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        value = self.value()
        if not value or value not in {key for key, _label in self.lookup_choices}:
            return None
        return queryset.filter(**{self.path: value})


Choices = Callable[[], Iterable[tuple[str, Any]]]


def one_of(field: str, label: Any, choices: Choices) -> type[admin.SimpleListFilter]:
    """A filter by a column whose possible values the code knows although the column does not. Django's own would
    read the whole table for the values that stand in it, each time the list is opened."""

    class OneOf(admin.SimpleListFilter):
        title = label
        parameter_name = field

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
            return list(choices())

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            return queryset.filter(**{field: self.value()}) if self.value() else queryset

    OneOf.__name__ = f"OneOf_{field}"
    return OneOf


def exactly(queryset: QuerySet[Any], term: str, *names: str) -> tuple[QuerySet[Any], bool]:
    """The rows that carry this whole number in one of the columns, at most FOUND_CAP by each. Each column is asked by
    itself, so that each has its index; their OR would read the table."""
    wanted = term.strip()
    if not wanted:
        return queryset, False
    found = {
        pk
        for name in names
        for pk in queryset.order_by().filter(**{name: wanted}).values_list("pk", flat=True)[:FOUND_CAP]
    }
    return queryset.filter(pk__in=found), False


class CappedPaginator(Paginator):
    """Counts at most COUNT_CAP rows, so that the first page costs the same with ten thousand rows and a million."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return rows.order_by()[: COUNT_CAP + 1].count() if isinstance(rows, QuerySet) else len(rows)

    @property
    def is_capped(self) -> bool:
        return self.count > COUNT_CAP

    @property
    def cap(self) -> str:
        return f"{COUNT_CAP:,}"
