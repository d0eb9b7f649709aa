"""QuitsAdmin: a list and a page that read, scoped to the reader, with buttons that call commands."""

import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ERROR_FLAG
from django.core.exceptions import PermissionDenied
from django.db.models import BigIntegerField, DateField, Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.admin import ModelAdmin
from unfold.views import ChangeList

from kernel import clock
from kernel.admin import buttons as press
from kernel.admin import export, legend
from kernel.admin.buttons import Button
from kernel.admin.columns import mask
from kernel.admin.export import Column
from kernel.admin.filters import CappedPaginator
from kernel.admin.naming import speak
from kernel.admin.reveal import declare, name_for, personal_fields
from kernel.admin.site import QuitsAdminSite, site
from kernel.errors import IllegalTransition, NotFound, Refusal, VersionConflict

A = TypeVar("A", bound="type[ModelAdmin]")
LATELY = timedelta(minutes=30)
"""A change that a person whose page is stale may have overlooked."""
INCOMPLETE = gettext_lazy("The form came without its own token, so nothing was done. Look again and send it once more.")


class NotSeen(VersionConflict):
    message = gettext_lazy("The form does not say which version you looked at, so nothing was done. Look again.")


def register(*models: type[Model]) -> Callable[[A], A]:
    """Class decorator: put a page on the back office."""
    return admin.register(*models, site=site)  # type: ignore[return-value]


def personal(field: str, label: str | Promise, read: Callable[[Any], Any] | None = None) -> "Personal":
    """A column of personal data for `list_display` and `fields` of a QuitsAdmin: plain for the buyer's merchant,
    masked with a logged reveal for the house, hidden from finance."""
    return Personal(field, label, read)


class Personal:
    """Bound to its page's site when the page is made; reads the viewer from the page's current request."""

    def __init__(self, field: str, label: str | Promise, read: Callable[[Any], Any] | None) -> None:
        self.field, self.label, self.read = field, label, read


class OfferedOrder(ChangeList):
    """Sorts as the headers offer; the address bar offers nothing more."""

    def get_ordering_field(self, field_name: Any) -> Any:
        return super().get_ordering_field(field_name) if field_name in self.sortable_by else None


