"""The after-sales queue and the audit page. Every button calls exactly one command."""

from datetime import datetime
from typing import Any

from django.contrib import admin as django_admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from aftersales import claim_page, forms
from aftersales.actors import By
from aftersales.claim_page import TONES, time_left
from aftersales.commands.approve_after_sales import approve_after_sales
from aftersales.commands.confirm_return import confirm_return
from aftersales.commands.reject_after_sales import reject_after_sales
from aftersales.commands.reject_return import reject_return
from aftersales.commands.retry_after_sales import retry_after_sales
from aftersales.commands.retry_rollback import retry_rollback
from aftersales.models import (
    Actor,
    AfterSalesLog,
    AfterSalesOrder,
    AfterSalesSettings,
    AfterSalesUnit,
    Inspection,
    ReturnShipment,
    Rollback,
    Status,
    Type,
)
from aftersales.reasons import reason_label
from kernel import admin, clock, money
from kernel.admin import Button, Hit, QuitsAdmin, Scope, reveal
from kernel.admin.buttons import Reason
from kernel.admin.columns import badge
from kernel.idempotency import BusinessKey
from merchants import scoping
from merchants.roles import FINANCE, MERCHANT, OPERATIONS, OWNER, READERS

scoping.register(
    AfterSalesOrder,
    view=READERS,
    actions={
        "approve": MERCHANT,
        "reject": MERCHANT,
        "confirm_return": MERCHANT,
        "reject_return": MERCHANT,
        "retry_refund": FINANCE | OWNER,
        "retry_rollback": OPERATIONS | FINANCE | OWNER,
    },
)
reveal.declare(AfterSalesOrder, "user_id")
scoping.register(AfterSalesUnit)
scoping.register(Rollback)
scoping.register(AfterSalesSettings, path="merchant")
for part in (AfterSalesLog, ReturnShipment, Inspection):
    scoping.register(part, path="after_sales__merchant")

TABS: dict[str, tuple[Any, Q]] = {
    "audit": (gettext_lazy("To audit"), Q(status=Status.WAIT_AUDIT)),
    "receive": (gettext_lazy("To inspect"), Q(status=Status.WAIT_MERCHANT_RECEIVE)),
    "ship": (gettext_lazy("To ship"), Q(status=Status.WAIT_MERCHANT_SHIP)),
    "buyer": (
        gettext_lazy("With the buyer"),
        Q(status__in=[Status.WAIT_BUYER_RETURN, Status.WAIT_BUYER_PAY, Status.WAIT_BUYER_CONFIRM]),
    ),
    "refunding": (gettext_lazy("Refunding"), Q(status=Status.REFUNDING)),
    "failed": (gettext_lazy("Refund failed"), Q(status=Status.REFUND_FAILED)),
    "done": (gettext_lazy("Ended"), Q(status__in=Status.final())),
}
"""The queue's tabs: what has to be done by whom."""


class TabFilter(django_admin.SimpleListFilter):
    """The tab in the address. Drawn by the queue's own template, so it shows nothing in the filter panel."""

    title = gettext_lazy("tab")
    parameter_name = "tab"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(name, label) for name, (label, _rows) in TABS.items()]

    def has_output(self) -> bool:
        return False

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        tab = TABS.get(self.value() or "")
        return queryset.filter(tab[1]) if tab else queryset


def in_audit(claim: AfterSalesOrder) -> bool:
    return claim.status == Status.WAIT_AUDIT and not claim.is_disputed


def in_inspection(claim: AfterSalesOrder) -> bool:
    return claim.status == Status.WAIT_MERCHANT_RECEIVE and not claim.is_disputed


def may_retry(claim: AfterSalesOrder) -> bool:
    return claim.status == Status.REFUND_FAILED


def has_dead_rollback(claim: AfterSalesOrder) -> bool:
    return claim.status == Status.REFUND_SUCCESS and any(
        item["state"] == "dead" for item in claim_page.rollbacks_of(claim)
    )


def approval_question(claim: AfterSalesOrder | None) -> str:
    """What approving does, with the amount when money moves."""
    if claim is None:
        return _("Each claim is approved with the amount the rules give.")
    amounts = {
        "total": money.display(claim.applied_total_fen),
        "goods": money.display(claim.applied_goods_fen),
        "freight": money.display(claim.applied_freight_fen),
    }
    if claim.type in (Type.REFUND_ONLY, Type.PRICE_PROTECTION):
        return (
            _("%(total)s go back to the buyer at once: %(goods)s for the goods, %(freight)s for the freight.") % amounts
        )
    if claim.type == Type.RESHIP:
        return _("You send the goods once more. No money moves.")
    return _("The buyer sends the goods back. After your inspection %(total)s go back to the buyer.") % amounts


