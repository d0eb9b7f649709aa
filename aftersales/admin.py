"""The after-sales queue and the audit page. Every button calls exactly one command."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib import admin as django_admin
from django.db.models import QuerySet
from django.http import FileResponse, Http404, HttpRequest
from django.urls import URLPattern, path, reverse
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from aftersales import claim_page, forms
from aftersales.actors import By
from aftersales.api.views import image_response
from aftersales.claim_buttons import BUTTONS
from aftersales.claim_page import TABS, TONES, time_left
from aftersales.commands.add_evidence import add_evidence
from aftersales.commands.approve_after_sales import approve_after_sales
from aftersales.commands.confirm_exchange import confirm_exchange
from aftersales.commands.confirm_return import confirm_return
from aftersales.commands.convert_to_refund import convert_to_refund
from aftersales.commands.open_arbitration import open_arbitration
from aftersales.commands.reject_after_sales import reject_after_sales
from aftersales.commands.reject_failed import reject_failed
from aftersales.commands.reject_return import reject_return
from aftersales.commands.retry_after_sales import retry_after_sales
from aftersales.commands.retry_rollback import retry_rollback
from aftersales.commands.settle_offline import settle_offline
from aftersales.commands.ship_replacement import ship_replacement
from aftersales.legends import CLAIMS
from aftersales.models import (
    Actor,
    AfterSalesLog,
    AfterSalesOrder,
    AfterSalesUnit,
    CarrierEvent,
    Evidence,
    Exchange,
    Inspection,
    ReturnShipment,
    Rollback,
    Status,
)
from aftersales.reasons import REASONS, reason_label
from kernel import admin, clock, money
from kernel.admin import QuitsAdmin, reveal
from kernel.admin.columns import badge
from kernel.errors import NotFound
from kernel.idempotency import BusinessKey
from merchants import scoping
from merchants.roles import AUDITOR, CUSTOMER_SERVICE, FINANCE, MERCHANT, OPERATIONS, OWNER, READERS
from payments.words import REASONS as REASON_WORDS

REASON_WORDS.update({code: reason.label for code, reason in REASONS.items()})

scoping.register(
    AfterSalesOrder,
    view=READERS,
    actions={
        "approve": MERCHANT,
        "reject": MERCHANT,
        "confirm_return": MERCHANT,
        "reject_return": MERCHANT,
        "confirm_exchange": MERCHANT,
        "ship_replacement": MERCHANT,
        "convert_to_refund": MERCHANT,
        "open_arbitration": MERCHANT | CUSTOMER_SERVICE,
        "add_evidence": MERCHANT | CUSTOMER_SERVICE | OPERATIONS,
        "retry_refund": FINANCE | OWNER,
        "enter_voucher": FINANCE,
        "approve_voucher": FINANCE,
        "ask_rejection": FINANCE | OPERATIONS,
        "approve_rejection": FINANCE | OPERATIONS,
        "retry_rollback": OPERATIONS | FINANCE | OWNER,
        "export": MERCHANT | FINANCE | AUDITOR,
    },
)
reveal.declare(AfterSalesOrder, "user_id")
scoping.register(AfterSalesUnit)
scoping.register(Rollback)
scoping.register(CarrierEvent)
scoping.register(Evidence)
for part in (AfterSalesLog, ReturnShipment, Inspection, Exchange):
    scoping.register(part, path="after_sales__merchant")


class TabFilter(django_admin.SimpleListFilter):
    """The tab in the address. Drawn by the queue's own template, so it shows nothing in the filter panel."""

    title = gettext_lazy("tab")
    parameter_name = "tab"
    template = "aftersales/tab_filter.html"  # empty: Django applies only filters that are drawn

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(name, label) for name, (label, _rows) in TABS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        tab = TABS.get(self.value() or "")
        return queryset.filter(tab[1]) if tab else queryset


