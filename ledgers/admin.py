"""The books, to be read: stock with its entries, the journal with its lines."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin as django_admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from kernel import admin, money
from kernel.admin import Again, Button, ButtonForm, QuitsAdmin, YuanField, reveal
from kernel.admin.columns import badge
from kernel.idempotency import BusinessKey
from ledgers.commands.top_up_wallet import top_up_wallet
from ledgers.commands.withdraw_commission import withdraw_commission
from ledgers.models import (
    Commission,
    CommissionAccount,
    CommissionEntry,
    CommissionHold,
    CommissionShare,
    JournalEntry,
    JournalLine,
    PointsAccount,
    PointsEarned,
    PointsEntry,
    PointsSpent,
    SalesDay,
    SalesEntry,
    StockEntry,
    StockItem,
    WalletAccount,
    WalletCharge,
    WalletEntry,
)
from merchants import scoping
from merchants.models import Merchant
from merchants.roles import FINANCE, MONEY_READERS, READERS

BOOKS = gettext_lazy("Books")
OPENED = gettext_lazy("Opened")
USER = admin.personal("user_id", gettext_lazy("User"))
BENEFICIARY = admin.personal("beneficiary", gettext_lazy("Beneficiary"))
reveal.declare(PointsAccount, "user_id")
reveal.declare(WalletAccount, "user_id")
reveal.declare(CommissionAccount, "beneficiary")

scoping.register(StockItem, view=READERS)
scoping.register(StockEntry, view=READERS)
scoping.register(JournalEntry, view=MONEY_READERS)
scoping.register(PointsAccount, view=READERS)
scoping.register(WalletAccount, view=MONEY_READERS, actions={"top_up": FINANCE})
scoping.register(CommissionAccount, view=MONEY_READERS, actions={"pay_out": FINANCE})
scoping.register(SalesDay, view=MONEY_READERS)
for part in (
    JournalLine,
    PointsEntry,
    PointsSpent,
    PointsEarned,
    WalletEntry,
    WalletCharge,
    Commission,
    CommissionHold,
    CommissionShare,
    CommissionEntry,
    SalesEntry,
):
    scoping.register(part)

for place, (name, label, model, icon) in enumerate(
    [
        ("ledgers.stock", gettext_lazy("Stock"), StockItem, "inventory_2"),
        ("ledgers.stock_entries", gettext_lazy("Stock movements"), StockEntry, "swap_horiz"),
        ("ledgers.journal", gettext_lazy("Journal"), JournalEntry, "menu_book"),
        ("ledgers.points", gettext_lazy("Points"), PointsAccount, "stars"),
        ("ledgers.wallets", gettext_lazy("Wallets"), WalletAccount, "wallet"),
        ("ledgers.commission", gettext_lazy("Commission"), CommissionAccount, "handshake"),
        ("ledgers.sales", gettext_lazy("Sales by day"), SalesDay, "monitoring"),
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
    list_hint = gettext_lazy("Pieces by bucket: for sale, reserved by orders, defective.")
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
    list_hint = gettext_lazy("Every movement of stock, newest first. Entries are never edited.")
    list_filter = ["kind", "bucket", admin.MerchantFilter]
    list_select_related = ["item"]
    search_fields = ["reference"]
    search_help_text = gettext_lazy("A whole order or after-sales number, or a SKU.")
    ordering = ["-id"]
    fields = ["created_at", "sku", "kind", "bucket", "change", "balance_after", "reference", "business_key"]
    readonly_fields = fields

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        return admin.exactly(queryset, search_term, "reference", "item__sku")

    @django_admin.display(description=gettext_lazy("SKU"))
    def sku(self, entry: StockEntry) -> str:
        return entry.item.sku

    @django_admin.display(description=pgettext_lazy("of a balance", "Change"))
    def change(self, entry: StockEntry) -> SafeString:
        return badge(f"{entry.delta:+d}", "success" if entry.delta > 0 else "warning")


ACCOUNTS: dict[str, Any] = {
    "sales": gettext_lazy("Sales"),
    "refunds": gettext_lazy("Refunds"),
    "unclaimed": gettext_lazy("Second charges, not claimed yet"),
    "channel_clearing:wechat": gettext_lazy("WeChat Pay owes us"),
    "channel_clearing:alipay": gettext_lazy("Alipay owes us"),
    "channel_clearing:balance": gettext_lazy("Balances of users"),
    "channel_clearing:offline": gettext_lazy("Paid offline"),
    "wallet_funding": gettext_lazy("Money for top-ups"),
}


def account_name(account: str) -> str:
    """An account of the journal in words, if it has any."""
    return str(ACCOUNTS.get(account, account))


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
    list_hint = gettext_lazy("Every fen that moved, on both sides. Entries are never edited.")
    list_filter = ["kind", admin.MerchantFilter]
    search_fields = ["reference"]
    search_help_text = gettext_lazy("A whole order, payment or refund number.")
    ordering = ["-created_at", "-id"]
    fields = ["posted_at", "kind", "reference", "order_no", "sides", "business_key", "created_at"]
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[JournalEntry]:
        return super().get_queryset(request).prefetch_related("lines")

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        return admin.exactly(queryset, search_term, "reference", "order_no")

    @django_admin.display(description=gettext_lazy("Debit and credit"))
    def sides(self, entry: JournalEntry) -> str:
        lines = sorted(entry.lines.all(), key=lambda line: -line.amount_fen)
        return " · ".join(f"{account_name(line.account)} {money.display(line.amount_fen)}" for line in lines)


MOST = 200
"""Entries on one page, newest first."""


@admin.register(PointsAccount)
class PointsAdmin(QuitsAdmin):
    """A user's points with every movement."""

    list_display = ["balance", admin.when("created_at", OPENED)]
    list_display_links = ["balance"]
    list_hint = gettext_lazy("The points of each user, with every movement behind them.")
    list_filter = [admin.MerchantFilter]
    search_fields = ["user_id"]
    search_help_text = gettext_lazy("A whole user id.")
    ordering = ["-created_at", "-id"]
    change_form_template = "ledgers/account.html"

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return []

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        term = search_term.strip()
        return (queryset.filter(user_id=term) if term else queryset), False

    def get_list_display(self, request: HttpRequest) -> Any:
        return [*super().get_list_display(request), self._reader(request, USER)]

    def page_context(self, request: HttpRequest, obj: PointsAccount) -> dict[str, Any]:
        return {
            "who": self.masked(request, obj, "user_id"),
            "figures": [(_("Balance"), obj.balance)],
            "entries": [
                {"row": row, "change": f"{row.delta:+d}", "balance": row.balance_after, "bucket": ""}
                for row in PointsEntry.objects.filter(account=obj).order_by("-id")[:MOST]
            ],
        }