class QuitsAdmin(ModelAdmin):
    """Read-only. No add, change or delete: only buttons, each behind a role of the registry and one command.

    `buttons` act on one object, `list_buttons` on none, `bulk` names the buttons offered for ticked rows. Button
    `x` calls `do_x(request, obj, data, *, key, now)`, which returns the message to show or an HttpResponse.
    """

    buttons: list[Button] = []
    list_buttons: list[Button] = []
    bulk: list[str] = []
    stays_short = False
    """Whether people make the rows one by one, so that every column may sort without an index."""
    addresses: dict[str, str] = {}
    """URL names that `get_urls` adds beside the usual ones → the action (or "view") whose roles may open them."""
    audit_fields: list[str] = ["status", "version"]
    list_hint: str | Promise = ""
    """One line under the list's title: what this list is for."""
    empty_hint: str | Promise = gettext_lazy("Nothing here yet, or a filter is set.")
    """What an empty list says."""
    legends: list[legend.Legend] = []
    """What each status means, in a line."""
    export_columns: list[Column] = []
    """(label, path or function) of the list as CSV, for roles with the action "export"; empty: no export."""

    change_form_template = "admin/object_page.html"
    change_list_template = "admin/object_list.html"
    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # they count every row behind every filter
    list_per_page = 50
    list_max_show_all = 50
    actions_on_top = True
    list_filter_submit = False
    save_on_top = False
    admin_site: QuitsAdminSite

    # Permissions: the registry alone.

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.admin_site.policy.may(request.user, self.model)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.admin_site.policy.may(request.user, self.model)

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return self.admin_site.policy.visible(request.user, super().get_queryset(request))

    def _get_obj_does_not_exist_redirect(self, request: HttpRequest, *args: Any) -> HttpResponse:
        raise Http404

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """The audit trail of one object, for whoever may read the trail."""
        raise Http404

    # Reading.

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        if self.fields:
            return self.fields
        return [field.name for field in self.model._meta.fields if not field.name.endswith("_encrypted")]

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Only the filters that the list offers. Django allows a lookup by any column of the model, and so would let
        people ask, letter by letter, for personal data that they may not see."""
        name, _sep, test = lookup.partition("__")
        if name not in {field.name for field in self.model._meta.concrete_fields}:
            return True  # a filter of the page's own, or nothing at all
        offered = {item for item in self.list_filter if isinstance(item, str)}
        own = {getattr(item, "parameter_name", "") for item in self.list_filter}
        return lookup in own or (name in offered and test in ("", "exact", "in", "isnull"))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return OfferedOrder

    def get_sortable_by(self, request: HttpRequest) -> list[Any]:
        """Headers sort where an index does: any other column would sort the whole table for fifty rows."""
        return [
            name for name in self.list_display if self.stays_short or sorts_by_index(self.model, self._order_of(name))
        ]

    def _order_of(self, column: Any) -> str:
        """The field by which a column of the list would sort, or ""."""
        if isinstance(column, Personal):
            return ""
        reader = getattr(self, column, None) if isinstance(column, str) else column
        return getattr(reader, "admin_order_field", None) or (column if isinstance(column, str) else "")

    def get_list_display_links(self, request: HttpRequest, list_display: Any) -> Any:
        return super().get_list_display_links(request, list_display)

    def masked(self, request: HttpRequest, obj: Model, name: str) -> SafeString | str:
        """A personal value as this reader may see it."""
        value = str(personal_fields(type(obj))[name](obj) or "")
        how = self.admin_site.policy.personal_of(request.user)
        if not value or how == "plain":
            return value or "–"
        if how == "hidden":
            return "••••"
        return format_html(
            '<span class="q-masked"><span data-masked>{}</span> <button type="button" class="q-link" data-reveal="{}"'
            ' data-model="{}" data-pk="{}" data-field="{}">{}</button></span>',
            mask(value),
            reverse("admin:reveal"),
            obj._meta.label_lower,
            obj.pk,
            name,
            _("Reveal"),
        )

    def _with_personal(self, request: HttpRequest, names: Any) -> list[Any]:
        return [self._reader(request, name) if isinstance(name, Personal) else name for name in names]

    def _reader(self, request: HttpRequest, column: Personal) -> Callable[[Any], Any]:
        @admin.display(description=column.label)  # type: ignore[arg-type]
        def read(obj: Model) -> Any:
            return self.masked(request, obj, column.field)

        read.__name__ = f"personal_{column.field}"
        return read

    def get_list_display(self, request: HttpRequest) -> Any:
        return self._with_personal(request, super().get_list_display(request))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self._with_personal(request, super().get_readonly_fields(request, obj))

    # Buttons.

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        wrap = self.admin_site.admin_view
        return [
            path("do/<slug:button>/", wrap(self.list_button_view), name=f"{name}_do_list"),
            path("bulk/<slug:button>/", wrap(self.bulk_view), name=f"{name}_bulk"),
            path("export.csv", wrap(self.export_view), name=f"{name}_export"),
            path("<path:object_id>/do/<slug:button>/", wrap(self.button_view), name=f"{name}_do"),
            *super().get_urls(),
        ]

    def button_named(self, request: HttpRequest, name: str, among: list[Button]) -> Button:
        """The button, if it exists and the person's role may press it."""
        button = next((item for item in among if item.name == name), None)
        if button is None:
            raise Http404
        if not self.admin_site.policy.may(request.user, self.model, name):
            raise PermissionDenied
        return button

    def object_or_404(self, request: HttpRequest, object_id: str) -> Any:
        """The object, if it is among those this person may see."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        obj = self.get_object(request, object_id)
        if obj is None:
            raise Http404
        return obj

    def offered(self, request: HttpRequest, obj: Any) -> list[dict[str, Any]]:
        """The buttons this person may press on this object now."""
        may = partial(self.admin_site.policy.may, request.user, self.model)
        return [
            {"button": item, "url": self.button_url(obj, item.name)}
            for item in self.buttons
            if may(item.name) and item.allowed(obj)
        ]

    def button_url(self, obj: Any, name: str) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_do", args=[obj.pk, name])

    def row_buttons(self, request: HttpRequest, *names: str) -> Callable[[Any], Any]:
        """A list column with links to buttons; call it in `get_list_display`."""

        @admin.display(description=gettext_lazy("Actions"))
        def column(obj: Any) -> SafeString:
            items = [row for row in self.offered(request, obj) if not names or row["button"].name in names]
            links = format_html_join(
                " ",
                '<a class="q-button q-button-small q-button-{}" href="{}">{}</a>',
                ((row["button"].variant, row["url"], row["button"].label) for row in items),
            )
            return format_html('<span class="q-row-buttons">{}</span>', links)

        column.__name__ = "row_buttons"
        return column

    def name_of(self, request: HttpRequest, obj: Any) -> str:
        """What an object is called above its page."""
        return name_for(obj, self.admin_site.policy.personal_of(request.user))

    def page_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """Hook: what the page's own template needs."""
        return {}

    def form_initial(self, request: HttpRequest, obj: Any, button: Button) -> dict[str, Any]:
        """Hook: what a button's form starts with."""
        return {}

    def page_url(self, obj: Any) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[obj.pk])

    def list_url(self) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")

    def change_view(self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None) -> Any:
        obj = self.object_or_404(request, object_id)
        context = {
            "desk_buttons": self.offered(request, obj),
            "show_save": False,
            "show_save_and_continue": False,
            "show_close": False,
            "list_url": self.list_url(),
            "subtitle": self.name_of(request, obj),
            "shown_name": self.name_of(request, obj),
            "status_lines": legend.said_of(obj, self.legends),
            **self.page_context(request, obj),
            **(extra_context or {}),
        }
        return super().change_view(request, object_id, form_url, context)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        may = partial(self.admin_site.policy.may, request.user, self.model)
        context = {
            "desk_list_buttons": [
                {"button": item, "url": self._list_button_url(item.name)}
                for item in self.list_buttons
                if may(item.name)
            ],
            "export_url": self._export_url(request),
            "saved_filters": self.admin_site.policy.filters_of(request.user, self.opts.label_lower),
            "page_label": self.opts.label_lower,
            "list_hint": self.list_hint,
            "legends": legend.listed(self.model, self.legends),
            **(extra_context or {}),
        }
        return super().changelist_view(request, context)

    def _may_export(self, request: HttpRequest) -> bool:
        return bool(self.export_columns) and self.admin_site.policy.may(request.user, self.model, "export")

    def _export_url(self, request: HttpRequest) -> str:
        if not self._may_export(request):
            return ""
        filters = request.GET.urlencode()
        path = reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_export")
        return f"{path}?{filters}" if filters else path

    def export_view(self, request: HttpRequest) -> HttpResponseBase:
        """The list as CSV, with the filters, the search and the order of the page."""
        if not self.has_view_permission(request) or not self._may_export(request):
            raise PermissionDenied
        try:
            rows = self.get_changelist_instance(request).queryset
        except IncorrectLookupParameters:  # as the list itself answers
            return redirect(f"{self.list_url()}?{ERROR_FLAG}=1")
        policy = self.admin_site.policy
        policy.record(
            request,
            action="export",
            subject=None,
            subject_type=self.opts.label_lower,
            detail={"filters": request.GET.urlencode()[:500]},
            now=clock.now(),
        )
        return export.response(
            rows,
            self.export_columns,
            how=policy.personal_of(request.user),
            name=self.opts.model_name or "list",
            zone=policy.zone_of(request.user),
        )

    def _list_button_url(self, name: str) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_do_list", args=[name])

    def button_view(self, request: HttpRequest, object_id: str, button: str) -> HttpResponse:
        """GET asks, POST acts on one object."""
        obj = self.object_or_404(request, object_id)
        chosen = self.button_named(request, button, self.buttons)
        if not chosen.allowed(obj):
            messages.warning(
                request, self.who_was_there(obj) or _("This is no longer possible: the state has changed.")
            )
            return redirect(self.page_url(obj))
        return self._ask_or_act(request, chosen, obj, back=self.page_url(obj))

    def list_button_view(self, request: HttpRequest, button: str) -> HttpResponse:
        """GET asks, POST acts without an object (create something, start a run)."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return self._ask_or_act(request, self.button_named(request, button, self.list_buttons), None, self.list_url())

    def _ask_or_act(self, request: HttpRequest, button: Button, obj: Any, back: str) -> HttpResponse:
        form, once = self._form(request, button, obj, bulk=False), press.once_of(request)
        if request.method == "POST" and not once:
            messages.error(request, INCOMPLETE)
        elif request.method == "POST" and (form is None or form.is_valid()):
            data = dict(form.cleaned_data) if form else {}
            refusal, said = self._act(request, button, obj, data, once, seen=request.POST.get("seen_version", ""))
            if isinstance(said, HttpResponse):
                return said
            if isinstance(refusal, VersionConflict | IllegalTransition) and not refusal.data.get("changed_by"):
                said = (self.who_was_there(obj) if obj else "") or said
            if refusal is None or form is None or isinstance(refusal, VersionConflict | IllegalTransition):
                messages.add_message(request, messages.ERROR if refusal else messages.SUCCESS, said)
                return redirect(back)
            press.tell(form, refusal)
        context = {
            **self.admin_site.each_context(request),
            "title": button.label,
            "subtitle": self.name_of(request, obj) if obj else None,
            "shown_name": self.name_of(request, obj) if obj else "",
            "opts": self.opts,
            "media": self.media + form.media if form else self.media,
            "button": button,
            "obj": obj,
            "question": button.question(obj),
            "form": form,
            "once": once or press.new_once(),
            "seen_version": request.POST.get("seen_version") or getattr(obj, "version", ""),
            "back": back,
            "list_url": self.list_url(),
        }
        return TemplateResponse(request, "admin/button.html", context)

    def who_was_there(self, obj: Any) -> str:
        """Who changed the object before this person could, and when; "" when no colleague did lately."""
        last = self.admin_site.policy.last_change(obj)
        if last is None or clock.now() - last[1] > LATELY:
            return ""
        return _("Changed by %(who)s at %(when)s. This is how it stands now: look again, then decide.") % {
            "who": last[0],
            "when": timezone.localtime(last[1]).strftime("%H:%M:%S"),
        }

    def _form(self, request: HttpRequest, button: Button, obj: Any, *, bulk: bool) -> Any:
        if button.form is None:
            return None
        if request.method == "POST" and press.once_of(request):
            return button.form(request.POST, request.FILES, obj=obj, request=request)
        initial = {} if bulk else self.form_initial(request, obj, button)
        return button.form(initial=initial, obj=obj, request=request)

    def _act(
        self, request: HttpRequest, button: Button, obj: Any, data: dict[str, Any], once: str, *, seen: str
    ) -> tuple[Refusal | None, Any]:
        """Call the page's handler; tell success from refusal; write it down either way. `seen`: the page's version."""
        policy, now = self.admin_site.policy, clock.now()
        before = self.snapshot(obj)
        merchant_id = policy.merchant_id_of(obj) if obj else policy.merchant_of(request.user)
        key = press.key_of(
            once=once, merchant_id=merchant_id, button=button.name, subject=str(obj.pk) if obj else "", data=data
        )
        refused: Refusal | None = None
        try:
            data["seen_version"] = _version_seen(obj, seen)
            said = getattr(self, f"do_{button.name}")(request, obj, data, key=key, now=now)
        except NotFound as error:
            raise Http404 from error
        except Refusal as refusal:
            refused, said = refusal, str(refusal.message)
        fresh = type(obj)._default_manager.filter(pk=obj.pk).first() if obj else None
        policy.record(
            request,
            action=button.name,
            subject=obj,
            subject_type=self.opts.label_lower,
            outcome=refused.code if refused else "repeated" if isinstance(said, press.Again) else "done",
            before=before,
            after=self.snapshot(fresh),
            detail=press.loggable(data, personal=button.form.personal if button.form else frozenset()),
            now=now,
        )
        return refused, said or _("Done.")

    def snapshot(self, obj: Any) -> dict[str, Any]:
        """The fields of an object that the audit trail compares."""
        if obj is None:
            return {}
        names = [name for name in self.audit_fields if hasattr(obj, name)]
        return {name: _plain(getattr(obj, name)) for name in names}

    # Ticked rows.

    def get_actions(self, request: HttpRequest) -> Any:
        offered = {}
        for name in self.bulk:
            button = next(item for item in self.buttons if item.name == name)
            if self.admin_site.policy.may(request.user, self.model, name):
                offered[name] = (partial(_start_bulk, button), name, button.label)
        return offered

    def get_action_choices(self, request: HttpRequest, default_choices: Any = None) -> Any:
        actions = self.get_actions(request)
        return [("", _("Select action")), *((name, str(label)) for _f, name, label in actions.values())]

    def bulk_view(self, request: HttpRequest, button: str) -> HttpResponse:
        """Act on many rows, each by its own command: one refused row stops nothing, each row says what happened.

        The page sends them a few at a time and asks for JSON, so that people see it progress; without a script all of
        them come at once. The one-time token is the same, so that a row sent twice is done once.
        """
        if request.method != "POST" or not self.has_view_permission(request):
            raise PermissionDenied
        if button not in self.bulk:
            raise Http404
        chosen = self.button_named(request, button, self.buttons)
        picked = request.POST.getlist("ids")[: press.BULK_LIMIT]
        rows = list(self.get_queryset(request).filter(pk__in=_valid_pks(self.model, picked)))
        form = self._form(request, chosen, None, bulk=True)
        if form is not None and not form.is_valid():
            return self.ask_bulk(request, chosen, rows, form)
        once, results = press.once_of(request), []
        if not once:
            return self.ask_bulk(request, chosen, rows, form)
        for obj in rows:
            data = dict(form.cleaned_data) if form else {}
            seen = request.POST.get(f"seen_{obj.pk}", "")
            ok, said = self._act_row(request, chosen, obj, data, once, seen=seen)
            results.append(
                {"obj": obj, "name": self.name_of(request, obj), "url": self.page_url(obj), "ok": ok, "said": said}
            )
        if request.headers.get("Accept") == "application/json":
            return JsonResponse({"rows": [_told(row) for row in results]})
        context = {
            **self.admin_site.each_context(request),
            "title": chosen.label,
            "opts": self.opts,
            "media": self.media,
            "button": chosen,
            "results": results,
            "done": sum(row["ok"] for row in results),
            "list_url": self.list_url(),
        }
        return TemplateResponse(request, "admin/bulk_result.html", context)

    def _act_row(
        self, request: HttpRequest, button: Button, obj: Any, data: dict[str, Any], once: str, *, seen: str
    ) -> tuple[bool, Any]:
        if not button.allowed(obj):
            return False, self.who_was_there(obj) or _("Not possible in this state.")
        try:
            refusal, said = self._act(request, button, obj, data, once, seen=seen)
        except Http404:
            return False, _("There is no such object.")
        return refusal is None, _("Done.") if isinstance(said, HttpResponse) else said

    def ask_bulk(self, request: HttpRequest, button: Button, rows: list[Any], form: Any) -> TemplateResponse:
        """The page that asks before many rows are acted on."""
        context = {
            **self.admin_site.each_context(request),
            "title": button.label,
            "opts": self.opts,
            "media": self.media,
            "button": button,
            "rows": [self._asked(request, button, row) for row in rows],
            "form": form,
            "once": press.new_once(),
            "action_url": reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_bulk", args=[button.name]),
            "list_url": self.list_url(),
        }
        return TemplateResponse(request, "admin/bulk.html", context)

    def _asked(self, request: HttpRequest, button: Button, row: Any) -> dict[str, Any]:
        """One row of the question: what would happen to it, with its amounts."""
        allowed = button.allowed(row)
        return {
            "obj": row,
            "name": self.name_of(request, row),
            "allowed": allowed,
            "question": button.question(row) if allowed and callable(button.confirm) else "",
            "version": getattr(row, "version", ""),
        }

    def __init__(self, model: type[Model], admin_site: Any) -> None:
        super().__init__(model, admin_site)
        speak(model)
        for name in [*self.list_display, *self.readonly_fields]:
            if isinstance(name, Personal):
                declare(model, name.field, name.read)


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """The result of one row for the page's script."""
    return {"pk": str(row["obj"].pk), "ok": row["ok"], "said": str(row["said"]), "url": row["url"]}


