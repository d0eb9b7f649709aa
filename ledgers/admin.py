"""The books, to be read: stock with its entries, the journal with its lines."""

from __future__ import annotations

from typing import Any

from django.contrib import admin as django_admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from kernel import admin, money
from kernel.admin import QuitsAdmin
from kernel.admin.columns import badge
from ledgers.models import JournalEntry, JournalLine, StockEntry, StockItem
from merchants import scoping
from merchants.roles import MONEY_READERS, READERS

BOOKS = gettext_lazy("Books")

scoping.register(StockItem, view=READERS)
scoping.register(StockEntry, view=READERS)
scoping.register(JournalEntry, view=MONEY_READERS)
scoping.register(JournalLine)

for place, (name, label, model, icon) in enumerate(
    [
        ("ledgers.stock", gettext_lazy("Stock"), StockItem, "inventory_2"),
        ("ledgers.stock_entries", gettext_lazy("Stock movements"), StockEntry, "swap_horiz"),
        ("ledgers.journal", gettext_lazy("Journal"), JournalEntry, "menu_book"),
    ]
):
    admin.register_navigation(
        name,
        group=BOOKS,
        label=label,
        url=f"admin:ledgers_{model._meta.model_name}_changelist",
        page=model,
        icon=icon,
        order=500 + 10 * place,
    )


@admin.register(StockItem)
class StockAdmin(QuitsAdmin):
    """Pieces by bucket."""

    list_display = ["sku", "title", "sellable", "reserved", "defect"]
    list_filter = [admin.MerchantFilter]
    search_fields = ["sku", "title"]
    ordering = ["sku", "id"]
    fields = ["sku", "title", "sellable", "reserved", "defect", "created_at"]
    readonly_fields = fields


@admin.register(StockEntry)
class StockEntryAdmin(QuitsAdmin):
    """Every movement of stock, newest first."""

    list_display = [
        admin.when("created_at", gettext_lazy("Time")),
        "sku",
        "kind",
        "bucket",
        "change",
        "balance_after",
        "reference",
    ]
    list_filter = ["kind", "bucket", admin.MerchantFilter]
    list_select_related = ["item"]
    search_fields = ["reference"]
    search_help_text = gettext_lazy("A whole order or after-sales number, or a SKU.")
    ordering = ["-id"]
    fields = ["created_at", "sku", "kind", "bucket", "change", "balance_after", "reference", "business_key"]
    readonly_fields = fields

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        term = search_term.strip()
        return (queryset.filter(Q(reference=term) | Q(item__sku=term)) if term else queryset), False

    @django_admin.display(description=gettext_lazy("SKU"))
    def sku(self, entry: StockEntry) -> str:
        return entry.item.sku

    @django_admin.display(description=gettext_lazy("Change"))
    def change(self, entry: StockEntry) -> SafeString:
        return badge(f"{entry.delta:+d}", "success" if entry.delta > 0 else "warning")


@admin.register(JournalEntry)
class JournalAdmin(QuitsAdmin):
    """Every fen that moved, on both sides."""

    list_display = [
        admin.when("posted_at", gettext_lazy("Posted")),
        "kind",
        "reference",
        "order_no",
        "sides",
    ]
    list_filter = ["kind", admin.MerchantFilter]
    search_fields = ["reference"]
    search_help_text = gettext_lazy("A whole order, payment or refund number.")
    ordering = ["-created_at", "-id"]
    fields = ["posted_at", "kind", "reference", "order_no", "sides", "business_key", "created_at"]
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[JournalEntry]:
        return super().get_queryset(request).prefetch_related("lines")

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        term = search_term.strip()
        return (queryset.filter(Q(reference=term) | Q(order_no=term)) if term else queryset), False

    @django_admin.display(description=gettext_lazy("Debit and credit"))
    def sides(self, entry: JournalEntry) -> str:
        lines = sorted(entry.lines.all(), key=lambda line: -line.amount_fen)
        return " · ".join(f"{line.account} {money.display(line.amount_fen)}" for line in lines)
