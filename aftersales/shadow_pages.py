"""A merchant's after-sales settings, and the shadow run of a second amount algorithm with its differences."""

from datetime import datetime
from typing import Any

from django.contrib import admin as django_admin
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from aftersales import forms
from aftersales.commands.change_settings import change_settings
from aftersales.commands.switch_algorithm import report_of, switch_algorithm
from aftersales.models import AfterSalesSettings, ShadowDay, ShadowDifference
from kernel import admin, clock, money
from kernel.admin import Button, QuitsAdmin
from kernel.idempotency import BusinessKey
from merchants import scoping
from merchants.roles import AUDITOR, FINANCE, MERCHANT, OPERATIONS, OWNER

READ = MERCHANT | OPERATIONS | FINANCE | AUDITOR

scoping.register(
    AfterSalesSettings,
    view=READ,
    actions={"change": OWNER, "begin_shadow": OPERATIONS, "stop_shadow": OPERATIONS, "go_live": OPERATIONS},
)
scoping.register(ShadowDay, view=OPERATIONS | FINANCE | AUDITOR)
scoping.register(ShadowDifference, view=OPERATIONS | FINANCE | AUDITOR)


def runs_beside(settings: AfterSalesSettings) -> bool:
    return bool(settings.shadow_algorithm)


def runs_alone(settings: AfterSalesSettings) -> bool:
    return not settings.shadow_algorithm


def live_question(settings: AfterSalesSettings) -> str:
    report = report_of(settings)
    return _(
        "%(shadow)s has calculated %(count)s times beside %(live)s and differed %(differences)s times. "
        "It goes live after 7 days, %(needed)s calculations and no difference. "
        "Lines with claims keep what they began with."
    ) % {
        "shadow": settings.shadow_algorithm,
        "live": settings.algorithm,
        "count": report.calculations,
        "differences": report.differences,
        "needed": report.needed,
    }


