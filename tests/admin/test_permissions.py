"""The permission matrix, generated from the registry: role × page × action × own or other object.

A model, a page, a button or an address that is not registered fails here.
"""

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.db.models import BooleanField, ForeignKey
from django.forms import ModelChoiceField
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from kernel.admin import QuitsAdmin, site
from kernel.admin.reveal import personal_fields
from merchants import scoping
from merchants.models import Merchant, SavedFilter, StaffAction
from merchants.roles import MERCHANT, Role
from tests.admin.rows import a_row, anything_goes
from tests.merchants.factories import a_merchant, a_person

OURS = [
    app
    for app in apps.get_app_configs()
    if str(app.path).startswith(str(settings.BASE_DIR)) and "/.venv/" not in app.path
]
# The tests have a machine of their own in the same process.
MODELS = [model for app in OURS for model in app.get_models() if not model.__module__.startswith("tests.")]
PAGES = sorted(site._registry, key=lambda model: model._meta.label)

# Addresses of Django's and the theme's own, which show nothing of ours or go through a page's own permissions.
BUILT_IN = {
    "index",
    "login",
    "logout",
    "password_change",
    "password_change_done",
    "jsi18n",
    "search",
    "app_list",
    "reveal",
    "save_filter",
    "forget_filter",
    None,  # the catch-all 404
}
WRITES = re.compile(r"\s*(INSERT|UPDATE|DELETE)\b", re.IGNORECASE)
PER_PAGE = ("changelist", "change", "add", "delete", "history", "do", "do_list", "bulk", "export")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label)
def test_every_model_is_registered(model):
    assert scoping.entry_of(model) is not None, "scoping.register(...) is missing"


def test_every_page_has_roles_and_every_role_has_a_page():
    with_view = {entry.model for entry in scoping.entries() if entry.model and entry.view}

    assert {model for model in PAGES if model not in with_view} == set(), "pages nobody may see"
    assert {model for model in with_view if model not in site._registry} == set(), "roles without a page"


@pytest.mark.parametrize("model", PAGES, ids=lambda model: model._meta.label)
def test_every_button_is_registered_and_does_something(model):
    page, entry = site._registry[model], scoping.entry_of(model)
    assert isinstance(page, QuitsAdmin)
    buttons = {button.name for button in [*page.buttons, *page.list_buttons]}

    assert buttons <= set(entry.actions), "buttons without roles"
    assert [name for name in buttons if not callable(getattr(page, f"do_{name}", None))] == []
    assert set(page.bulk) <= {button.name for button in page.buttons}


@pytest.mark.parametrize("model", PAGES, ids=lambda model: model._meta.label)
def test_filters_do_not_list_other_merchants(model):
    for item in site._registry[model].list_filter:
        name = item[0] if isinstance(item, tuple) else item
        if isinstance(name, str):
            field = model._meta.get_field(name.split("__")[0])
            assert not isinstance(field, ForeignKey), (
                f"{name}: a foreign key lists everybody's rows; use MerchantFilter"
            )
            assert field.choices or isinstance(field, BooleanField), f"{name}: Django reads the table for the values"


@pytest.mark.parametrize("entry", [e for e in scoping.entries() if e.model and e.path], ids=lambda e: e.name)
def test_every_path_leads_to_the_merchant(entry, db):
    merchant = Merchant(code="x")

    assert list(entry.model._base_manager.filter(**{entry.path: merchant.pk})[:1]) == []


def names_below(resolver) -> list[str | None]:
    found = []
    for pattern in resolver.url_patterns:
        if isinstance(pattern, URLResolver):
            found += names_below(pattern)
        elif isinstance(pattern, URLPattern):
            found.append(pattern.name)
    return found


def test_every_address_of_the_back_office_is_known():
    (desk,) = [item for item in get_resolver().url_patterns if getattr(item, "namespace", "") == "admin"]
    of_pages = {f"{model._meta.app_label}_{model._meta.model_name}_{kind}" for model in PAGES for kind in PER_PAGE}
    pages = {entry.name for entry in scoping.entries() if entry.model is None}
    pages |= {name for model in PAGES for name in site._registry[model].addresses}

    unknown = [name for name in names_below(desk) if name not in BUILT_IN | of_pages | pages]

    assert unknown == [], "scoping.register_page(<address name>, view=…) is missing"


