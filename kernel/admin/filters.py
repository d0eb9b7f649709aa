"""List filters that cannot leak: a foreign key in `list_filter` would list every merchant to everybody."""

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