@admin.register(AfterSalesOrder)
class AfterSalesAdmin(QuitsAdmin):
    """The queue, soonest deadline first, and the page on which a claim is decided."""

    list_display = [
        "number",
        "goods",
        "reason",
        "amount",
        "state",
        "deadline",
    ]
    list_filter = [TabFilter, "type", admin.MerchantFilter]
    list_select_related = ["line", "merchant"]
    list_hint = gettext_lazy("What buyers want back. The soonest deadline stands first.")
    empty_hint = admin.QUIET
    legends = CLAIMS
    search_fields = ["after_sales_no__exact", "order_no__exact", "user_id__exact"]
    search_help_text = gettext_lazy("A whole after-sales or order number, or a user.")
    change_form_template = "aftersales/claim.html"
    change_list_template = "aftersales/queue.html"
    bulk = ["approve", "reject"]
    audit_fields = ["status", "version", "liability", "approved_goods_fen", "approved_freight_fen"]
    addresses = {"aftersales_evidence_image": "view"}
    export_columns = [
        (gettext_lazy("No."), "after_sales_no"),
        (gettext_lazy("Order no."), "order_no"),
        (gettext_lazy("Type"), "type"),
        (gettext_lazy("Status"), "status"),
        (gettext_lazy("Reason"), lambda claim: reason_label(claim.reason_code)),
        (gettext_lazy("Applied for (yuan)"), lambda claim: money.fen_to_yuan(claim.applied_total_fen)),
        (
            gettext_lazy("Approved (yuan)"),
            lambda claim: "" if claim.approved_total_fen is None else money.fen_to_yuan(claim.approved_total_fen),
        ),
        (gettext_lazy("Applied"), "created_at"),
        (gettext_lazy("Ended"), "finished_at"),
    ]
    buttons = BUTTONS

    class Media:
        css = {"all": ["aftersales/claim.css"]}

    # The queue.

    def get_ordering(self, request: HttpRequest) -> list[str]:
        tab = request.GET.get("tab", "")
        return ["due_at", "id"] if tab in TABS and tab != "done" else ["-created_at", "-id"]

    def get_list_display(self, request: HttpRequest) -> Any:
        return [
            *super().get_list_display(request),
            self.row_buttons(
                request, "approve", "confirm_return", "confirm_exchange", "ship_replacement", "retry_refund"
            ),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        rows = self.get_queryset(request)
        here = request.GET.get("tab", "")
        tabs = [
            {
                "name": name,
                "label": label,
                "count": None if name == "done" else admin.capped(rows.filter(which), 99),
                "here": name == here,
            }
            for name, (label, which) in TABS.items()
        ]
        return super().changelist_view(request, {"tabs": tabs, "no_tab": here not in TABS, **(extra_context or {})})

    @django_admin.display(description=gettext_lazy("No."), ordering="after_sales_no")
    def number(self, claim: AfterSalesOrder) -> SafeString:
        return format_html(
            '<span class="q-mono">{}</span><span class="as-sub">{} · {}</span>',
            claim.after_sales_no,
            claim.get_type_display(),
            date_format(localtime(claim.created_at), "m-d H:i"),
        )

    @django_admin.display(description=gettext_lazy("Goods"))
    def goods(self, claim: AfterSalesOrder) -> SafeString:
        return format_html('{}<span class="as-sub">× {} · {}</span>', claim.line.title, claim.qty, claim.order_no)

    @django_admin.display(description=gettext_lazy("Reason"))
    def reason(self, claim: AfterSalesOrder) -> SafeString:
        risk = badge(_("Risk"), "danger") if claim.held_for_review else ""
        return format_html("{} {}", reason_label(claim.reason_code), risk)

    @django_admin.display(description=gettext_lazy("Amount"))
    def amount(self, claim: AfterSalesOrder) -> SafeString:
        decided = claim.approved_total_fen
        if decided is None or decided == claim.applied_total_fen:
            return format_html('<span class="q-money">{}</span>', money.display(claim.applied_total_fen))
        return format_html(
            '<span class="q-money">{}</span><span class="as-sub"><s>{}</s></span>',
            money.display(decided),
            money.display(claim.applied_total_fen),
        )

    @django_admin.display(description=gettext_lazy("Status"))
    def state(self, claim: AfterSalesOrder) -> SafeString:
        disputed = badge(_("Arbitration"), "danger") if claim.is_disputed else ""
        return format_html("{} {}", badge(claim.get_status_display(), TONES[Status(claim.status)]), disputed)

    @django_admin.display(description=gettext_lazy("Deadline"), ordering="due_at")
    def deadline(self, claim: AfterSalesOrder) -> SafeString | str:
        left = time_left(claim.due_at, now=clock.now())
        return badge(left["text"], left["tone"]) if left else "–"

    # The page.

    def get_queryset(self, request: HttpRequest) -> QuerySet[AfterSalesOrder]:
        return super().get_queryset(request).select_related("line", "order", "merchant")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return []

    def page_context(self, request: HttpRequest, obj: AfterSalesOrder) -> dict[str, Any]:
        site = self.admin_site
        links = {}
        for name, model in (("order", "orders_order"), ("payment", "payments_payment")):
            row_pk = obj.order_id if name == "order" else None
            if row_pk and any(f"{m._meta.app_label}_{m._meta.model_name}" == model for m in site._registry):
                links[name] = reverse(f"admin:{model}_change", args=[row_pk])
        return {
            **claim_page.context_of(obj, now=clock.now()),
            "links": links,
            "buyer": self.masked(request, obj, "user_id"),
        }

    # The buttons: each one command.

    def do_approve(
        self, request: HttpRequest, obj: AfterSalesOrder, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        done = approve_after_sales(
            merchant_id=obj.merchant_id,
            after_sales_no=obj.after_sales_no,
            expected_version=data["seen_version"],
            ask=forms.ask_of(data),
            by=self.actor(request),
            key=key,
            now=now,
        )
        if done.goods_fen is None:
            return _("Approved.")
        return _("Approved: %(total)s go back to the buyer.") % {
            "total": money.display(done.goods_fen + (done.freight_fen or 0))
        }

    def do_reject(
        self, request: HttpRequest, obj: AfterSalesOrder, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        reject_after_sales(
            merchant_id=obj.merchant_id,
            after_sales_no=obj.after_sales_no,
            expected_version=data["seen_version"],
            reason=data["reason"],
            by=self.actor(request),
            key=key,
            now=now,
        )
        return _("Refused.")

    def do_confirm_return(
        self, request: HttpRequest, obj: AfterSalesOrder, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        done = confirm_return(
            merchant_id=obj.merchant_id,
            after_sales_no=obj.after_sales_no,
            expected_version=data["seen_version"],
            dispositions={name: data[name] for name in ("sellable", "defect", "missing") if data[name]},
            note=data["note"],
            ask=forms.ask_of(data),
            by=self.actor(request),
            key=key,
            now=now,
        )
        return _("Received: %(total)s go back to the buyer.") % {
            "total": money.display((done.goods_fen or 0) + (done.freight_fen or 0))
        }

    def do_reject_return(
        self, request: HttpRequest, obj: AfterSalesOrder, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        reject_return(
            merchant_id=obj.merchant_id,
            after_sales_no=obj.after_sales_no,
            expected_version=data["seen_version"],
            reason=data["reason"],
            carrier=data["carrier"],
            tracking_no=data["tracking_no"],
            by=self.actor(request),
            key=key,
            now=now,
        )
        return _("Refused; the goods go back to the buyer.")

    def do_retry_refund(
        self, request: HttpRequest, obj: AfterSalesOrder, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        done = retry_after_sales(
            merchant_id=obj.merchant_id,
            after_sales_no=obj.after_sales_no,
            expected_version=data["seen_version"],
            by=self.actor(request),
            key=key,
            now=now,
        )
        return _("Sent again as %(number)s.") % {"number": ", ".join(done.refund_nos)}

    def do_retry_rollback(
        self, request: HttpRequest, obj: AfterSalesOrder, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        retry_rollback(merchant_id=obj.merchant_id, after_sales_no=obj.after_sales_no, now=now)
        return _("They are tried again.")

    def do_confirm_exchange(
        self, request: HttpRequest, obj: AfterSalesOrder, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        done = confirm_exchange(
            merchant_id=obj.merchant_id,
            after_sales_no=obj.after_sales_no,
            expected_version=data["seen_version"],
            dispositions={name: data[name] for name in ("sellable", "defect", "missing") if data[name]},
            note=data["note"],
            ask=forms.ask_of(data),
            by=self.actor(request),
            key=key,
            now=now,
        )
        if done.supplement_fen and done.status == Status.WAIT_BUYER_PAY:
            return _("Received. The buyer is asked for %(fen)s.") % {"fen": money.display(done.supplement_fen)}
        return _("Received.")

    def do_ship_replacement(
        self, request: HttpRequest, obj: AfterSalesOrder, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        ship_replacement(
            merchant_id=obj.merchant_id,
            after_sales_no=obj.after_sales_no,
            expected_version=data["seen_version"],
            carrier=data["carrier"],
            tracking_no=data["tracking_no"],
            by=self.actor(request),
            key=key,
            now=now,
        )
        return _("Shipped.")

    def do_convert_to_refund(
        self, request: HttpRequest, obj: AfterSalesOrder, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        done = convert_to_refund(
            merchant_id=obj.merchant_id,
            after_sales_no=obj.after_sales_no,
            expected_version=data["seen_version"],
            reason=data["reason"],
            by=self.actor(request),
            key=key,
            now=now,
        )
        total = (done.goods_fen or 0) + (done.freight_fen or 0)
        return _("Turned into a refund of %(total)s.") % {"total": money.display(total)}

    def do_open_arbitration(
        self, request: HttpRequest, obj: AfterSalesOrder, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        open_arbitration(
            merchant_id=obj.merchant_id,
            after_sales_no=obj.after_sales_no,
            wish=data["wish"],
            by=self.actor(request),
            key=key,
            now=now,
        )
        return _("The platform was called in.")

    def do_add_evidence(
        self, request: HttpRequest, obj: AfterSalesOrder, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        add_evidence(
            merchant_id=obj.merchant_id,
            after_sales_no=obj.after_sales_no,
            content=data["file"].read(),
            note=data["note"],
            by=self.actor(request),
            key=key,
            now=now,
        )
        return _("The image is kept.")

    def do_enter_voucher(
        self, request: HttpRequest, obj: AfterSalesOrder, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        settle_offline(
            merchant_id=obj.merchant_id,
            after_sales_no=obj.after_sales_no,
            voucher=data["voucher"],
            by=self.actor(request),
            key=key,
            now=now,
        )
        return _("The voucher waits for another person.")

    def do_approve_voucher(
        self, request: HttpRequest, obj: AfterSalesOrder, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        settle_offline(
            merchant_id=obj.merchant_id,
            after_sales_no=obj.after_sales_no,
            by=self.actor(request),
            key=key,
            now=now,
        )
        return _("Approved; the claim ends as refunded.")

    def do_ask_rejection(
        self, request: HttpRequest, obj: AfterSalesOrder, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        self._give_up(request, obj, data["reason"], data, key=key, now=now)
        return _("Another person has to agree.")

    def do_approve_rejection(
        self, request: HttpRequest, obj: AfterSalesOrder, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        self._give_up(request, obj, "", data, key=key, now=now)
        return _("The refund is given up.")

    def _give_up(
        self,
        request: HttpRequest,
        obj: AfterSalesOrder,
        reason: str,
        data: dict[str, Any],
        *,
        key: BusinessKey,
        now: datetime,
    ) -> None:
        reject_failed(
            merchant_id=obj.merchant_id,
            after_sales_no=obj.after_sales_no,
            expected_version=data["seen_version"],
            reason=reason,
            by=self.actor(request),
            key=key,
            now=now,
        )

    def image_view(self, request: HttpRequest, evidence_id: UUID) -> FileResponse:
        """An image, for whoever may see its claim or case."""
        scoping.require(request.user, AfterSalesOrder)
        try:
            return image_response(scoping.get_or_404(request.user, Evidence.objects.all(), pk=evidence_id))
        except NotFound as error:  # the row is there, its file is not
            raise Http404 from error

    def get_urls(self) -> list[URLPattern]:
        image = path(
            "evidence/<uuid:evidence_id>/",
            self.admin_site.admin_view(self.image_view),
            name="aftersales_evidence_image",
        )
        return [image, *super().get_urls()]

    def actor(self, request: HttpRequest) -> By:
        kind = Actor.MERCHANT if self.admin_site.policy.merchant_of(request.user) else Actor.PLATFORM
        return By(kind, request.user.get_username()[:64])


# The other pages of this floor register themselves on import.
from aftersales import arbitration_pages, desk, risk_pages, shadow_pages  # noqa: E402, F401