def logged_in(role: Role, merchant: Merchant | None, now) -> Client:
    staff = a_person(role=role, merchant=merchant, now=now)
    client = Client()
    client.force_login(staff.user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def address_of(name: str, row, merchant: Merchant, now) -> str:
    """An extra address of a page, with an object of the merchant's: its pattern says of which kind."""
    (pattern,) = {pattern for pattern in patterns_below(site.urls[0]) if pattern.name == name}
    kinds = [key.removesuffix("_id") for key in pattern.pattern.converters]
    if not kinds:
        return reverse(f"admin:{name}")
    (kind,) = kinds
    if kind == "object":
        return reverse(f"admin:{name}", args=[row.pk])
    model = next(model for model in MODELS if model._meta.model_name.endswith(kind))
    if isinstance(row, model):
        return reverse(f"admin:{name}", args=[row.pk])
    made = model._base_manager.first() or a_row(model, merchant, now)
    return reverse(f"admin:{name}", args=[made.pk])


def patterns_below(found) -> Iterator[URLPattern]:
    for pattern in found:
        if isinstance(pattern, URLResolver):
            yield from patterns_below(pattern.url_patterns)
        else:
            yield pattern


@contextmanager
def writes_nothing() -> Iterator[None]:
    """What happens inside is refused before anything is written, but for the session that a first click opens."""
    with CaptureQueriesContext(connection) as seen:
        yield
    wrote = [row["sql"] for row in seen.captured_queries if WRITES.match(row["sql"])]
    assert [sql for sql in wrote if "django_session" not in sql and "staff_session" not in sql] == []


@pytest.mark.parametrize("model", PAGES, ids=lambda model: model._meta.label)
def test_matrix(model, db, now):
    entry, page = scoping.entry_of(model), site._registry[model]
    mine = a_merchant(now=now)
    with anything_goes():
        row, base = a_row(model, mine, now), f"admin:{model._meta.app_label}_{model._meta.model_name}"
        for role in Role:
            client = logged_in(role, mine, now)
            sees = role in entry.view
            shown = role not in MERCHANT or entry.path is not None
            change, listed = reverse(f"{base}_change", args=[row.pk]), reverse(f"{base}_changelist")
            assert client.get(listed).status_code == (200 if sees else 403), role
            assert client.get(change).status_code == ((200 if shown else 404) if sees else 403), role
            exports = sees and bool(page.export_columns) and role in entry.actions.get("export", ())
            assert client.get(reverse(f"{base}_export")).status_code == (200 if exports else 403), role
            with writes_nothing():  # nobody saves a form of Django's, adds or deletes
                assert client.post(reverse(f"{base}_add"), {"id": "1"}).status_code == 403, role
                assert client.post(change, {"id": "1"}).status_code in (403, 404), role
                assert client.post(reverse(f"{base}_delete", args=[row.pk]), {"post": "yes"}).status_code in (403, 404)
                ticked = {"action": "delete_selected", "_selected_action": [str(row.pk)], "index": "0", "post": "yes"}
                assert client.post(listed, ticked).status_code in (200, 302, 403), role
            for action, roles in entry.actions.items():
                press_everything(client, model, row, action, may=sees and role in roles, shown=shown)
            for name, action in page.addresses.items():
                may = sees and (action == "view" or role in entry.actions[action])
                status = client.get(address_of(name, row, mine, now)).status_code
                assert status not in (403, 500) if may else status in (403, 404, 405), (role, name, status)
        assert model._base_manager.filter(pk=row.pk).exists()


def press_everything(client: Client, model, row, action: str, *, may: bool, shown: bool) -> None:
    """An action by every door: the object's button, the list's, the ticked rows'. Open to whom the registry says."""
    page, base = site._registry[model], f"admin:{model._meta.app_label}_{model._meta.model_name}"
    on_object = action in {button.name for button in page.buttons}
    on_list = action in {button.name for button in page.list_buttons}
    doors = {
        reverse(f"{base}_do", args=[row.pk, action]): may and shown and on_object,
        reverse(f"{base}_do_list", args=[action]): may and on_list,
        reverse(f"{base}_bulk", args=[action]): may and action in page.bulk,
    }
    for address, is_open in doors.items():
        if not is_open:
            with writes_nothing():
                posted = client.post(address, {"once": "x", "ids": [str(row.pk)]})
            assert posted.status_code in (403, 404), address
        elif "/bulk/" not in address:
            assert client.get(address).status_code in (200, 302), address


@pytest.mark.parametrize("model", PAGES, ids=lambda model: model._meta.label)
def test_another_merchants_object_does_not_exist(model, db, now):
    entry, page = scoping.entry_of(model), site._registry[model]
    mine, other = a_merchant(now=now), a_merchant(code="nut-shop", name="坚果铺", now=now)
    with anything_goes():
        row, base = a_row(model, mine, now), f"admin:{model._meta.app_label}_{model._meta.model_name}"
        for role in sorted(MERCHANT & entry.view):
            stranger = logged_in(role, other, now)
            listed = stranger.get(reverse(f"{base}_changelist"))
            extra = [address_of(name, row, mine, now) for name in page.addresses]
            with writes_nothing():
                assert row.pk not in [shown.pk for shown in listed.context["cl"].result_list]
                assert stranger.get(reverse(f"{base}_change", args=[row.pk])).status_code == 404
                for action in entry.actions:
                    one = reverse(f"{base}_do", args=[row.pk, action])
                    assert stranger.get(one).status_code in (403, 404)
                    assert stranger.post(one, {"once": "x"}).status_code in (403, 404)
                    bulk = stranger.post(reverse(f"{base}_bulk", args=[action]), {"once": "x", "ids": [str(row.pk)]})
                    assert bulk.status_code in (403, 404) or not [*bulk.context.get("results", []), *rows_in(bulk)]
                for address in extra:
                    assert stranger.get(address).status_code in (403, 404), address
                for name in personal_fields(model):
                    asked = {"model": model._meta.label_lower, "pk": str(row.pk), "field": name}
                    assert stranger.post(reverse("admin:reveal"), asked).status_code in (403, 404)
                for name in page.bulk:
                    ticked = {"action": name, "_selected_action": [str(row.pk)], "index": "0"}
                    asked = stranger.post(reverse(f"{base}_changelist"), ticked)
                    assert not (asked.context and rows_in(asked))
            if page.export_columns and role in entry.actions["export"]:
                text = b"".join(stranger.get(reverse(f"{base}_export")).streaming_content).decode()
                assert text.count("\r\n") == (2 if model is StaffAction else 1), "the head alone, and one's own export"


def rows_in(answer) -> list:
    return list(answer.context.get("rows") or [])


@pytest.mark.parametrize("model", PAGES, ids=lambda model: model._meta.label)
def test_no_column_can_be_asked_for_that_is_no_filter(model, db, now):
    """`?user_id__startswith=a` would tell, letter by letter, what a reader may not see."""
    page, entry = site._registry[model], scoping.entry_of(model)
    client = logged_in(next(role for role in Role if role in entry.view), a_merchant(now=now), now)
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")

    for field in model._meta.concrete_fields:
        for test in ("startswith", "exact", "gt"):
            if field.name in page.list_filter and test == "exact":
                continue
            assert client.get(address, {f"{field.name}__{test}": "1"}).status_code == 400, field.name


@pytest.mark.parametrize("role", sorted(MERCHANT))
def test_no_form_offers_other_merchants(role, rf, db, now):
    mine, other = a_merchant(now=now), a_merchant(code="nut-shop", name="坚果铺", now=now)
    staff = a_person(role=role, merchant=mine, now=now)
    a_person(role=role, merchant=other, now=now)
    request = rf.get("/")
    request.user = staff.user
    for model in PAGES:
        entry, page = scoping.entry_of(model), site._registry[model]
        for button in [*page.buttons, *page.list_buttons]:
            if button.form and role in entry.view and role in entry.actions[button.name]:
                with anything_goes(), transaction.atomic():
                    row = a_row(model, mine, now) if button in page.buttons else None
                    form = button.form(obj=row, request=request)
                for field in form.fields.values():
                    if isinstance(field, ModelChoiceField):
                        offered = {scoping.merchant_id_of(choice) for choice in field.queryset}
                        assert offered <= {mine.pk}, (model, button.name)


def test_filters_of_others_stay_theirs(db, now):
    merchant = a_merchant(now=now)
    owner, service = logged_in(Role.MERCHANT_OWNER, merchant, now), logged_in(Role.CUSTOMER_SERVICE, merchant, now)
    page = {"page": "orders.order", "label": "Mine", "query": "status__exact=10"}
    assert owner.post(reverse("admin:save_filter"), page).status_code == 302
    kept = SavedFilter.objects.get()

    assert service.post(reverse("admin:forget_filter"), {**page, "filter": str(kept.pk)}).status_code in (302, 404)
    assert service.post(reverse("admin:save_filter"), {**page, "page": "merchants.staff"}).status_code == 404
    assert service.get(reverse("admin:save_filter")).status_code == 405
    assert list(SavedFilter.objects.all()) == [kept]


def test_nul_and_odd_values_in_the_frames_own_forms_are_refused(db, now):
    merchant = a_merchant(now=now)
    owner = logged_in(Role.MERCHANT_OWNER, merchant, now)
    page = {"page": "orders.order", "label": "Mine", "query": "status__exact=10"}
    for odd in ({"label": "a\x00b"}, {"query": "q=a\x00b"}, {"query": "q=%00"}, {"query": "\x00"}):
        answer = owner.post(reverse("admin:save_filter"), {**page, **odd}, follow=True)
        assert answer.status_code == 200, odd
        assert [message.level_tag for message in answer.context["messages"]] == ["error"], odd
    assert not SavedFilter.objects.exists()
    assert owner.post(reverse("admin:save_filter"), {**page, "page": "orders\x00.order"}).status_code == 404

    for odd in ("", "\x00", "x", "１" * 31, "9" * 400):
        assert owner.post(reverse("admin:forget_filter"), {**page, "filter": odd}).status_code == 404, odd

    service = logged_in(Role.CUSTOMER_SERVICE, None, now)
    shown = {"model": "orders.order", "pk": "1", "field": next(iter(personal_fields(apps.get_model("orders.order"))))}
    for name, odd in itertools.product(shown, ("", "\x00", ".", "a.b.c", "é", "9" * 400)):
        answer = service.post(reverse("admin:reveal"), {**shown, name: odd})
        assert answer.status_code in (403, 404), (name, odd)


def test_an_export_with_odd_filters_leads_to_the_list(db, now):
    client = logged_in(Role.MERCHANT_OWNER, a_merchant(now=now), now)

    answer = client.get("/admin/orders/order/export.csv?status__exact=x")

    assert (answer.status_code, answer["Location"]) == (302, "/admin/orders/order/?e=1")


def test_every_address_outside_the_back_office_and_the_api_is_known():
    """No page of a broker, of a profiler or of Django's own stands open beside the back office."""
    found = [
        (str(item.pattern), getattr(item, "name", None))
        for item in get_resolver().url_patterns
        if getattr(item, "namespace", "") != "admin" and not str(item.pattern).startswith("api/v1/")
    ]

    assert found == [
        ("", "home"),
        ("i18n/", None),
        ("healthz", "healthz"),
        ("readyz", "readyz"),
        ("metrics", "metrics"),
        ("api/schema", "schema"),
        ("api/docs", "docs"),
    ]


def test_nobody_comes_in_without_staff(db, now):
    user = get_user_model().objects.create_user("loose", password="p4ssw0rd-enough", is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")

    for model in PAGES:
        address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        assert client.get(address).status_code == 302
    assert client.get(reverse("admin:index")).status_code == 302


def test_a_switched_off_merchant_lets_nobody_in(db, now):
    merchant = a_merchant(now=now)
    client = logged_in(Role.MERCHANT_OWNER, merchant, now)
    assert client.get(reverse("admin:index")).status_code == 200

    Merchant.objects.filter(pk=merchant.pk).update(is_active=False)

    assert client.get(reverse("admin:index")).status_code == 302
