"""The permission matrix, generated from the registry: role × page × action × own or other object.

A model, a page, a button or an address that is not registered fails here.
"""

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import ForeignKey
from django.test import Client
from django.urls import NoReverseMatch, URLPattern, URLResolver, get_resolver, reverse

from kernel.admin import QuitsAdmin, site
from merchants import scoping
from merchants.models import Merchant
from merchants.roles import MERCHANT, Role
from tests.admin.rows import a_row, anything_goes
from tests.merchants.factories import a_merchant, a_person

OURS = [
    app
    for app in apps.get_app_configs()
    if str(app.path).startswith(str(settings.BASE_DIR)) and "/.venv/" not in app.path
]
MODELS = [model for app in OURS for model in app.get_models()]
PAGES = sorted(site._registry, key=lambda model: model._meta.label)

# Addresses of Django's and the theme's own, which show nothing of ours or go through a page's own permissions.
BUILT_IN = {
    "index",
    "login",
    "logout",
    "password_change",
    "password_change_done",
    "autocomplete",
    "jsi18n",
    "view_on_site",
    "search",
    "app_list",
    "reveal",
    "save_filter",
    "forget_filter",
    None,  # the catch-all 404
}
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


def address_of(name: str, row) -> str:
    """An extra address of a page, with the row where it takes one."""
    try:
        return reverse(f"admin:{name}", args=[row.pk])
    except NoReverseMatch:
        return reverse(f"admin:{name}")


@pytest.mark.parametrize("model", PAGES, ids=lambda model: model._meta.label)
def test_matrix(model, db, now):
    entry = scoping.entry_of(model)
    page = site._registry[model]
    mine, other = a_merchant(now=now), a_merchant(code="nut-shop", name="坚果铺", now=now)
    with anything_goes():
        people = {role: logged_in(role, mine, now) for role in Role}
        stranger = logged_in(Role.MERCHANT_OWNER, other, now)
        row = a_row(model, mine, now)
        base = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        buttons = {button.name for button in page.buttons}

        for role, client in people.items():
            sees = role in entry.view
            shown = role not in MERCHANT or entry.path is not None
            expected = (200 if shown else 404) if sees else 403
            assert client.get(reverse(f"{base}_changelist")).status_code == (200 if sees else 403), role
            assert client.get(reverse(f"{base}_change", args=[row.pk])).status_code == expected, role
            assert client.get(reverse(f"{base}_add")).status_code == 403, role
            assert client.get(reverse(f"{base}_delete", args=[row.pk])).status_code in (403, 404), role
            for action, roles in entry.actions.items():
                may = sees and role in roles
                if action in buttons:
                    address = reverse(f"{base}_do", args=[row.pk, action])
                    allowed = (200, 302) if may and shown else (404, 403)
                else:
                    address = reverse(f"{base}_do_list", args=[action])
                    known = any(button.name == action for button in page.list_buttons)
                    allowed = (200, 302) if may and known else (403, 404)
                assert client.get(address).status_code in allowed, (role, action)
                if not (may and shown):
                    assert client.post(address, {"once": "x"}).status_code in (403, 404), (role, action)
            exports = sees and bool(page.export_columns) and role in entry.actions.get("export", ())
            assert client.get(reverse(f"{base}_export")).status_code == (200 if exports else 403), role
            for name, action in page.addresses.items():
                may = sees and (action == "view" or role in entry.actions[action])
                status = client.get(address_of(name, row)).status_code
                assert status not in (403, 500) if may else status in (403, 404, 405), (role, name, status)

        if Role.MERCHANT_OWNER in entry.view:
            assert stranger.get(reverse(f"{base}_change", args=[row.pk])).status_code == 404
            listed = stranger.get(reverse(f"{base}_changelist"))
            assert listed.status_code == 200
            assert row.pk not in [shown.pk for shown in listed.context["cl"].result_list]
            for action in buttons:
                address = reverse(f"{base}_do", args=[row.pk, action])
                assert stranger.get(address).status_code in (403, 404)
                assert stranger.post(address, {"once": "x"}).status_code in (403, 404)
                bulk = stranger.post(reverse(f"{base}_bulk", args=[action]), {"once": "x", "ids": [str(row.pk)]})
                assert bulk.status_code in (403, 404) or bulk.context.get("results", []) == []


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