@admin.register(AfterSalesSettings)
class AfterSalesSettingsAdmin(QuitsAdmin):
    """What a merchant set, and which algorithm decides amounts."""

    stays_short = True
    list_display = ["merchant", "instant", "carrier_silence_days", "algorithm", "shadow_algorithm"]
    list_hint = gettext_lazy("What each shop sets for after-sales, and which amount algorithm is live.")
    list_filter = [admin.MerchantFilter]
    list_select_related = ["merchant"]
    fields = [
        "merchant",
        "instant",
        "carrier_silence_days",
        "points_per_yuan",
        "commission_hold_days",
        "algorithm",
        "shadow_algorithm",
        "shadow_since",
        "report",
    ]
    readonly_fields = fields
    audit_fields = [
        "instant_refund_up_to_fen",
        "carrier_silence_days",
        "points_per_yuan",
        "commission_hold_days",
        "algorithm",
        "shadow_algorithm",
        "version",
    ]
    buttons = [
        Button("change", gettext_lazy("Change"), form=forms.ClaimSettingsForm, icon="tune", variant="primary"),
        Button(
            "begin_shadow",
            gettext_lazy("Run a second algorithm beside"),
            form=forms.ShadowForm,
            icon="compare_arrows",
            confirm=gettext_lazy("Only the live one has effect; differences are kept."),
            allowed=runs_alone,
        ),
        Button("stop_shadow", gettext_lazy("Stop the second algorithm"), icon="stop", allowed=runs_beside),
        Button(
            "go_live",
            gettext_lazy("Let the second algorithm go live"),
            icon="published_with_changes",
            variant="danger",
            confirm=live_question,
            allowed=runs_beside,
        ),
    ]

    @django_admin.display(description=gettext_lazy("Approved at once up to"))
    def instant(self, settings: AfterSalesSettings) -> str:
        return money.display(settings.instant_refund_up_to_fen)

    @django_admin.display(description=gettext_lazy("Shadow run"))
    def report(self, settings: AfterSalesSettings) -> str:
        if not settings.shadow_algorithm:
            return "–"
        report = report_of(settings)
        proven = _("may go live") if report.proves(now=clock.now()) else _("not proven yet")
        return _("%(count)s calculations, %(differences)s differences: %(proven)s") % {
            "count": report.calculations,
            "differences": report.differences,
            "proven": proven,
        }

    def do_change(
        self, request: HttpRequest, obj: AfterSalesSettings, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        change_settings(
            merchant_id=obj.merchant_id,
            instant_refund_up_to_fen=data["instant_refund_up_to_fen"],
            carrier_silence_days=data["carrier_silence_days"],
            points_per_yuan=data["points_per_yuan"],
            commission_hold_days=data["commission_hold_days"],
            expected_version=data["seen_version"],
            now=now,
        )
        return _("Changed.")

    def do_begin_shadow(
        self, request: HttpRequest, obj: AfterSalesSettings, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        self._switch(obj, data["algorithm"], data, now=now)
        return _("It runs beside from now on.")

    def do_stop_shadow(
        self, request: HttpRequest, obj: AfterSalesSettings, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        self._switch(obj, "", data, now=now)
        return _("Stopped.")

    def do_go_live(
        self, request: HttpRequest, obj: AfterSalesSettings, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        self._switch(obj, "live", data, now=now)
        return _("It is live for lines without claims.")

    def _switch(self, settings: AfterSalesSettings, to: str, data: dict[str, Any], *, now: datetime) -> None:
        switch_algorithm(merchant_id=settings.merchant_id, to=to, expected_version=data["seen_version"], now=now)


@admin.register(ShadowDay)
class ShadowDayAdmin(QuitsAdmin):
    """How often both algorithms calculated, and how often they disagreed."""

    list_display = ["on_date", "merchant", "live", "shadow", "calculations", "differences"]
    list_filter = [admin.MerchantFilter]
    list_select_related = ["merchant"]
    list_hint = gettext_lazy("A second amount algorithm runs beside the live one. Only the live one has effect.")
    ordering = ["-on_date", "-id"]
    audit_fields: list[str] = []


@admin.register(ShadowDifference)
class ShadowDifferenceAdmin(QuitsAdmin):
    """Each calculation on which the two disagree, with both figures."""

    list_display = [
        "order_no",
        "line_no",
        "ordinals",
        admin.money("live_fen", gettext_lazy("Live")),
        admin.money("shadow_fen", gettext_lazy("Second")),
        "shadow",
        admin.when("created_at", gettext_lazy("Calculated"), ordering="created_at"),
    ]
    list_hint = gettext_lazy("Claims for which the second algorithm gives another amount than the live one.")
    list_filter = [admin.MerchantFilter]
    search_fields = ["order_no__exact"]
    search_help_text = gettext_lazy("A whole order number.")
    ordering = ["-created_at", "-id"]
    audit_fields: list[str] = []
    fields = [
        "merchant",
        "order_no",
        "line_no",
        "ordinals",
        "step",
        "live",
        admin.money("live_fen", gettext_lazy("Live")),
        "shadow",
        admin.money("shadow_fen", gettext_lazy("Second")),
        "inputs",
        "created_at",
    ]
    readonly_fields = fields


admin.register_navigation(
    "aftersales.settings",
    group=gettext_lazy("Shop"),
    label=gettext_lazy("After-sales settings"),
    url="admin:aftersales_aftersalessettings_changelist",
    page=AfterSalesSettings,
    icon="tune",
    order=805,
)
admin.register_navigation(
    "aftersales.shadow",
    group=gettext_lazy("After-sales"),
    label=gettext_lazy("Shadow runs"),
    url="admin:aftersales_shadowday_changelist",
    page=ShadowDay,
    icon="compare_arrows",
    order=130,
)
admin.register_navigation(
    "aftersales.shadow_differences",
    group=gettext_lazy("After-sales"),
    label=gettext_lazy("Shadow differences"),
    url="admin:aftersales_shadowdifference_changelist",
    page=ShadowDifference,
    icon="difference",
    order=131,
)
