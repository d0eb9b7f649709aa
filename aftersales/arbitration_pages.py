"""Arbitration in the back office: the queue of cases, and a case with both sides' words and images."""

from datetime import datetime
from typing import Any

from django.contrib import admin as django_admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from aftersales import forms
from aftersales.actors import By
from aftersales.commands.add_evidence import add_evidence
from aftersales.commands.add_statement import add_statement
from aftersales.commands.decide_arbitration import decide_arbitration
from aftersales.drafts import left_of_units
from aftersales.legends import CASES
from aftersales.models import Actor, ArbitrationCase, ArbitrationStatement, ArbitrationUnit, Evidence
from kernel import admin, money
from kernel.admin import Button, QuitsAdmin, Scope, legend
from kernel.idempotency import BusinessKey
from merchants import scoping
from merchants.roles import AUDITOR, CUSTOMER_SERVICE, MERCHANT, OPERATIONS

PARTIES = MERCHANT | OPERATIONS | CUSTOMER_SERVICE
TONES = {"OPEN": "danger", "DECIDED": "success", "WITHDRAWN": "neutral"}

scoping.register(
    ArbitrationCase,
    view=PARTIES | AUDITOR,
    actions={"decide": OPERATIONS, "state": PARTIES, "show": PARTIES},
)
scoping.register(ArbitrationUnit, path="case__merchant")
scoping.register(ArbitrationStatement, path="case__merchant")


def is_open(case: ArbitrationCase) -> bool:
    return case.state == ArbitrationCase.State.OPEN


def award_question(case: ArbitrationCase) -> str:
    return _("Whatever you award goes to the buyer at once. %(left)s are left of these units.") % {
        "left": money.display(case.entitled_fen)
    }


class OpenFilter(django_admin.SimpleListFilter):
    """Open cases unless somebody asks for the others."""

    title = gettext_lazy("progress")
    parameter_name = "progress"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("closed", gettext_lazy("Closed")), ("all", gettext_lazy("All"))]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        if self.value() == "all":
            return queryset
        opened = queryset.filter(state=ArbitrationCase.State.OPEN)
        return queryset.exclude(state=ArbitrationCase.State.OPEN) if self.value() == "closed" else opened


@admin.register(ArbitrationCase)
class ArbitrationAdmin(QuitsAdmin):
    """What the platform has to decide, the oldest first."""

    list_display = [
        "about",
        admin.status("cause", gettext_lazy("Cause"), {}),
        "left",
        admin.status("state", gettext_lazy("State"), TONES),
        admin.when("opened_at", gettext_lazy("Opened"), ordering="opened_at"),
    ]
    list_filter = [OpenFilter, admin.MerchantFilter]
    list_select_related = ["line", "after_sales"]
    list_hint = gettext_lazy("Both sides speak, the platform decides, and the decision pays.")
    empty_hint = admin.QUIET
    legends = CASES
    search_fields = ["order_no__exact"]
    search_help_text = gettext_lazy("A whole order number.")
    ordering = ["opened_at", "id"]
    change_form_template = "aftersales/case.html"
    audit_fields = ["state", "version", "awarded_goods_fen", "awarded_freight_fen", "responsible"]
    buttons = [
        Button(
            "decide",
            gettext_lazy("Decide"),
            form=forms.AwardForm,
            icon="gavel",
            variant="primary",
            confirm=award_question,
            allowed=is_open,
        ),
        Button("state", gettext_lazy("Say something"), form=forms.StatementForm, icon="chat", allowed=is_open),
        Button("show", gettext_lazy("Add an image"), form=forms.ImageForm, icon="add_photo_alternate", allowed=is_open),
    ]

    class Media:
        css = {"all": ["aftersales/claim.css"]}

    @django_admin.display(description=gettext_lazy("About"))
    def about(self, case: ArbitrationCase) -> SafeString:
        return format_html(
            '{}<span class="as-sub">{} · {}</span>',
            case.line.title,
            case.order_no,
            case.after_sales.after_sales_no if case.after_sales else "–",
        )

    @django_admin.display(description=gettext_lazy("At stake"))
    def left(self, case: ArbitrationCase) -> str:
        return money.display(case.entitled_fen)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return []

    def page_context(self, request: HttpRequest, obj: ArbitrationCase) -> dict[str, Any]:
        claim = obj.after_sales
        images = Evidence.objects.filter(arbitration=obj)
        if claim is not None:
            images = images | Evidence.objects.filter(after_sales=claim)
        ordinals = list(obj.units.order_by("ordinal").values_list("ordinal", flat=True))
        lines = legend.said_of(obj, self.legends)
        if obj.state == ArbitrationCase.State.DECIDED and not (obj.awarded_goods_fen or obj.awarded_freight_fen):
            lines = [{**row, "line": _("Decided for good. Nothing was awarded.")} for row in lines]
        return {
            "status_lines": lines,
            "case": obj,
            "tone": TONES[obj.state],
            "claim": claim,
            "ordinals": ordinals,
            "left": left_of_units(obj.line, ordinals),
            "statements": list(obj.statements.order_by("created_at")),
            "images": list(images.order_by("created_at")),
            "result": obj.result,
        }

    def do_decide(
        self, request: HttpRequest, obj: ArbitrationCase, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        done = decide_arbitration(
            case_id=obj.pk,
            expected_version=data["seen_version"],
            goods_fen=data["goods_fen"],
            freight_fen=data["freight_fen"],
            responsible=data["responsible"],
            decision=data["decision"],
            by=self.actor(request),
            key=key,
            now=now,
        )
        if not done.after_sales_no:
            return _("Decided. Things stay as they are.")
        return _("Decided: %(total)s go to the buyer by %(number)s.") % {
            "total": money.display(done.awarded_fen),
            "number": done.after_sales_no,
        }

    def do_state(
        self, request: HttpRequest, obj: ArbitrationCase, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        add_statement(
            merchant_id=obj.merchant_id, case_id=obj.pk, text=data["text"], by=self.actor(request), key=key, now=now
        )
        return _("Kept; both sides read it.")

    def do_show(
        self, request: HttpRequest, obj: ArbitrationCase, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        add_evidence(
            merchant_id=obj.merchant_id,
            case_id=obj.pk,
            content=data["file"].read(),
            note=data["note"],
            by=self.actor(request),
            key=key,
            now=now,
        )
        return _("The image is kept.")

    def actor(self, request: HttpRequest) -> By:
        kind = Actor.MERCHANT if self.admin_site.policy.merchant_of(request.user) else Actor.PLATFORM
        return By(kind, request.user.get_username()[:64])


def _open_cases(scope: Scope) -> int:
    return admin.capped(scope.of(ArbitrationCase).filter(state=ArbitrationCase.State.OPEN))


admin.register_navigation(
    "aftersales.arbitration",
    group=gettext_lazy("After-sales"),
    label=gettext_lazy("Arbitration"),
    url="admin:aftersales_arbitrationcase_changelist",
    page=ArbitrationCase,
    icon="gavel",
    order=110,
)
admin.register_waiting(
    "aftersales.arbitration",
    gettext_lazy("Arbitration to decide"),
    _open_cases,
    "admin:aftersales_arbitrationcase_changelist",
    page=ArbitrationCase,
    action="decide",
    icon="gavel",
    hint=gettext_lazy("While a case is open, nobody else decides."),
    order=40,
)


def case_url(case: ArbitrationCase) -> str:
    """The page of a case."""
    return reverse("admin:aftersales_arbitrationcase_change", args=[case.pk])
