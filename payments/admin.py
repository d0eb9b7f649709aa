"""Payments, refunds with everything the channel said, the notify archive, channel accounts, bills."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin as django_admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kernel import admin, money
from kernel.admin import Button, ButtonForm, Hit, QuitsAdmin, Scope, reveal
from kernel.idempotency import BusinessKey
from merchants import scoping
from merchants.models import Merchant
from merchants.roles import AUDITOR, CUSTOMER_SERVICE, FINANCE, MONEY_READERS, OPERATIONS, OWNER, PLATFORM
from payments import pages
from payments.commands.apply_abnormal_refund import apply_abnormal_refund
from payments.commands.approve_offline_refund import approve_offline_refund
from payments.commands.enter_voucher import enter_voucher
from payments.commands.probe_account import probe_account
from payments.commands.query_refund import query_refund
from payments.commands.refund_to_balance import refund_to_balance
from payments.commands.retry_refund import retry_refund
from payments.commands.save_account import save_account
from payments.gateway import AbnormalRefundTo
from payments.legends import BILL_TONES, BILLS, NOTIFIES, PAYMENTS, REFUNDS
from payments.models import (
    BillLine,
    ChannelAccount,
    ChannelBill,
    ChannelNotify,
    Payment,
    RefundAttempt,
    RefundFact,
    RefundRequest,
)
from payments.words import CHANNELS

MONEY = gettext_lazy("Money")
BY_CHANNEL = admin.one_of("channel", gettext_lazy("Channel"), lambda: ChannelAccount.Channel.choices)
VIEWERS = MONEY_READERS | CUSTOMER_SERVICE

scoping.register(Payment, view=VIEWERS)
scoping.register(
    RefundRequest,
    view=VIEWERS,
    actions={
        "ask": VIEWERS - AUDITOR,
        "retry": FINANCE | OPERATIONS,
        "send_on": FINANCE,
        "to_balance": FINANCE,
        "voucher": FINANCE,
        "approve": FINANCE,
    },
)
scoping.register(ChannelNotify, view=VIEWERS)
reveal.declare(ChannelNotify, "body", pages.body_of)
scoping.register(ChannelBill, view=MONEY_READERS)
scoping.register(
    ChannelAccount,
    view=PLATFORM | AUDITOR | OWNER,
    actions={"create": PLATFORM, "change": PLATFORM, "test": PLATFORM | OWNER},
)
for part in (RefundAttempt, RefundFact, BillLine):
    scoping.register(part)

for place, (name, label, model, icon) in enumerate(
    [
        ("payments.payments", gettext_lazy("Payments"), Payment, "payments"),
        ("payments.refunds", gettext_lazy("Refunds"), RefundRequest, "currency_exchange"),
        ("payments.notifies", gettext_lazy("Notify archive"), ChannelNotify, "archive"),
        ("payments.bills", gettext_lazy("Channel bills"), ChannelBill, "receipt_long"),
        ("payments.accounts", gettext_lazy("Channel accounts"), ChannelAccount, "account_balance"),
    ]
):
    admin.register_navigation(
        name,
        group=MONEY,
        label=label,
        url=f"admin:payments_{model._meta.model_name}_changelist",
        page=model,
        icon=icon,
        order=400 + 10 * place,
    )

admin.register_waiting(
    "payments.failed_refunds",
    gettext_lazy("Refunds that need a person"),
    query=lambda scope: admin.capped(scope.of(RefundRequest).filter(status="FAILED")),
    url="admin:payments_refundrequest_changelist",
    params={"status__exact": "FAILED"},
    page=RefundRequest,
    action="voucher",
    icon="currency_exchange",
    hint=gettext_lazy("Closed, refused or parked by the channel, or past its limits."),
    order=30,
)


def _find_payment(scope: Scope, term: str) -> Iterable[Hit]:
    found, _more = admin.exactly(scope.of(Payment), term, "out_trade_no", "trade_no")
    for row in found[:5]:
        yield Hit(
            row.out_trade_no,
            f"{_('Payment')} {money.display(row.amount_fen)}",
            reverse("admin:payments_payment_change", args=[row.pk]),
        )


def _requests_of(term: str) -> list[UUID]:
    """The requests that a refund number belongs to: one of those the channel was sent, or the number of a refund that
    went another way, which is its owner's with an ending. Whose they are is the caller's to ask."""
    number = term.strip()
    sent = RefundAttempt.objects.filter(number=number).values_list("request_id", flat=True)
    owner_no = number.rpartition("-")[0]
    other = RefundRequest.objects.filter(owner_no=owner_no, refund_no=number).values_list("pk", flat=True)
    return list(sent[:20]) or (list(other[:20]) if owner_no else [])


def _find_refund(scope: Scope, term: str) -> Iterable[Hit]:
    for refund in scope.of(RefundRequest).filter(pk__in=_requests_of(term))[:5]:
        yield Hit(
            term,
            f"{_('Refund')} {money.display(refund.amount_fen)}",
            reverse("admin:payments_refundrequest_change", args=[refund.pk]),
        )


admin.register_search("payments.payment", _find_payment, page=Payment)
admin.register_search("payments.refund", _find_refund, page=RefundRequest)


@django_admin.display(description=gettext_lazy("Channel"))
def channel(row: Any) -> Any:
    """The channel of a payment, a callback or a bill by its name."""
    return CHANNELS.get(row.channel, row.channel)


@admin.register(Payment)
class PaymentAdmin(QuitsAdmin):
    """What was asked for at a channel, what came, what went back."""

    list_display = [
        "out_trade_no",
        "order_no",
        channel,
        admin.money("amount_fen", gettext_lazy("Amount")),
        admin.status("status", gettext_lazy("Status"), pages.PAYMENT_TONES),
        admin.money("refunded_fen", gettext_lazy("Refunded")),
        admin.when("paid_at", gettext_lazy("Paid")),
    ]
    list_hint = gettext_lazy("What was asked for at the channels, what came, and what went back of it.")
    legends = PAYMENTS
    list_filter = ["status", BY_CHANNEL, "kind", admin.MerchantFilter]
    search_fields = ["out_trade_no"]
    search_help_text = gettext_lazy("A whole order, payment or trade number.")
    ordering = ["-created_at", "-id"]
    change_form_template = "payments/payment.html"

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return []

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        return admin.exactly(queryset, search_term, "out_trade_no", "order_no", "trade_no")

    def page_context(self, request: HttpRequest, obj: Payment) -> dict[str, Any]:
        return pages.payment_context(obj)


class SendOnForm(ButtonForm):
    personal = frozenset({"bank_account", "real_name"})

    to = forms.ChoiceField(
        label=gettext_lazy("To"),
        choices=[
            (AbnormalRefundTo.MERCHANT_BANK_CARD.value, gettext_lazy("The merchant's account at the channel")),
            (AbnormalRefundTo.USER_BANK_CARD.value, gettext_lazy("A bank card of the buyer")),
        ],
    )
    bank_type = forms.CharField(label=gettext_lazy("Bank"), max_length=32, required=False)
    bank_account = forms.CharField(label=gettext_lazy("Card number"), max_length=64, required=False)
    real_name = forms.CharField(label=gettext_lazy("Name of the holder"), max_length=64, required=False)

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        card = [data.get("bank_type"), data.get("bank_account"), data.get("real_name")]
        if data.get("to") == AbnormalRefundTo.USER_BANK_CARD and not all(card):
            raise forms.ValidationError(_("Bank, card number and name are needed for a card."))
        return data


class VoucherForm(ButtonForm):
    voucher = forms.CharField(
        label=gettext_lazy("Voucher"),
        max_length=128,
        help_text=gettext_lazy("How the money is paid: bank, transfer number, date."),
    )


def is_under_way(refund: RefundRequest) -> bool:
    return refund.status in ("PENDING", "FAILED") and refund.route == "channel"


def may_be_retried(refund: RefundRequest) -> bool:
    """An after-sales refund is tried again on the page of its claim, which moves with it."""
    return (
        refund.status == "FAILED"
        and refund.route == "channel"
        and refund.owner_kind == RefundRequest.OwnerKind.ORDER_PAYMENT
        and refund.failure_code != "CHANNEL_ABNORMAL"
    )


def is_parked(refund: RefundRequest) -> bool:
    return refund.status == "FAILED" and refund.failure_code == "CHANNEL_ABNORMAL"


def may_go_offline(refund: RefundRequest) -> bool:
    return refund.status == "FAILED" and refund.failure_code != "CHANNEL_ABNORMAL"


def may_go_to_balance(refund: RefundRequest) -> bool:
    return may_go_offline(refund) and not refund.voucher


def waits_for_second_person(refund: RefundRequest) -> bool:
    return refund.status == "FAILED" and bool(refund.voucher)


def offline_question(refund: RefundRequest) -> str:
    return _(
        "%(amount)s leave outside the channel by %(voucher)s, entered by %(person)s. You confirm it as another person."
    ) % {
        "amount": money.display(refund.amount_fen),
        "voucher": refund.voucher,
        "person": refund.voucher_by,
    }


@admin.register(RefundRequest)
class RefundAdmin(QuitsAdmin):
    """Money on its way back: one request, its numbers, everything the channel said."""

    list_display = [
        "owner_no",
        "order_no",
        admin.money("amount_fen", gettext_lazy("Amount")),
        admin.status("status", gettext_lazy("Status"), pages.REQUEST_TONES),
        "route",
        "attempts",
        admin.when("created_at", gettext_lazy("Requested")),
        admin.when("succeeded_at", gettext_lazy("Refunded")),
    ]
    list_filter = ["status", "route", "owner_kind", admin.MerchantFilter]
    list_hint = gettext_lazy("Money on its way back to buyers, with every number and everything the channel said.")
    legends = REFUNDS
    search_fields = ["owner_no"]
    search_help_text = gettext_lazy("A whole after-sales, order or refund number.")
    ordering = ["-created_at", "-id"]
    change_form_template = "payments/refund.html"
    audit_fields = ["status", "version", "route", "voucher", "voucher_by", "approved_by"]
    buttons = [
        Button(
            "ask",
            gettext_lazy("Ask the channel now"),
            icon="sync",
            confirm=gettext_lazy("One question. Nothing is sent and no money moves by it."),
            allowed=is_under_way,
        ),
        Button(
            "retry",
            gettext_lazy("Try again"),
            icon="replay",
            variant="primary",
            confirm=lambda refund: (
                _("%(amount)s are sent to the channel again, under the number its rules allow.")
                % {"amount": money.display(refund.amount_fen)}
            ),
            allowed=may_be_retried,
        ),
        Button(
            "send_on",
            gettext_lazy("Send the parked money on"),
            form=SendOnForm,
            icon="forward",
            variant="primary",
            confirm=gettext_lazy(
                "The channel parked this refund. It is finished under its own number, never a new one."
            ),
            allowed=is_parked,
        ),
        Button(
            "to_balance",
            gettext_lazy("Refund to the balance"),
            icon="wallet",
            confirm=lambda refund: (
                _("%(amount)s go to the buyer's balance at once. The channel must not be able to pay them any more.")
                % {"amount": money.display(refund.amount_fen)}
            ),
            allowed=may_go_to_balance,
        ),
        Button(
            "voucher",
            gettext_lazy("Refund offline"),
            form=VoucherForm,
            icon="receipt",
            confirm=lambda refund: (
                _("%(amount)s are paid outside the channel. Another person has to approve it.")
                % {"amount": money.display(refund.amount_fen)}
            ),
            allowed=may_go_offline,
        ),
        Button(
            "approve",
            gettext_lazy("Approve the offline refund"),
            icon="how_to_reg",
            variant="danger",
            confirm=offline_question,
            allowed=waits_for_second_person,
        ),
    ]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return []

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        numbered = _requests_of(search_term)
        if numbered:
            return queryset.filter(pk__in=numbered), False
        return admin.exactly(queryset, search_term, "owner_no", "order_no")

    def page_context(self, request: HttpRequest, obj: RefundRequest) -> dict[str, Any]:
        return pages.refund_context(obj)

    def do_ask(
        self, request: HttpRequest, obj: RefundRequest, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        newest = RefundAttempt.objects.filter(request=obj).order_by("-seq").first()
        if newest is None:
            return _("Nothing was sent to the channel yet.")
        asked = query_refund(attempt_id=newest.id, forced=True, now=now)
        if asked.result == "unknown":
            return _("The channel gave no usable answer. It is asked again by itself.")
        if asked.result == "not_due":
            return _("There is nothing to ask: the refund was not sent yet.")
        return _("The channel says: %(state)s.") % {"state": RefundAttempt.Status(asked.status).label}

    def do_retry(
        self, request: HttpRequest, obj: RefundRequest, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        retried = retry_refund(merchant_id=obj.merchant_id, refund_request_id=obj.pk, now=now)
        return _("Refund %(number)s is on its way.") % {"number": retried.refund_no}

    def do_send_on(
        self, request: HttpRequest, obj: RefundRequest, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        applied = apply_abnormal_refund(
            merchant_id=obj.merchant_id,
            refund_request_id=obj.pk,
            to=data["to"],
            bank_type=data["bank_type"],
            bank_account=data["bank_account"],
            real_name=data["real_name"],
            person=request.user.get_username(),
            now=now,
        )
        return _("Refund %(number)s: %(status)s.") % {
            "number": applied.refund_no,
            "status": RefundAttempt.Status(applied.status).label,
        }

    def do_to_balance(
        self, request: HttpRequest, obj: RefundRequest, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        done = refund_to_balance(merchant_id=obj.merchant_id, refund_request_id=obj.pk, now=now)
        return _("%(amount)s refunded to the balance.") % {"amount": money.display(done.amount_fen)}

    def do_voucher(
        self, request: HttpRequest, obj: RefundRequest, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        enter_voucher(
            merchant_id=obj.merchant_id,
            refund_request_id=obj.pk,
            voucher=data["voucher"],
            person=request.user.get_username(),
            now=now,
        )
        return _("Entered. Another person has to approve it.")

    def do_approve(
        self, request: HttpRequest, obj: RefundRequest, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        done = approve_offline_refund(
            merchant_id=obj.merchant_id, refund_request_id=obj.pk, person=request.user.get_username(), now=now
        )
        return _("%(amount)s refunded offline.") % {"amount": money.display(done.amount_fen)}


@admin.register(ChannelNotify)
class NotifyAdmin(QuitsAdmin):
    """Every callback as it came, believed or not."""

    list_display = [
        admin.when("received_at", gettext_lazy("Received")),
        channel,
        "event_type",
        admin.status("verdict", gettext_lazy("Verdict"), pages.VERDICT_TONES),
        "out_trade_no",
        "refund_no",
        "address",
    ]
    list_filter = ["verdict", BY_CHANNEL, "kind", admin.MerchantFilter]
    list_hint = gettext_lazy(
        "What was not believed is kept as evidence: the first 4 KiB, at most 30 a minute per address."
    )
    legends = NOTIFIES
    search_fields = ["out_trade_no"]
    search_help_text = gettext_lazy("A whole payment, trade, refund or notify number, or the address of refused ones.")
    ordering = ["-received_at", "-id"]
    change_form_template = "payments/notify.html"

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return []

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        columns = ("out_trade_no", "trade_no", "refund_no", "notify_no")
        found, _more = admin.exactly(queryset, search_term, *columns)
        term = search_term.strip()
        if term and not found.exists():
            found, _more = admin.exactly(queryset.exclude(verdict=ChannelNotify.Verdict.VERIFIED), term, "address")
        if term and not found.exists():
            numbers = Payment.objects.filter(order_no=term).values_list("out_trade_no", flat=True)
            return queryset.filter(out_trade_no__in=list(numbers[:20])), False
        return found, False

    def name_of(self, request: HttpRequest, obj: ChannelNotify) -> str:
        return f"{CHANNELS.get(obj.channel, obj.channel)} · {obj.get_kind_display()}"

    def page_context(self, request: HttpRequest, obj: ChannelNotify) -> dict[str, Any]:
        return pages.notify_context(obj, how=self.admin_site.policy.personal_of(request.user))


@admin.register(ChannelBill)
class BillAdmin(QuitsAdmin):
    """The channels' own books, day by day."""

    list_display = [
        "bill_on",
        channel,
        "kind",
        admin.status(
            "state",
            gettext_lazy("State"),
            BILL_TONES,
        ),
        "row_count",
        admin.money("amount_fen", gettext_lazy("Σ amounts")),
        admin.when("downloaded_at", gettext_lazy("Downloaded")),
    ]
    list_hint = gettext_lazy("The channels' own books, one a day, account and kind; the daily run reads them.")
    legends = BILLS
    list_filter = ["state", BY_CHANNEL, "kind", admin.MerchantFilter]
    ordering = ["-bill_on", "channel", "kind", "id"]
    fields = [
        "bill_on",
        channel,
        "kind",
        "state",
        "sha1",
        "raw_size",
        "row_count",
        admin.money("amount_fen", gettext_lazy("Σ amounts")),
        "tries",
        "last_error",
        "next_try_at",
        "downloaded_at",
    ]
    readonly_fields = fields

    def name_of(self, request: HttpRequest, obj: ChannelBill) -> str:
        return f"{CHANNELS.get(obj.channel, obj.channel)} · {obj.get_kind_display()} · {obj.bill_on}"

    def get_queryset(self, request: HttpRequest) -> QuerySet[ChannelBill]:
        return super().get_queryset(request).defer("raw")


