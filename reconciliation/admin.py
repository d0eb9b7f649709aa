"""The pages of reconciliation: runs with their charts, and the finding queue."""

from __future__ import annotations

import csv
import gzip
import json
from datetime import date, datetime, timedelta
from typing import Any

from django import forms
from django.contrib import admin as django_admin
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kernel import admin, clock
from kernel.admin import Button, ButtonForm, QuitsAdmin, Scope
from kernel.admin.buttons import Reason
from kernel.admin.columns import badge
from kernel.admin.export import harmless
from kernel.idempotency import BusinessKey
from merchants import scoping
from merchants.models import Merchant
from merchants.roles import CUSTOMER_SERVICE, FINANCE, HOUSE, OPERATIONS
from payments.models import ChannelBill, Payment
from reconciliation.commands.accept_finding import accept_finding
from reconciliation.commands.assign_finding import assign_finding
from reconciliation.commands.comment_finding import comment_finding
from reconciliation.commands.recheck_finding import recheck_finding
from reconciliation.commands.refuse_repair import refuse_repair
from reconciliation.commands.repair_finding import repair_finding, repair_of
from reconciliation.legends import FINDINGS, RUN_TONES, RUNS, SEVERITY_TONES, STATE_TONES
from reconciliation.models import Finding, FindingComment, FindingSighting, ReconciliationRun, TimingItem
from reconciliation.queries import (
    get_export_rows,
    get_findings_of,
    get_last_days,
    get_totals,
)
from reconciliation.rules.registry import all_rules, rule_named
from reconciliation.tasks import reconcile_on

WORKERS = CUSTOMER_SERVICE | OPERATIONS | FINANCE
DECIDERS = OPERATIONS | FINANCE

scoping.register(
    Finding,
    path="merchant",
    view=HOUSE,
    actions={
        "take": WORKERS,
        "assign": WORKERS,
        "comment": WORKERS,
        "accept": DECIDERS,
        "repair": DECIDERS,
        "refuse_repair": DECIDERS,
        "recheck": WORKERS,
    },
)
scoping.register(
    ReconciliationRun,
    path="merchant",
    view=HOUSE,
    actions={"reconcile": DECIDERS, "export": HOUSE, "bill": FINANCE | OPERATIONS},
)
scoping.register(FindingComment, path="finding__merchant")
scoping.register(FindingSighting, path="finding__merchant")
scoping.register(TimingItem, path="merchant")


class Assign(ButtonForm):
    owner = forms.ModelChoiceField(label=gettext_lazy("Owner"), queryset=get_user_model().objects.none())

    def prepare(self) -> None:
        roles = [str(role) for role in WORKERS]
        self.fields["owner"].queryset = (  # type: ignore[attr-defined]
            get_user_model().objects.filter(is_active=True, staff__role__in=roles).order_by("username")
        )


class Comment(ButtonForm):
    text = forms.CharField(label=gettext_lazy("Comment"), max_length=2000, widget=forms.Textarea)


class Day(ButtonForm):
    day = forms.DateField(label=gettext_lazy("Day"), help_text=gettext_lazy("The channel's day, Asia/Shanghai."))

    def clean_day(self) -> date:
        day: date = self.cleaned_data["day"]
        if day > clock.channel_day(clock.now()):
            raise forms.ValidationError(_("This day has not begun."))
        return day


def is_unfinished(finding: Finding) -> bool:
    return finding.state in Finding.UNFINISHED


def is_free(finding: Finding) -> bool:
    return finding.state in ("OPEN", "ASSIGNED")


def can_repair(finding: Finding) -> bool:
    return finding.state in ("OPEN", "ASSIGNED", "REPAIR_REQUESTED") and repair_of(finding) is not None


def repair_question(finding: Finding) -> str:
    repair = repair_of(finding)
    asked = _("This runs: %(repair)s.") % {"repair": repair.title if repair else "–"}
    if finding.severity != "P0":
        return asked
    if finding.state == "REPAIR_REQUESTED":
        return asked + " " + _("You confirm it as the second person.")
    return asked + " " + _("It is a P0: another person has to confirm it.")


