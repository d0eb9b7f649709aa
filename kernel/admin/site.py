"""The admin site: who may come in, in which zone, and the dashboard, search and reveal pages."""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.apps import apps
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.views import PasswordChangeView
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, QueryDict
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST
from unfold.forms import AdminOwnPasswordChangeForm, AuthenticationForm
from unfold.sites import UnfoldAdminSite

from kernel import clock
from kernel.admin import desk
from kernel.admin.charts import charts_for, rankings_for, shown
from kernel.admin.policy import AccessPolicy, DenyAll
from kernel.admin.reveal import personal_fields
from kernel.errors import Refusal

# What stays reachable while a duty is open. A second factor comes before everything else, so that a stolen
# password alone changes nothing, not even itself.
FREE_DURING = {
    "login": ("login", "logout"),
    "second_factor": ("second_factor", "logout", "jsi18n"),
    "second_factor_setup": ("second_factor_setup", "logout", "jsi18n"),
    "password_change": ("password_change", "password_change_done", "logout", "jsi18n"),
}


class LoginForm(AuthenticationForm):
    """Answers a name longer than any login like every wrong one: the record of attempts has no room for it."""

    def clean(self) -> dict[str, Any]:
        if len(self.cleaned_data.get("username") or "") > (self.fields["username"].max_length or 0):
            raise self.get_invalid_login_error()
        return super().clean()


class OwnPasswordForm(AdminOwnPasswordChangeForm):
    """A password of one's own is another than the one that was given."""

    def clean(self) -> dict[str, Any]:
        data = super().clean()
        if "new_password1" in data and data["new_password1"] == data.get("old_password"):
            self.add_error("new_password1", _("The new password has to differ from the old one."))
        return data