class TopUpForm(ButtonForm):
    personal = frozenset({"user_id"})

    merchant = forms.ModelChoiceField(label=gettext_lazy("Merchant"), queryset=Merchant.objects.none())
    user_id = forms.CharField(label=gettext_lazy("User"), max_length=64)
    amount_fen = YuanField(label=gettext_lazy("Amount (yuan)"), least_fen=1)
    reference = forms.CharField(
        label=gettext_lazy("Reference"),
        max_length=64,
        help_text=gettext_lazy("Where the money came from, say the bank's transfer number. It tops up once."),
    )
    note = forms.CharField(label=gettext_lazy("Note"), max_length=200, required=False)

    def prepare(self) -> None:
        self.fields["merchant"].queryset = Merchant.objects.order_by("code")  # type: ignore[attr-defined]


@admin.register(WalletAccount)
class WalletAdmin(QuitsAdmin):
    """A user's money: what it was topped up with, what it paid, what came back."""

    list_display = [
        admin.money("balance_fen", gettext_lazy("Balance")),
        admin.when("created_at", OPENED),
    ]
    list_hint = gettext_lazy("The money of each user at the shop, with every top-up, payment and refund behind it.")
    list_filter = [admin.MerchantFilter]
    search_fields = ["user_id"]
    search_help_text = gettext_lazy("A whole user id.")
    ordering = ["-created_at", "-id"]
    change_form_template = "ledgers/account.html"
    list_buttons = [
        Button(
            "top_up",
            gettext_lazy("Top up a wallet"),
            form=TopUpForm,
            icon="add_card",
            variant="primary",
            confirm=gettext_lazy("Money is added to a user's wallet and booked. Nothing takes it back by itself."),
        ),
    ]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return []

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        term = search_term.strip()
        return (queryset.filter(user_id=term) if term else queryset), False

    def get_list_display(self, request: HttpRequest) -> Any:
        return [*super().get_list_display(request), self._reader(request, USER)]

    def page_context(self, request: HttpRequest, obj: WalletAccount) -> dict[str, Any]:
        return {
            "who": self.masked(request, obj, "user_id"),
            "figures": [(_("Balance"), money.display(obj.balance_fen))],
            "entries": [
                {
                    "row": row,
                    "change": money.display(row.delta_fen),
                    "balance": money.display(row.balance_after_fen),
                    "bucket": row.note or row.charge_no,
                }
                for row in WalletEntry.objects.filter(account=obj).order_by("-id")[:MOST]
            ],
        }

    def do_top_up(
        self, request: HttpRequest, obj: None, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        done = top_up_wallet(
            merchant_id=data["merchant"].pk,
            user_id=data["user_id"],
            amount_fen=data["amount_fen"],
            reference=data["reference"],
            note=data["note"],
            person=request.user.get_username(),
            now=now,
        )
        if done.replayed:
            return Again(_("This reference had topped the wallet up before. Nothing was added."))
        return _("%(amount)s added; the wallet holds %(balance)s.") % {
            "amount": money.display(done.amount_fen),
            "balance": money.display(done.balance_fen),
        }


class PayOutForm(ButtonForm):
    amount_fen = YuanField(label=gettext_lazy("Amount (yuan)"), least_fen=1)
    reference = forms.CharField(
        label=gettext_lazy("Reference"),
        max_length=64,
        help_text=gettext_lazy("The number of the transfer to the beneficiary. It pays out once."),
    )

    def prepare(self) -> None:
        if isinstance(self.obj, CommissionAccount):
            self.fields["amount_fen"].initial = self.obj.withdrawable_fen


def _what_is_paid_out(account: CommissionAccount) -> str:
    return _("%(amount)s can be paid out. Record here what was transferred; nothing takes it back by itself.") % {
        "amount": money.display(account.withdrawable_fen)
    }


@admin.register(CommissionAccount)
class CommissionAdmin(QuitsAdmin):
    """What a beneficiary has, by bucket. Below zero is a debt that later commissions offset."""

    list_display = [
        admin.money("pending_fen", gettext_lazy("Pending")),
        admin.money("withdrawable_fen", gettext_lazy("Withdrawable")),
        admin.money("frozen_fen", gettext_lazy("Frozen")),
        admin.money("withdrawn_fen", gettext_lazy("Withdrawn")),
    ]
    list_hint = gettext_lazy("What each beneficiary has. Below zero is a debt that later commissions offset.")
    list_filter = [admin.MerchantFilter]
    search_fields = ["beneficiary"]
    search_help_text = gettext_lazy("A whole beneficiary id.")
    ordering = ["-created_at", "-id"]
    change_form_template = "ledgers/account.html"
    buttons = [
        Button(
            "pay_out",
            gettext_lazy("Pay out"),
            form=PayOutForm,
            icon="payments",
            variant="primary",
            confirm=_what_is_paid_out,
            allowed=lambda account: account.withdrawable_fen > 0,
        ),
    ]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return []

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        term = search_term.strip()
        return (queryset.filter(beneficiary=term) if term else queryset), False

    def get_list_display(self, request: HttpRequest) -> Any:
        return [*super().get_list_display(request), self._reader(request, BENEFICIARY)]

    def page_context(self, request: HttpRequest, obj: CommissionAccount) -> dict[str, Any]:
        return {
            "who": self.masked(request, obj, "beneficiary"),
            "figures": [
                (_("Pending"), money.display(obj.pending_fen)),
                (_("Withdrawable"), money.display(obj.withdrawable_fen)),
                (_("Frozen"), money.display(obj.frozen_fen)),
                (_("Withdrawn"), money.display(obj.withdrawn_fen)),
            ],
            "entries": [
                {
                    "row": row,
                    "change": money.display(row.delta_fen),
                    "balance": money.display(row.balance_after_fen),
                    "bucket": row.get_bucket_display(),
                }
                for row in CommissionEntry.objects.filter(account=obj).order_by("-id")[:MOST]
            ],
        }

    def do_pay_out(
        self, request: HttpRequest, obj: CommissionAccount, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        done = withdraw_commission(
            merchant_id=obj.merchant_id,
            beneficiary=obj.beneficiary,
            amount_fen=data["amount_fen"],
            business_key=f"payout:{data['reference']}",
            reference=data["reference"],
            now=now,
        )
        if done.replayed:
            return Again(_("This reference had been paid out before. Nothing was written."))
        return _("%(amount)s paid out; %(left)s can still be paid out.") % {
            "amount": money.display(done.amount_fen),
            "left": money.display(done.withdrawable_fen),
        }


@admin.register(SalesDay)
class SalesAdmin(QuitsAdmin):
    """What was sold and what came back, by day and SKU."""

    list_display = [
        "on_date",
        "sku",
        "sold_qty",
        admin.money("sold_fen", gettext_lazy("Sales")),
        "returned_qty",
        admin.money("returned_fen", gettext_lazy("Refunds")),
    ]
    list_hint = gettext_lazy("What was sold and what came back, by day and SKU.")
    list_filter = [admin.MerchantFilter]
    search_fields = ["sku"]
    search_help_text = gettext_lazy("A whole SKU.")
    ordering = ["-on_date", "sku", "id"]
    fields = list_display
    readonly_fields = fields

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        term = search_term.strip()
        return (queryset.filter(sku=term) if term else queryset), False