class UnfinishedFilter(django_admin.SimpleListFilter):
    """Open by default: a queue that also shows what is done is no queue."""

    title = gettext_lazy("progress")
    parameter_name = "progress"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("mine", _("Mine")), ("done", _("Finished")), ("all", _("All"))]

    def choices(self, changelist: Any) -> Any:
        chosen = self.value()
        for value, label in [(None, _("Open")), *self.lookup_choices]:
            yield {
                "selected": chosen == value,
                "query_string": changelist.get_query_string(
                    {self.parameter_name: value} if value else {}, [] if value else [self.parameter_name]
                ),
                "display": label,
            }

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        value = self.value()
        if value == "all":
            return queryset
        if value == "done":
            return queryset.exclude(state__in=Finding.UNFINISHED)
        if value == "mine":
            return queryset.filter(state__in=Finding.UNFINISHED, owner=request.user)
        return queryset.filter(state__in=Finding.UNFINISHED)


BY_RULE = admin.one_of(
    "rule", gettext_lazy("rule"), lambda: [(name, rule.title) for name, rule in sorted(all_rules().items())]
)


@admin.register(Finding)
class FindingAdmin(QuitsAdmin):
    list_hint = gettext_lazy(
        "Two books that disagree. Each ends by a repair that a later look confirms, or by a reason."
    )
    list_display = [
        "level",
        "title",
        "key",
        "merchant",
        admin.money("amount_fen", gettext_lazy("difference"), ordering="amount_fen"),
        admin.status("state", gettext_lazy("state"), STATE_TONES),
        "owner",
        admin.when("first_seen_at", gettext_lazy("first seen"), ordering="first_seen_at"),
    ]
    empty_hint = admin.QUIET
    legends = FINDINGS
    list_filter = [UnfinishedFilter, "severity", BY_RULE, admin.MerchantFilter]
    search_fields = ["key__exact", "rule__exact"]
    search_help_text = gettext_lazy("A whole number, or the name of a rule.")
    list_select_related = ["merchant", "owner"]
    ordering = ["severity", "-first_seen_at", "-id"]
    audit_fields = ["state", "version", "owner_id"]
    change_form_template = "reconciliation/finding.html"
    buttons = [
        Button(
            "repair",
            gettext_lazy("Repair"),
            icon="build",
            variant="primary",
            confirm=repair_question,
            allowed=can_repair,
        ),
        Button(
            "refuse_repair",
            gettext_lazy("Refuse the repair"),
            form=Reason,
            icon="block",
            allowed=lambda finding: finding.state == "REPAIR_REQUESTED",
        ),
        Button("take", gettext_lazy("Assign to me"), icon="person_check", allowed=is_free),
        Button("assign", gettext_lazy("Assign"), form=Assign, icon="group", allowed=is_free),
        Button("comment", gettext_lazy("Comment"), form=Comment, icon="comment"),
        Button("recheck", gettext_lazy("Look again"), icon="refresh"),
        Button(
            "accept",
            gettext_lazy("Accept with a reason"),
            form=Reason,
            icon="task_alt",
            allowed=lambda finding: finding.state in ("OPEN", "ASSIGNED", "REPAIRED"),
            hint=gettext_lazy("It stays quiet as long as its figures stay the same."),
        ),
    ]
    bulk = ["take", "accept"]

    @django_admin.display(description=gettext_lazy("severity"), ordering="severity")
    def level(self, finding: Finding) -> SafeString:
        return badge(finding.severity, SEVERITY_TONES[finding.severity])

    @django_admin.display(description=gettext_lazy("finding"), ordering="rule")
    def title(self, finding: Finding) -> str:
        rule = rule_named(finding.rule)
        return str(rule.title) if rule else finding.rule

    def name_of(self, request: HttpRequest, obj: Finding) -> str:
        return f"{obj.severity} {self.title(obj)} {obj.key}"

    def get_list_display(self, request: HttpRequest) -> Any:
        return [*super().get_list_display(request), self.row_buttons(request, "repair", "take")]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return []

    def page_context(self, request: HttpRequest, obj: Finding) -> dict[str, Any]:
        rule, repair = rule_named(obj.rule), repair_of(obj)
        return {
            "rule": rule,
            "repair": repair,
            "sides": [
                {"title": _("Ours"), "rows": _rows(obj.ours)},
                {"title": _("The other side"), "rows": _rows(obj.theirs)},
            ],
            "comments": FindingComment.objects.filter(finding=obj).select_related("author").order_by("id"),
            "sightings": obj.sightings.select_related("run").order_by("-id")[:20],
            "severity_tone": SEVERITY_TONES[obj.severity],
            "state_tone": STATE_TONES[obj.state],
        }

    def do_take(self, request: HttpRequest, obj: Finding, data: Any, *, key: BusinessKey, now: datetime) -> str:
        return self.do_assign(request, obj, {**data, "owner": request.user}, key=key, now=now)

    def do_assign(self, request: HttpRequest, obj: Finding, data: Any, *, key: BusinessKey, now: datetime) -> str:
        assign_finding(
            finding_id=obj.pk,
            owner_id=data["owner"].pk,
            author_id=_author(request),
            expected_version=_seen(obj, data),
            now=now,
        )
        return _("Assigned to %(owner)s.") % {"owner": data["owner"]}

    def do_comment(self, request: HttpRequest, obj: Finding, data: Any, *, key: BusinessKey, now: datetime) -> str:
        comment_finding(finding_id=obj.pk, author_id=_author(request), text=data["text"], now=now)
        return _("Comment saved.")

    def do_accept(self, request: HttpRequest, obj: Finding, data: Any, *, key: BusinessKey, now: datetime) -> str:
        accept_finding(
            finding_id=obj.pk,
            author_id=_author(request),
            reason=data["reason"],
            expected_version=_seen(obj, data),
            now=now,
        )
        return _("Accepted.")

    def do_repair(self, request: HttpRequest, obj: Finding, data: Any, *, key: BusinessKey, now: datetime) -> str:
        repaired = repair_finding(
            finding_id=obj.pk, author_id=_author(request), expected_version=_seen(obj, data), now=now
        )
        if repaired.state == "REPAIR_REQUESTED":
            return _("Requested. Another person has to confirm it.")
        if repaired.state == "RESOLVED":
            return _("Repaired: the rule no longer sees it.")
        return _("The command ran, but the rule still sees it. It may need a moment: look again.")

    def do_refuse_repair(
        self, request: HttpRequest, obj: Finding, data: Any, *, key: BusinessKey, now: datetime
    ) -> str:
        refuse_repair(
            finding_id=obj.pk,
            author_id=_author(request),
            reason=data["reason"],
            expected_version=_seen(obj, data),
            now=now,
        )
        return _("The repair was refused.")

    def do_recheck(self, request: HttpRequest, obj: Finding, data: Any, *, key: BusinessKey, now: datetime) -> str:
        state = recheck_finding(finding_id=obj.pk, now=now).state
        return _("Looked again: %(state)s.") % {"state": Finding.State(state).label}


