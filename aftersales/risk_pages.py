"""The risk desk in the back office: claims that hit a rule, and the rules themselves."""

from datetime import datetime
from typing import Any

from django.contrib import admin as django_admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from aftersales import forms
from aftersales.actors import By
from aftersales.commands.change_risk_rule import change_risk_rule
from aftersales.commands.decide_risk import decide_risk
from aftersales.legends import REVIEWS
from aftersales.models import Actor, RiskReview, RiskRule
from aftersales.risk import RULES
from kernel import admin, money
from kernel.admin import Button, QuitsAdmin, Scope
from kernel.admin.buttons import Reason
from kernel.idempotency import BusinessKey
from merchants import scoping
from merchants.roles import AUDITOR, CUSTOMER_SERVICE, HOUSE, OPERATIONS

TONES = {"OPEN": "danger", "CLEARED": "success", "CONFIRMED": "warning"}

scoping.register(
    RiskReview,
    path="after_sales__merchant",
    view=OPERATIONS | CUSTOMER_SERVICE | AUDITOR,
    actions={"clear": OPERATIONS, "confirm": OPERATIONS},
)
scoping.register(
    RiskRule,
    path=None,
    reason="a rule may stand for all merchants; only the house sees it",
    view=HOUSE,
    actions={"change": OPERATIONS, "create": OPERATIONS},
)


def is_open(review: RiskReview) -> bool:
    return review.state == RiskReview.State.OPEN


FIGURES: dict[str, Any] = {
    "claims": gettext_lazy("applications"),
    "days": gettext_lazy("within days"),
    "percent": gettext_lazy("percent wanted back"),
    "from_fen": gettext_lazy("from"),
    "buyers": gettext_lazy("other buyers"),
    "other_buyers": gettext_lazy("other buyers"),
    "returns": gettext_lazy("returns"),
    "age_days": gettext_lazy("days old"),
    "moved": gettext_lazy("parcel seen by a carrier"),
}


def in_words(figures: dict[str, Any]) -> str:
    """Figures of a rule, or what it found, as people read them."""
    parts = []
    for name, value in figures.items():
        if name.endswith("_fen"):
            value = money.display(value)
        elif isinstance(value, bool):
            value = _("Yes") if value else _("No")
        parts.append(f"{FIGURES.get(name, name)} {value}")
    return ", ".join(parts)


def rule_label(kind: str) -> str:
    """What a rule is called."""
    return str(RULES[kind].label) if kind in RULES else kind


class OpenFilter(django_admin.SimpleListFilter):
    """Waiting ones unless somebody asks for the others."""

    title = gettext_lazy("progress")
    parameter_name = "progress"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("decided", gettext_lazy("Decided")), ("all", gettext_lazy("All"))]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        if self.value() == "all":
            return queryset
        waiting = queryset.filter(state=RiskReview.State.OPEN)
        return queryset.exclude(state=RiskReview.State.OPEN) if self.value() == "decided" else waiting


class ClaimMerchantFilter(admin.MerchantFilter):
    path = "after_sales__merchant"