class QuitsAdminSite(UnfoldAdminSite):
    """The back office. What a person sees is decided by `policy`, never by Django's model permissions."""

    site_title = gettext_lazy("Quits back office")
    site_header = gettext_lazy("Quits")
    index_title = gettext_lazy("Dashboard")
    index_template = "admin/dashboard.html"
    login_form = LoginForm
    enable_nav_sidebar = True

    def __init__(self, name: str = "admin") -> None:
        super().__init__(name)
        self.policy: AccessPolicy = DenyAll()
        self.pages: list[tuple[str, Callable[..., Any], str]] = []

    def has_permission(self, request: HttpRequest) -> bool:
        return self.policy.admits(request.user)

    def admin_view(self, view: Callable[..., Any], cacheable: bool = False) -> Callable[..., Any]:
        """Every page in the reader's zone, and only after what the person has to do first (`policy.duty`)."""
        inner = super().admin_view(view, cacheable)

        def in_zone(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if self.has_permission(request):
                duty = self.policy.duty(request, now=clock.now())
                name = request.resolver_match.url_name if request.resolver_match else ""
                if duty and name not in FREE_DURING.get(duty, ()):
                    return redirect(f"admin:{duty}")
            with timezone.override(self.policy.zone_of(request.user)):
                response = inner(request, *args, **kwargs)
                if hasattr(response, "render") and not getattr(response, "is_rendered", True):
                    response.render()
                return response

        for mark in ("csrf_exempt", "never_cache"):
            if hasattr(inner, mark):
                setattr(in_zone, mark, getattr(inner, mark))
        return in_zone

    def logout(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if request.method == "POST" and self.has_permission(request):
            self.policy.left(request, now=clock.now())
        return super().logout(request, extra_context)

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """A password of one's own, which lifts the duty to choose one."""
        request.current_app = self.name
        view = PasswordChangeView.as_view(
            form_class=OwnPasswordForm,
            success_url=reverse("admin:password_change_done"),
            extra_context={**self.each_context(request), **(extra_context or {})},
            template_name=self.password_change_template or "registration/password_change_form.html",
        )
        response: HttpResponse = view(request)  # type: ignore[assignment]
        if request.method == "POST" and response.status_code == 302:
            self.policy.password_changed(request, now=clock.now())
        return response

    def add_page(self, route: str, view: Callable[..., Any], *, name: str) -> None:
        """Put a page that belongs to no model into the back office. Its roles: scoping.register_page(name, …)."""
        self.pages.append((route, view, name))

    def get_urls(self) -> list[URLPattern]:
        """Without two views of Django's that nothing here uses: `autocomplete` names rows in plain words whatever the
        reader may know of buyers, and `view_on_site` tells whether any row of any table exists."""
        unused = ("autocomplete", "view_on_site")
        return [each for each in super().get_urls() if getattr(each, "name", None) not in unused]

    def extra_urls(self) -> list[URLPattern]:
        autodiscover_modules("charts")
        return [
            *[path(route, self.admin_view(view), name=name) for route, view, name in self.pages],
            path("find/", self.admin_view(self.find), name="find"),
            path("filters/save/", self.admin_view(require_POST(self.save_filter)), name="save_filter"),
            path("filters/forget/", self.admin_view(require_POST(self.forget_filter)), name="forget_filter"),
            path("reveal/", self.admin_view(require_POST(self.reveal)), name="reveal"),
        ]

    def scope_of(self, request: HttpRequest, now: datetime | None = None) -> desk.Scope:
        """The eyes of the person behind a request."""
        return desk.Scope(
            user=request.user,
            policy=self.policy,
            now=now or clock.now(),
            zone=self.policy.zone_of(request.user),
            merchant_id=self.policy.merchant_of(request.user),
        )

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        context = super().each_context(request)
        if self.has_permission(request):
            context["site_subheader"] = self.policy.headline_of(request.user)
        return context

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        """The dashboard: what waits for me, today's figures, and where to go."""
        scope = self.scope_of(request)
        waiting: list[dict[str, Any]] = [
            {
                "item": item,
                "count": (count := item.query(scope)),
                "text": f"{desk.CAP}+" if count > desk.CAP else str(count),
                "url": item.link.resolve(),
            }
            for item in desk.waiting_for(scope)
        ]
        figures = [
            {"item": item, "text": _shown(item, scope), "url": item.link.resolve() if item.link else ""}
            for item in desk.figures_for(scope)
        ]
        context = {
            "waiting": waiting,
            "waiting_total": sum(min(row["count"], desk.CAP) for row in waiting),
            "figures": figures,
            "charts": charts_for(scope),
            "rankings": rankings_for(scope),
            "groups": desk.navigation_for(self.policy, request.user),
            "today": scope.today_start,
            "headline": self.policy.headline_of(request.user),
            **(extra_context or {}),
        }
        return super().index(request, context)

    def find(self, request: HttpRequest) -> HttpResponse:
        """The one search box: one hit opens its page, several are listed."""
        term = request.GET.get("q", "").strip()[:80]
        hits = desk.search(self.scope_of(request), term) if term else []
        if len(hits) == 1:
            return redirect(hits[0].url)
        context = {**self.each_context(request), "title": _("Search"), "term": term, "hits": hits}
        return TemplateResponse(request, "admin/find.html", context)

    def save_filter(self, request: HttpRequest) -> HttpResponse:
        """Keep the filters of a list under a name of one's own."""
        page, back = self._list_of(request)
        query = QueryDict(request.POST.get("query", "")[:500], mutable=True)
        for name in ("p", "all", "e"):
            query.pop(name, None)
        kept, label = query.urlencode(), request.POST.get("label", "")
        try:
            self.policy.save_filter(request.user, page=page, label=label, query=kept, now=clock.now())
        except Refusal as refusal:
            messages.error(request, str(refusal.message))
        return redirect(back if "%00" in kept else f"{back}?{kept}")  # no address may hold NUL

    def forget_filter(self, request: HttpRequest) -> HttpResponse:
        """Forget a saved filter of one's own."""
        _page, back = self._list_of(request)
        try:
            filter_id = UUID(request.POST.get("filter", ""))
        except ValueError as error:
            raise Http404 from error
        self.policy.forget_filter(request.user, filter_id=filter_id, now=clock.now())
        return redirect(back)

    def _list_of(self, request: HttpRequest) -> tuple[str, str]:
        """The list that a form names, if the person may see it: its label and address."""
        label = request.POST.get("page", "")
        model = next((model for model in self._registry if model._meta.label_lower == label), None)
        if model is None or not self.policy.may(request.user, model):
            raise Http404
        return label, reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")

    def reveal(self, request: HttpRequest) -> HttpResponse:
        """Show one masked value to a person who may see it, and write down that they looked."""
        label, pk, field = (request.POST.get(name, "") for name in ("model", "pk", "field"))
        try:
            model = apps.get_model(label)
        except (LookupError, ValueError) as error:
            raise Http404 from error
        if field not in personal_fields(model) or not self.policy.may(request.user, model):
            raise PermissionDenied
        if self.policy.personal_of(request.user) == "hidden":
            raise PermissionDenied
        try:
            row = self.policy.visible(request.user, model._default_manager.all()).get(pk=pk)
        except Exception as error:  # a malformed pk, or another merchant's row: neither exists
            raise Http404 from error
        self.policy.record(request, action="reveal", subject=row, detail={"field": field}, now=clock.now())
        return JsonResponse({"value": str(personal_fields(model)[field](row) or "")})


def _shown(figure: desk.Figure, scope: desk.Scope) -> str:
    value = figure.query(scope)
    if figure.format == "count" and value > desk.CAP:
        return f"{desk.CAP:,}+"
    return shown(value, figure.format)


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The sidebar for UNFOLD["SIDEBAR"]["navigation"]."""
    home = {"title": _("Dashboard"), "icon": "space_dashboard", "link": reverse("admin:index")}
    groups: list[dict[str, Any]] = [{"title": None, "items": [home]}]
    for title, items in desk.navigation_for(site.policy, request.user):
        groups.append(
            {
                "title": str(title),
                "items": [{"title": str(item.label), "icon": item.icon, "link": item.link.resolve()} for item in items],
            }
        )
    return groups


def environment(request: HttpRequest) -> list[str] | None:
    """A label that keeps a trial installation from being taken for the real one."""
    kind = getattr(settings, "QUITS_ENV", "production")
    return None if kind == "production" else [_("Demo") if kind == "development" else kind, "warning"]


site = QuitsAdminSite(name="admin")