def sorts_by_index(model: type[Model], order: str) -> bool:
    """Whether a whole index of the model begins with this field, and the field tells rows apart: an index that begins
    with one of three channels leaves a third of the table to be sorted."""
    meta, wanted = model._meta, order.removeprefix("-")
    indexed = {index.fields[0].removeprefix("-") for index in meta.indexes if index.fields and not index.condition}
    moments = {field.name for field in meta.concrete_fields if isinstance(field, DateField | BigIntegerField)}
    numbers = {rule.fields[0] for rule in meta.total_unique_constraints if rule.fields[0].endswith("_no")}
    return wanted in (indexed & moments) | numbers | {field.name for field in meta.concrete_fields if field.unique}


def _start_bulk(button: Button, page: QuitsAdmin, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
    rows = list(queryset[: press.BULK_LIMIT])
    return page.ask_bulk(request, button, rows, page._form(request, button, None, bulk=True))


def _valid_pks(model: type[Model], values: list[str]) -> list[Any]:
    valid = []
    for value in values:
        try:
            valid.append(model._meta.pk.to_python(value))
        except Exception:  # noqa: S112
            continue
    return valid


def _version_seen(obj: Any, text: str) -> int | None:
    """The version of the object that the person looked at; None for things without one.

    Raises NotSeen when the form does not say it: nobody acts on what they did not see.
    """
    if not hasattr(obj, "version"):
        return None
    if re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) is None:
        raise NotSeen
    return int(text)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, str | int | bool | float) else str(value)