@admin.register(RiskReview)
class RiskReviewAdmin(QuitsAdmin):
    """Claims that auto-approval and timers leave alone until a person has looked."""

    list_display = [
        "claim",
        "found",
        "amount",
        admin.status("state", gettext_lazy("State"), TONES),
        admin.when("created_at", gettext_lazy("Found"), ordering="created_at"),
    ]
    list_filter = [OpenFilter, ClaimMerchantFilter]
    list_select_related = ["after_sales__line"]
    list_hint = gettext_lazy("Claims that hit a rule. Nothing approves them by itself until somebody has looked.")
    empty_hint = admin.QUIET
    legends = REVIEWS
    search_fields = ["after_sales__after_sales_no__exact", "after_sales__order_no__exact"]
    search_help_text = gettext_lazy("A whole after-sales or order number.")
    ordering = ["created_at"]
    fields = ["claim", "found", "amount", "state", "decided_by", "reason", "decided_at"]
    readonly_fields = ["claim", "found", "amount", "state", "decided_by", "reason", "decided_at"]
    audit_fields = ["state", "version"]
    buttons = [
        Button(
            "clear",
            gettext_lazy("No risk"),
            form=Reason,
            icon="check",
            variant="primary",
            confirm=gettext_lazy("Timers and auto-approval take the claim again."),
            allowed=is_open,
        ),
        Button(
            "confirm",
            gettext_lazy("It is a risk"),
            form=Reason,
            icon="warning",
            variant="danger",
            confirm=gettext_lazy("Only people decide this claim from now on."),
            allowed=is_open,
        ),
    ]

    @django_admin.display(description=gettext_lazy("Claim"))
    def claim(self, review: RiskReview) -> SafeString:
        claim = review.after_sales
        return format_html(
            '<a href="{}">{}</a><span class="as-sub">{} × {}</span>',
            reverse("admin:aftersales_aftersalesorder_change", args=[claim.pk]),
            claim.after_sales_no,
            claim.line.title,
            claim.qty,
        )

    @django_admin.display(description=gettext_lazy("Why"))
    def found(self, review: RiskReview) -> SafeString:
        return format_html_join(
            "",
            '<div>{} <span class="q-muted">{}</span></div>',
            ((rule_label(hit["rule"]), in_words(hit["found"])) for hit in review.hits),
        )

    @django_admin.display(description=gettext_lazy("Amount"))
    def amount(self, review: RiskReview) -> str:
        return money.display(review.after_sales.applied_total_fen)

    class Media:
        css = {"all": ["aftersales/claim.css"]}

    def do_clear(
        self, request: HttpRequest, obj: RiskReview, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        self._decide(request, obj, clear=True, reason=data["reason"], key=key, now=now)
        return _("Cleared.")

    def do_confirm(
        self, request: HttpRequest, obj: RiskReview, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        self._decide(request, obj, clear=False, reason=data["reason"], key=key, now=now)
        return _("Kept with people.")

    def _decide(
        self, request: HttpRequest, obj: RiskReview, *, clear: bool, reason: str, key: BusinessKey, now: datetime
    ) -> None:
        decide_risk(
            merchant_id=obj.after_sales.merchant_id,
            after_sales_no=obj.after_sales.after_sales_no,
            clear=clear,
            reason=reason,
            by=By(Actor.PLATFORM, request.user.get_username()[:64]),
            key=key,
            now=now,
        )


@admin.register(RiskRule)
class RiskRuleAdmin(QuitsAdmin):
    """The rules with their figures. A merchant's own rule replaces the one for all."""

    stays_short = True
    list_display = ["name", "whose", "figures", admin.yes_no("is_active", gettext_lazy("Active")), "changed_by"]
    list_filter = ["is_active"]
    list_select_related = ["merchant"]
    list_hint = gettext_lazy("What makes a claim wait for a person. A merchant's own rule replaces the one for all.")
    ordering = ["kind", "id"]
    fields = ["name", "whose", "figures", "is_active", "changed_by", "changed_at"]
    readonly_fields = ["name", "whose", "figures", "is_active", "changed_by", "changed_at"]
    audit_fields = ["params", "is_active", "version"]
    buttons = [Button("change", gettext_lazy("Change"), form=forms.RiskRuleForm, icon="tune", variant="primary")]
    list_buttons = [
        Button("create", gettext_lazy("New rule"), form=forms.NewRiskRuleForm, icon="add", variant="primary")
    ]

    @django_admin.display(description=gettext_lazy("Rule"))
    def name(self, rule: RiskRule) -> str:
        return rule_label(rule.kind)

    @django_admin.display(description=gettext_lazy("For"))
    def whose(self, rule: RiskRule) -> str:
        return str(rule.merchant) if rule.merchant else _("All merchants")

    @django_admin.display(description=gettext_lazy("Figures"))
    def figures(self, rule: RiskRule) -> str:
        return in_words(rule.params) or "–"

    def do_change(
        self, request: HttpRequest, obj: RiskRule, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        change_risk_rule(
            merchant_id=obj.merchant_id,
            kind=obj.kind,
            params=data["params"],
            is_active=data["is_active"],
            expected_version=data["seen_version"],
            changed_by=request.user.get_username()[:64],
            now=now,
        )
        return _("Changed.")

    def do_create(
        self, request: HttpRequest, obj: None, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        change_risk_rule(
            merchant_id=data["merchant"].pk if data["merchant"] else None,
            kind=data["kind"],
            params=data["params"],
            is_active=data["is_active"],
            changed_by=request.user.get_username()[:64],
            now=now,
        )
        return _("The rule stands.")


def _open_reviews(scope: Scope) -> int:
    return admin.capped(scope.of(RiskReview).filter(state=RiskReview.State.OPEN))


admin.register_navigation(
    "aftersales.risk",
    group=gettext_lazy("After-sales"),
    label=gettext_lazy("Risk queue"),
    url="admin:aftersales_riskreview_changelist",
    page=RiskReview,
    icon="shield",
    order=120,
)
admin.register_navigation(
    "aftersales.risk_rules",
    group=gettext_lazy("After-sales"),
    label=gettext_lazy("Risk rules"),
    url="admin:aftersales_riskrule_changelist",
    page=RiskRule,
    icon="rule",
    order=125,
)
admin.register_waiting(
    "aftersales.risk",
    gettext_lazy("Risks to look at"),
    _open_reviews,
    "admin:aftersales_riskreview_changelist",
    page=RiskReview,
    action="clear",
    icon="shield",
    hint=gettext_lazy("Nothing approves them by itself."),
    order=50,
)