class AccountForm(ButtonForm):
    """Settings in plain JSON, secrets that are only ever written."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=64, required=False)
    app_id = forms.CharField(
        label=gettext_lazy("App id"), max_length=64, required=False, help_text=gettext_lazy("Not for balance.")
    )
    settings = forms.JSONField(label=gettext_lazy("Settings"), widget=forms.Textarea, initial=dict, required=False)
    secret_values = forms.JSONField(
        label=gettext_lazy("Secrets"),
        widget=forms.Textarea,
        required=False,
        help_text=gettext_lazy(
            "JSON, say private_key and api_v3_key. Encrypted at once, never shown again; what is not named stays."
        ),
    )
    is_active = forms.BooleanField(label=gettext_lazy("Active"), required=False, initial=True)

    def clean_settings(self) -> dict[str, Any]:
        return self._object("settings")

    def clean_secret_values(self) -> dict[str, Any]:
        return self._object("secret_values")

    def _object(self, name: str) -> dict[str, Any]:
        value = self.cleaned_data[name] or {}
        if not isinstance(value, dict):
            raise forms.ValidationError(_("A JSON object is needed."))
        return value


class NewAccountForm(AccountForm):
    merchant = forms.ModelChoiceField(label=gettext_lazy("Merchant"), queryset=Merchant.objects.none())
    channel = forms.ChoiceField(label=gettext_lazy("Channel"), choices=ChannelAccount.Channel.choices)
    mchid = forms.CharField(
        label=gettext_lazy("Merchant number at the channel"),
        max_length=32,
        required=False,
        help_text=gettext_lazy("Not for balance."),
    )

    field_order = ["merchant", "channel", "mchid"]

    def prepare(self) -> None:
        self.fields["merchant"].queryset = Merchant.objects.order_by("code")  # type: ignore[attr-defined]


def _one_line(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@admin.register(ChannelAccount)
class AccountAdmin(QuitsAdmin):
    """Merchants' accounts at the channels. Keys go in and never come out."""

    stays_short = True
    list_display = [
        "__str__",
        "channel",
        "mchid",
        "app_id",
        admin.yes_no("is_active", gettext_lazy("Active")),
        "test_result",
        admin.when("tested_at", gettext_lazy("Tested")),
    ]
    list_filter = ["channel", "is_active", admin.MerchantFilter]
    list_hint = gettext_lazy("The merchants' accounts at the channels. Keys go in and never come out.")
    ordering = ["-created_at", "-id"]
    fields = [
        "merchant",
        "channel",
        "name",
        "mchid",
        "app_id",
        "is_active",
        "has_secrets",
        "plain_settings",
        "test_result",
        "tested_at",
        "changed_at",
    ]
    readonly_fields = fields
    audit_fields = ["version", "is_active", "mchid", "app_id"]
    buttons = [
        Button(
            "test",
            gettext_lazy("Test the connection"),
            icon="network_check",
            variant="primary",
            confirm=gettext_lazy("Asks the channel about a payment that does not exist. No money moves."),
        ),
        Button("change", gettext_lazy("Change"), form=AccountForm, icon="edit"),
    ]
    list_buttons = [
        Button("create", gettext_lazy("New account"), form=NewAccountForm, icon="add", variant="primary"),
    ]

    def name_of(self, request: HttpRequest, obj: ChannelAccount) -> str:
        return f"{obj.get_channel_display()} {obj.mchid}".strip()

    @django_admin.display(description=gettext_lazy("Secrets stored"), boolean=True)
    def has_secrets(self, account: ChannelAccount) -> bool:
        return bool(account.secrets_encrypted)

    @django_admin.display(description=gettext_lazy("Settings"))
    def plain_settings(self, account: ChannelAccount) -> SafeString:
        rows = ((name, _one_line(value)) for name, value in sorted(account.settings.items()))
        return format_html('<dl class="q-settings">{}</dl>', format_html_join("", "<dt>{}</dt><dd>{}</dd>", rows))

    def form_initial(self, request: HttpRequest, obj: ChannelAccount, button: Button) -> dict[str, Any]:
        if button.name != "change":
            return {}
        return {"name": obj.name, "app_id": obj.app_id, "settings": obj.settings, "is_active": obj.is_active}

    def do_test(
        self, request: HttpRequest, obj: ChannelAccount, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        tested = probe_account(merchant_id=obj.merchant_id, account_id=obj.pk, now=now)
        if tested.works:
            return _("The channel answered, and its signature is right.")
        return _("No connection: %(result)s") % {"result": tested.result}

    def do_change(
        self, request: HttpRequest, obj: ChannelAccount, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        save_account(
            merchant_id=obj.merchant_id,
            channel=obj.channel,
            mchid=obj.mchid,
            app_id=data["app_id"],
            name=data["name"],
            settings=data["settings"],
            secret_values=data["secret_values"] or None,
            is_active=data["is_active"],
            now=now,
        )
        return _("Saved.")

    def do_create(
        self, request: HttpRequest, obj: None, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        save_account(
            merchant_id=data["merchant"].pk,
            channel=data["channel"],
            mchid=data["mchid"],
            app_id=data["app_id"],
            name=data["name"],
            settings=data["settings"],
            secret_values=data["secret_values"],
            is_active=data["is_active"],
            now=now,
        )
        return _("Saved.")