@admin.register(ReconciliationRun)
class RunAdmin(QuitsAdmin):
    stays_short = True
    list_hint = gettext_lazy("One run a day, after the channels' bills are there at 10:00.")
    list_display = [
        "on_date",
        "kind",
        admin.status("state", gettext_lazy("state"), RUN_TONES),
        "items",
        "rate",
        "timing",
        "findings_seen",
        admin.when("finished_at", gettext_lazy("finished")),
    ]
    list_filter = ["kind", "state"]
    legends = RUNS
    ordering = ["-on_date", "kind"]
    change_form_template = "reconciliation/run.html"
    addresses = {"reconciliation_run_export": "export", "reconciliation_bill": "bill"}
    list_buttons = [
        Button("reconcile", gettext_lazy("Reconcile a day"), form=Day, icon="balance", variant="primary"),
    ]

    @django_admin.display(description=gettext_lazy("match rate"))
    def rate(self, run: ReconciliationRun) -> str:
        return "–" if run.match_rate is None else f"{run.match_rate:.2f} %"

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("<uuid:run_id>/export.csv", wrap(self.export), name="reconciliation_run_export"),
            path("bill/<uuid:bill_id>/", wrap(self.bill), name="reconciliation_bill"),
            *super().get_urls(),
        ]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return []

    def page_context(self, request: HttpRequest, obj: ReconciliationRun) -> dict[str, Any]:
        may = self.admin_site.policy.may
        totals = get_totals(obj)
        names = dict(Merchant.objects.values_list("code", "name"))
        for row in [each for rows in totals.values() for each in rows]:
            row["merchant_name"] = names.get(row["merchant"], "")
        bills = (
            ChannelBill.objects.filter(bill_on=obj.on_date)
            .defer("raw")
            .select_related("merchant")
            .order_by("merchant__code", "channel", "kind")
        )
        return {
            "sections": [
                {"title": _("Refunds"), "rows": totals["refunds"], "three": True},
                {"title": _("Payments"), "rows": totals["payments"], "three": False},
            ],
            "flows": totals["flows"],
            "findings": [
                {
                    "finding": finding,
                    "title": getattr(rule_named(finding.rule), "title", finding.rule),
                    "tone": SEVERITY_TONES[finding.severity],
                    "state_tone": STATE_TONES[finding.state],
                    "url": reverse("admin:reconciliation_finding_change", args=[finding.pk]),
                }
                for finding in get_findings_of(obj)[:200]
            ],
            "timing_items": TimingItem.objects.filter(run=obj).order_by("id")[:200],
            "bills": bills if may(request.user, ReconciliationRun, "bill") else [],
            "chart": chart_of(obj),
            "waiting": obj.totals.get("waiting", []),
            "state_tone": RUN_TONES[obj.state],
            "export_url": reverse("admin:reconciliation_run_export", args=[obj.pk]),
        }

    def do_reconcile(self, request: HttpRequest, obj: None, data: Any, *, key: BusinessKey, now: datetime) -> str:
        reconcile_on.delay(data["day"].isoformat())
        return _("The run of %(day)s was started; reload this list in a moment.") % {"day": data["day"]}

    def export(self, request: HttpRequest, run_id: Any) -> HttpResponse | StreamingHttpResponse:
        """The run as CSV for finance. UTF-8 with a mark, because spreadsheets guess wrongly without it."""
        if not self.admin_site.policy.may(request.user, ReconciliationRun, "export"):
            raise PermissionDenied
        run = scoping.get_or_404(request.user, ReconciliationRun.objects.all(), pk=run_id)
        writer = csv.writer(_Echo())
        lines = (
            writer.writerow([harmless(cell) if isinstance(cell, str) else cell for cell in row])
            for row in get_export_rows(run)
        )
        answer = StreamingHttpResponse(("\ufeff" + line if not index else line for index, line in enumerate(lines)))
        answer["Content-Type"] = "text/csv; charset=utf-8"
        answer["Content-Disposition"] = f'attachment; filename="reconciliation-{run.on_date}.csv"'
        self.admin_site.policy.record(request, action="export", subject=run, now=clock.now())
        return answer

    def bill(self, request: HttpRequest, bill_id: Any) -> HttpResponse:
        """A channel's bill exactly as it came."""
        if not self.admin_site.policy.may(request.user, ReconciliationRun, "bill"):
            raise PermissionDenied
        found = ChannelBill.objects.filter(pk=bill_id).first()
        if found is None or not found.raw:
            raise Http404
        answer = HttpResponse(gzip.decompress(bytes(found.raw)), content_type="application/octet-stream")
        extension = "zip" if found.channel == "alipay" else "csv"
        answer["Content-Disposition"] = (
            f'attachment; filename="{found.channel}-{found.kind}-{found.bill_on}.{extension}"'
        )
        self.admin_site.policy.record(
            request, action="bill", subject=None, subject_type="payments.channelbill",
            detail={"bill": str(found.pk)}, now=clock.now(),
        )  # fmt: skip
        return answer


