"""Every page asks the database the same number of questions however much there is, and never counts a whole table.

The pages, their roles, filters and buttons come from the registry: a page that nobody measures fails here.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core.cache import cache
from django.db import IntegrityError, connection, models, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import get_resolver, reverse

from kernel.admin import site
from merchants import scoping
from merchants.models import Merchant
from merchants.roles import MERCHANT, Role
from tests.admin.rows import SECRET, Parents, a_row, anything_goes
from tests.admin.test_permissions import MODELS, PAGES, PER_PAGE, logged_in, names_below
from tests.merchants.factories import a_merchant

FEW, MANY = 3, 30
COUNT = re.compile(r"\bCOUNT\(", re.IGNORECASE)
SCOPE = re.compile(r'"\w+"\."merchant_id" = \S+')
FORMS_AND_DOORS = {
    "login",
    "logout",
    "password_change",
    "password_change_done",
    "second_factor",
    "second_factor_setup",
    "jsi18n",
    "search",
    "app_list",
    "reveal",
    "save_filter",
    "forget_filter",
    "aftersales_evidence_image",
    "reconciliation_bill",
    None,
}
"""Addresses that show one thing, or nothing that grows."""
MEASURED_ALONE = {"index", "find", "reconciliation_run_export"}


def counts_a_table(sql: str) -> bool:
    """Whether a statement counts rows without a limit and without a condition but the merchant."""
    if not COUNT.search(sql) or " LIMIT " in sql:
        return False
    _head, _where, conditions = sql.partition(" WHERE ")
    return not SCOPE.sub("", conditions).strip(" ()")


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ('SELECT COUNT(*) AS "__count" FROM "orders"', True),
        ('SELECT COUNT(*) AS "__count" FROM "orders" WHERE "orders"."merchant_id" = \'00-1\'::uuid', True),
        ('SELECT COUNT(*) FROM (SELECT 1 FROM "orders" LIMIT 10001) subquery', False),
        ('SELECT COUNT(*) AS "__count" FROM "orders" WHERE "orders"."paid_at" >= now()', False),
        ('SELECT "orders"."id" FROM "orders"', False),
    ],
)
def test_an_unfiltered_count_is_recognised(sql, found):
    assert counts_a_table(sql) is found


def ask(client: Client, address: str, *, post: dict[str, Any] | None = None) -> tuple[Any, list[str]]:
    """The answer, and what it asked of the database."""
    cache.clear()
    with CaptureQueriesContext(connection) as seen:
        answer = client.get(address) if post is None else client.post(address, post)
        if getattr(answer, "streaming", False):
            b"".join(answer.streaming_content)
    asked = [row["sql"] for row in seen.captured_queries]
    assert answer.status_code == 200, (address, answer.status_code)
    assert [sql for sql in asked if counts_a_table(sql)] == [], address
    return answer, asked


def only_as_many(address: str, few: list[str], many: list[str]) -> None:
    shapes = [re.sub(r"'[^']*'|\b\d+\b", "?", sql)[:300] for sql in many]
    often = {shape for shape in shapes if shapes.count(shape) > 2}
    assert len(many) == len(few), f"{address}: {len(few)} queries for few rows, {len(many)} for many: {often}"


def at(model: type[models.Model], kind: str, *args: Any) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{kind}", args=args)


def rows_of(model: type[models.Model], merchant: Merchant, now: Any, number: int) -> None:
    """`number` rows of a page's model, of one merchant where it may have several."""
    parents: Parents = {}
    for _index in range(number):
        try:
            with transaction.atomic():
                a_row(model, another_merchant(now) if model is Merchant else merchant, now, parents)
        except IntegrityError:  # a merchant, or a parent, has one of these
            a_row(model, another_merchant(now), now)


def eyes_on(model: type[models.Model], merchant: Merchant, now: Any) -> dict[Role, Client]:
    """Somebody of each kind that sees a page: who may press the same buttons sees the same."""
    entry = scoping.entry_of(model)
    assert entry is not None
    kinds = {}
    for role in Role:
        if role in entry.view:
            may = frozenset(name for name, roles in entry.actions.items() if role in roles)
            kinds[may, role in MERCHANT] = role
    people = {role: logged_in(role, merchant, now) for role in kinds.values()}
    for client in people.values():
        client.get(reverse("admin:password_change"))  # writes the session down
    return people


def another_merchant(now: Any) -> Merchant:
    return a_merchant(now=now, code=f"z-{Merchant.objects.count()}", name="铺")


def test_every_address_is_measured():
    (desk,) = [item for item in get_resolver().url_patterns if getattr(item, "namespace", "") == "admin"]
    of_pages = {f"{model._meta.app_label}_{model._meta.model_name}_{kind}" for model in PAGES for kind in PER_PAGE}

    unmeasured = set(names_below(desk)) - of_pages - FORMS_AND_DOORS - MEASURED_ALONE

    assert unmeasured == set(), "a new address: measure it here, or say that it shows nothing that grows"