def inspection_question(claim: AfterSalesOrder) -> str:
    return _("The parcel is here. %(total)s go back to the buyer for %(qty)s units, unless you lower it below.") % {
        "total": money.display(claim.applied_total_fen),
        "qty": claim.qty,
    }


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
    search_fields = ["after_sales_no", "order_no", "user_id"]
    change_form_template = "aftersales/claim.html"
    change_list_template = "aftersales/queue.html"
    bulk = ["approve", "reject"]
    audit_fields = ["status", "version", "liability", "approved_goods_fen", "approved_freight_fen"]
    buttons = [
        Button(
            "approve",
            gettext_lazy("Approve"),
            form=forms.DecisionForm,
            icon="check",
            variant="primary",
            confirm=approval_question,
            allowed=in_audit,
        ),
        Button(
            "reject",
            gettext_lazy("Refuse"),
            form=Reason,
            icon="close",
            variant="danger",
            confirm=gettext_lazy("The buyer gets nothing and may go to arbitration. The units are free again."),
            allowed=in_audit,
        ),
        Button(
            "confirm_return",
            gettext_lazy("Confirm receipt and refund"),
            form=forms.InspectionForm,
            icon="inventory",
            variant="primary",
            confirm=inspection_question,
            allowed=in_inspection,
        ),
        Button(
            "reject_return",
            gettext_lazy("Refuse and send back"),
            form=forms.SendBackForm,
            icon="undo",
            variant="danger",
            confirm=gettext_lazy("No money moves. The goods go back to the buyer; the parcel's number is mandatory."),
            allowed=in_inspection,
        ),
        Button(
            "retry_refund",
            gettext_lazy("Try the refund again"),
            icon="replay",
            variant="primary",
            confirm=lambda claim: (
                _("%(total)s are sent to the channel again, under the number its rules allow.")
                % {"total": money.display(claim.approved_total_fen)}
            ),
            allowed=may_retry,
        ),
        Button(
            "retry_rollback",
            gettext_lazy("Try the rollbacks again"),
            icon="replay",
            confirm=gettext_lazy("What was not turned back yet is tried again. What is done stays done."),
            allowed=has_dead_rollback,
        ),
    ]

    class Media:
        css = {"all": ["aftersales/claim.css"]}

    # The queue.

    def get_ordering(self, request: HttpRequest) -> list[str]:
        tab = request.GET.get("tab", "")
        return ["due_at", "id"] if tab in TABS and tab != "done" else ["-created_at", "-id"]

    def get_list_display(self, request: HttpRequest) -> Any:
        return [*super().get_list_display(request), self.row_buttons(request, "approve", "reject", "confirm_return")]

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
            expected_version=data["seen_version"] or obj.version,
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
            expected_version=data["seen_version"] or obj.version,
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
            expected_version=data["seen_version"] or obj.version,
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
            expected_version=data["seen_version"] or obj.version,
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
            expected_version=data["seen_version"] or obj.version,
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

    def actor(self, request: HttpRequest) -> By:
        kind = Actor.MERCHANT if self.admin_site.policy.merchant_of(request.user) else Actor.PLATFORM
        return By(kind, request.user.get_username()[:64])


def _waiting(which: Q, *, soon: bool = False) -> Any:
    def count(scope: Scope) -> int:
        rows = scope.of(AfterSalesOrder).filter(which)
        return admin.capped(rows)

    return count


admin.register_navigation(
    "aftersales.queue",
    group=gettext_lazy("After-sales"),
    label=gettext_lazy("After-sales queue"),
    url="admin:aftersales_aftersalesorder_changelist",
    params={"tab": "audit"},
    page=AfterSalesOrder,
    icon="assignment_return",
    order=100,
)
admin.register_waiting(
    "aftersales.audit",
    gettext_lazy("Claims to audit"),
    _waiting(TABS["audit"][1]),
    "admin:aftersales_aftersalesorder_changelist",
    page=AfterSalesOrder,
    action="approve",
    params={"tab": "audit"},
    icon="gavel",
    hint=gettext_lazy("Silence after the deadline approves or escalates."),
    order=10,
)
admin.register_waiting(
    "aftersales.receive",
    gettext_lazy("Parcels to inspect"),
    _waiting(TABS["receive"][1]),
    "admin:aftersales_aftersalesorder_changelist",
    page=AfterSalesOrder,
    action="confirm_return",
    params={"tab": "receive"},
    icon="inventory",
    hint=gettext_lazy("Buyers wait for their money."),
    order=20,
)
admin.register_waiting(
    "aftersales.failed",
    gettext_lazy("Failed refunds"),
    _waiting(TABS["failed"][1]),
    "admin:aftersales_aftersalesorder_changelist",
    page=AfterSalesOrder,
    action="retry_refund",
    params={"tab": "failed"},
    icon="money_off",
    hint=gettext_lazy("The channel said no; a person decides."),
    order=30,
)


def _refunded_today(scope: Scope) -> int:
    from django.db.models import F, Sum

    rows = scope.of(AfterSalesOrder).filter(status=Status.REFUND_SUCCESS, finished_at__gte=scope.today_start)
    total = rows.aggregate(fen=Sum(F("approved_goods_fen") + F("approved_freight_fen")))["fen"]
    return int(total or 0)


admin.register_figure(
    "aftersales.refunded_today",
    gettext_lazy("Refunded today"),
    _refunded_today,
    page=AfterSalesOrder,
    url="admin:aftersales_aftersalesorder_changelist",
    params={"tab": "done"},
    format="money",
    order=20,
)


def _find(scope: Scope, term: str) -> list[Hit]:
    rows = scope.of(AfterSalesOrder).filter(Q(after_sales_no=term) | Q(order_no=term))[:5]
    return [
        Hit(
            row.after_sales_no,
            f"{row.get_type_display()} · {row.get_status_display()} · {money.display(row.applied_total_fen)}",
            reverse("admin:aftersales_aftersalesorder_change", args=[row.pk]),
        )
        for row in rows
    ]


admin.register_search("after_sales", _find, page=AfterSalesOrder)