class _Echo:
    """A file that gives back what is written to it."""

    def write(self, value: str) -> str:
        return value


def _author(request: HttpRequest) -> int:
    assert request.user.pk is not None
    return request.user.pk


def _seen(obj: Finding, data: dict[str, Any]) -> int:
    """The version that the person looked at when they decided."""
    return data.get("seen_version") or obj.version


def _rows(side: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, _words(name, value)) for name, value in side.items()]


KINDS: dict[str, Any] = {**dict(ChannelBill.Kind.choices), **dict(Payment.Kind.choices)}
"""A kind in a finding is a bill's or a payment's."""


def _words(name: str, value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    return str(KINDS.get(value, value)) if name == "kind" else value


def chart_of(run: ReconciliationRun) -> list[dict[str, Any]]:
    """Thirty bars: height is the match rate between 90 and 100 percent, colour says whether anything was found."""
    bars = []
    for index, entry in enumerate(get_last_days(until=run.on_date)):
        rate = entry["rate"]
        height = 4 if rate is None else max(6, round((max(rate, 90.0) - 90.0) * 8))
        tone = "none" if entry["run"] is None else ("bad" if entry["findings"] else "good")
        label = "–" if rate is None else f"{rate:.2f} %"
        bars.append(
            {
                "x": index * 20,
                "y": 84 - height,
                "height": height,
                "tone": tone,
                "today": entry["day"] == run.on_date,
                "day": entry["day"],
                "label": f"{entry['day']}: {label}, {entry['findings']}",
            }
        )
    return bars


def _count_waiting(scope: Scope) -> int:
    return admin.capped(scope.of(Finding).filter(state__in=Finding.UNFINISHED))


def _rate_of_yesterday(scope: Scope) -> int:
    yesterday = clock.channel_day(scope.now) - timedelta(days=1)
    run = scope.of(ReconciliationRun).filter(kind="daily", merchant=None, on_date=yesterday).first()
    return round((run.match_rate or 0) * 10) if run else 0


admin.register_waiting(
    "findings",
    gettext_lazy("Findings"),
    _count_waiting,
    "admin:reconciliation_finding_changelist",
    page=Finding,
    action="take",
    icon="rule",
    hint=gettext_lazy("Books that disagree"),
    order=60,
)
admin.register_figure(
    "match_rate",
    gettext_lazy("Match rate of yesterday"),
    _rate_of_yesterday,
    page=ReconciliationRun,
    url="admin:reconciliation_reconciliationrun_changelist",
    format="permille",
    order=60,
)
admin.register_navigation(
    "findings",
    group=gettext_lazy("Reconciliation"),
    label=gettext_lazy("Findings"),
    url="admin:reconciliation_finding_changelist",
    page=Finding,
    icon="rule",
    order=500,
)
admin.register_navigation(
    "runs",
    group=gettext_lazy("Reconciliation"),
    label=gettext_lazy("Reconciliation runs"),
    url="admin:reconciliation_reconciliationrun_changelist",
    page=ReconciliationRun,
    icon="balance",
    order=510,
)


def _find(scope: Scope, term: str) -> list[admin.Hit]:
    found = scope.of(Finding).filter(key=term).order_by("-first_seen_at")[:5]
    return [
        admin.Hit(
            str(getattr(rule_named(finding.rule), "title", finding.rule)),
            f"{finding.severity} {finding.key}",
            reverse("admin:reconciliation_finding_change", args=[finding.pk]),
        )
        for finding in found
    ]


admin.register_search("findings", _find, page=Finding)