@pytest.mark.parametrize("model", PAGES, ids=lambda model: model._meta.label)
def test_a_list_asks_the_same_whatever_its_length(model, db, now):
    merchant, page = a_merchant(now=now), site._registry[model]
    with anything_goes():
        people = eyes_on(model, merchant, now)
        rows_of(model, merchant, now, FEW)
        few = {place: ask(people[place[0]], place[1])[1] for place in lists_of(model, people)}
        rows_of(model, merchant, now, MANY - FEW)
        shown = 0
        for place in lists_of(model, people):
            answer, many = ask(people[place[0]], place[1])
            only_as_many(f"{place[1]} as {place[0]}", few[place], many)
            if answer.context and "cl" in answer.context:
                shown = max(shown, len(answer.context["cl"].result_list))
        assert shown >= MANY, "the list showed too few rows to ask more for"
        for name in page.bulk:
            bulk_asks_the_same(model, name, people)


def lists_of(model: type[models.Model], people: dict[Role, Client]) -> Iterable[tuple[Role, str]]:
    """The list as each role sees it, its export, and the filters that it offers."""
    page, entry = site._registry[model], scoping.entry_of(model)
    assert entry is not None
    address = at(model, "changelist")
    for role in people:
        yield role, address
        if page.export_columns and role in entry.actions.get("export", ()):
            yield role, at(model, "export")
    role = next(role for role in reversed(people))
    changelist = people[role].get(address).context["cl"]
    for spec in changelist.filter_specs:
        yield role, address + list(spec.choices(changelist))[1]["query_string"]


def bulk_asks_the_same(model: type[models.Model], name: str, people: dict[Role, Client]) -> None:
    """The question about ticked rows."""
    entry = scoping.entry_of(model)
    assert entry is not None
    client = next(client for role, client in people.items() if role in entry.actions[name])
    keys = [str(pk) for pk in model._base_manager.values_list("pk", flat=True)[:MANY]]
    asked = [
        ask(client, at(model, "changelist"), post={"action": name, "_selected_action": keys[:number], "index": "0"})[1]
        for number in (FEW, MANY)
    ]
    only_as_many(f"{name} on {model._meta.label}", *asked)


def children_of(row: models.Model, merchant: Merchant, now: Any) -> list[models.Model]:
    """One row of everything that points at a row, or carries its order's number."""
    made: list[models.Model] = []
    parents: Parents = {}
    for child in MODELS:
        for field in child._meta.concrete_fields:
            of_order = field.name == "order_no" and child is not type(row) and getattr(row, "order_no", "")
            if of_order or (field.is_relation and field.related_model is type(row) and not field.unique):
                fixed = {field.attname: row.order_no if of_order else row.pk}  # type: ignore[attr-defined]
                with suppress(IntegrityError), transaction.atomic():  # there is only one of some
                    made.append(a_row(child, merchant, now, parents, **fixed))
    return made


@pytest.mark.parametrize("model", PAGES, ids=lambda model: model._meta.label)
def test_a_page_asks_the_same_whatever_hangs_on_it(model, db, now):
    merchant, entry = a_merchant(now=now), scoping.entry_of(model)
    with anything_goes():
        row, people = a_row(model, merchant, now), eyes_on(model, merchant, now)
        ContentType.objects.get_for_model(model)  # asked for once in the life of a process
        if entry.path is None:
            people = {role: client for role, client in people.items() if role not in MERCHANT}
        asked: list[dict[Role, list[str]]] = []
        for number in (1, 2):
            for _index in range(number):
                for child in children_of(row, merchant, now) if model is not Merchant else ():
                    children_of(child, merchant, now)
            asked.append({role: ask(client, at(model, "change", row.pk))[1] for role, client in people.items()})
        for role, few in asked[0].items():
            only_as_many(f"{model._meta.label} as {role}", few, asked[1][role])


@pytest.mark.parametrize("name", ["index", "find"])
def test_dashboard_and_search_ask_the_same(name, db, now):
    merchant = a_merchant(now=now)
    address = reverse(f"admin:{name}") + (f"?q={SECRET}" if name == "find" else "")
    with anything_goes():
        people = {role: logged_in(role, merchant, now) for role in Role}
        for client in people.values():
            client.get(reverse("admin:password_change"))
        asked: list[dict[Role, list[str]]] = []
        for number in (FEW, MANY - FEW):
            for model in PAGES:
                rows_of(model, merchant, now, number if model is not Merchant else 1)
            asked.append({})
            for role, client in people.items():
                if name == "index" or role in scoping.entry_of("find").view:
                    asked[-1][role] = ask(client, address)[1]
        for role, few in asked[0].items():
            only_as_many(f"{address} as {role}", few, asked[1][role])
