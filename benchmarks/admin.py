"""The back office with a million after-sales orders beside ten thousand: every list, filter, page and search.

What is measured comes from the registry of pages and from the pages themselves: each list as it opens, with each
choice of each filter, sorted by each header that sorts, with its search box used; the newest row's page; the one
search box. Nothing is named here by hand, so a new page is measured by itself.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from benchmarks.admin_cells import rows
from benchmarks.harness import Bench, Figures, switch_database

SMALL, LARGE = 10_000, 1_000_000
BEST_OF = 2
"""Requests per address and round; the fastest counts, for it met the fewest others on the machine."""
SECONDS = 100
"""No second round is begun after so long."""
OF_THE_SESSION = re.compile(r"django_session|^(BEGIN|COMMIT|SAVEPOINT|RELEASE)")
Place = tuple[str, str]


def run(*, figures: Figures, rounds: int, small: int = SMALL, large: int = LARGE) -> None:
    """The worst list's ratio, and each list's own."""
    for name in ("django_structlog", "django.request"):
        logging.getLogger(name).setLevel(logging.ERROR)
    began = time.perf_counter()
    with Bench("admin_few", partial(rows.fill, small)) as few, Bench("admin_many", partial(rows.fill, large)) as many:
        print(f"  filled in {time.perf_counter() - began:.0f} s", flush=True)
        sides = [Side(few.template), Side(many.template)]
        places = sides[1].places()
        missing = set(places) ^ set(sides[0].places())
        if missing:
            raise RuntimeError(f"only offered in one size: {sorted(missing)[:5]}")
        for side in sides:
            side.look(places)
        for place in places:  # a page of fifty rows beside one of three would measure the fifty rows
            as_many = min(side.rows[place] for side in sides)
            for side in sides:
                side.rows[place] = as_many
        growing = [place for place in places if sides[1].queries[place] > sides[0].queries[place]]
        if growing:
            raise RuntimeError(f"queries grow with the rows: {growing[:5]}")
        began = time.perf_counter()
        for number in range(rounds):
            if number == 0 or time.perf_counter() - began < SECONDS:
                _time(sides, places)
        _again(sides, places)
    _report(figures, sides, places)


def _time(sides: list[Side], places: list[Place]) -> None:
    """Both sides of an address one after the other, within a second: the machine's mood is the same for both."""
    for place in places:
        for side in sides:
            side.time(place)


def _again(sides: list[Side], places: list[Place]) -> None:
    """What looked slow is asked more often, on both sides: the machine's moods are not the list's."""
    for _try in range(3):
        slow = [place for place in places if sides[1].best[place] > 1.3 * sides[0].best[place]]
        _time(sides, slow)


def _report(figures: Figures, sides: list[Side], places: list[Place]) -> None:
    few, many = sides
    ratios = {place: many.best[place] / few.best[place] for place in places}
    for place in sorted(places, key=lambda place: (place[0], -ratios[place])):
        print(
            f"    {place[0]:<10} {place[1]:<76} {few.best[place] * 1000:>7.1f} → {many.best[place] * 1000:>7.1f} ms"
            f"  × {ratios[place]:.2f}  {many.queries[place]} queries",
            flush=True,
        )
    for kind, name in (
        ("list", "admin_1m_vs_10k"),
        ("page", "admin_pages_1m_vs_10k"),
        ("search", "admin_search_1m_vs_10k"),
        ("dashboard", "admin_dashboard_1m_vs_10k"),
    ):
        mine = {place: ratio for place, ratio in ratios.items() if place[0] == kind}
        worst = max(mine, key=lambda place: mine[place])
        print(f"  {kind}: {len(mine)} measured, worst {worst[1]}: × {mine[worst]:.2f}", flush=True)
        figures.add(name, mine[worst])


class Side:
    """One of the two databases with the people who look at it."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.addresses: dict[Place, tuple[Client, str]] = {}
        self.best: dict[Place, float] = {}
        self.queries: dict[Place, int] = {}
        self.rows: dict[Place, int] = {}
        """The rows that an address shows; 0 where it is no list."""

    def places(self) -> list[Place]:
        """Everything that can be opened here, by a name that both sides share."""
        from merchants.models import Merchant
        from merchants.roles import Role
        from tests.merchants.factories import a_person

        self.use()
        if not self.addresses:
            now, merchant = _now(), Merchant.objects.order_by("-id").exclude(code__startswith="shop-").get()
            for role in (Role.AUDITOR, Role.MERCHANT_OWNER):
                client = Client(headers={"accept-language": "zh-hans"})
                client.force_login(
                    a_person(role=role, merchant=merchant, username=f"{role}-{uuid4().hex[:8]}", now=now).user,
                    backend="django.contrib.auth.backends.ModelBackend",
                )
                for place, address in self._offered(client, str(role)):
                    self.addresses[place] = (client, address)
        return list(self.addresses)

    def use(self) -> None:
        switch_database(self.database)
        cache.clear()

    def look(self, places: list[Place]) -> None:
        """Each address once: how many queries, and that none counts a table."""
        from tests.admin.test_every_page import counts_a_table

        self.use()
        for place in places:
            client, address = self.addresses[place]
            client.get(address)  # what the process keeps for ever (content types) is not the page's
            if place[0] == "dashboard":
                cache.clear()
            with CaptureQueriesContext(connection) as seen:
                answer = client.get(address)
            if answer.status_code not in (200, 302):
                raise RuntimeError(f"{place}: {answer.status_code}")
            # A session says once a minute that it is alive, in a transaction, whichever page it is on.
            asked = [row["sql"] for row in seen.captured_queries if not OF_THE_SESSION.search(row["sql"])]
            counted = [sql for sql in asked if counts_a_table(sql)]
            if counted:
                raise RuntimeError(f"{place} counts a table: {counted[0]}")
            self.queries[place] = len(asked)
            self.rows[place] = _shown(answer)

    def time(self, place: Place) -> None:
        self.use()
        client, address = self.addresses[place]
        # The first request opens the connection and fills what a minute of use keeps.
        page = getattr(client.get(address), "context_data", {}).get("cl")
        owner = page.model_admin if page is not None else None
        with _page_of(owner, self.rows[place]):
            for _time in range(BEST_OF):
                if place[0] == "dashboard":
                    cache.clear()
                began = time.perf_counter()
                client.get(address)
                took = time.perf_counter() - began
                self.best[place] = min(took, self.best.get(place, took))

    def _offered(self, client: Client, role: str) -> Iterator[tuple[Place, str]]:
        from kernel.admin import site
        from merchants.roles import Role

        yield ("dashboard", f"dashboard as {role}"), reverse("admin:index")
        for model in rows.pages():
            meta = model._meta
            address = reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist")
            answer = client.get(address)
            if answer.status_code != 200:
                continue
            name, page, request = f"{meta.label} as {role}", site._registry[model], answer.wsgi_request
            changelist = page.get_changelist_instance(request)
            yield ("list", name), address
            if role == Role.AUDITOR:  # the same filters and headers, on all rows
                yield from self._filters(name, address, changelist)
                yield from self._sorts(name, address, answer)
            newest = next(iter(changelist.result_list), None) or page.get_queryset(request)[0]
            yield ("page", name), reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[newest.pk])
            if site._registry[model].search_fields:
                for what, term in self._terms(model):
                    yield ("search", f"{name} ?q={what}"), f"{address}?q={term}"
        for what, term in self._numbers():
            yield ("search", f"find as {role} ?q={what}"), f"{reverse('admin:find')}?q={term}"

    def _filters(self, name: str, address: str, changelist: Any) -> Iterator[tuple[Place, str]]:
        for spec in changelist.filter_specs:
            choices = list(spec.choices(changelist))
            merchants = len(choices) > rows.MERCHANTS
            for choice in choices[:3] if merchants else choices:
                shown = "one" if merchants else choice["display"]
                if choice["query_string"] not in ("", "?"):
                    yield ("list", f"{name} {spec.title}: {shown}"), address + choice["query_string"]

    def _sorts(self, name: str, address: str, answer: Any) -> Iterator[tuple[Place, str]]:
        for number in sorted(set(re.findall(r'href="\?o=(-?\d+)', answer.content.decode()))):
            yield ("list", f"{name} sorted by column {number}"), f"{address}?o={number}"

    def _terms(self, model: Any) -> Iterator[tuple[str, str]]:
        """Something that is found, and something that is nowhere."""
        row = model._default_manager.order_by("-pk")[1]
        for name in ("order_no", "after_sales_no", "reference", "sku", "user_id", "beneficiary", "username", "code"):
            if hasattr(row, name):
                yield name, getattr(row, name)
                break
        yield "nothing", "there-is-no-such-thing"

    def _numbers(self) -> Iterator[tuple[str, str]]:
        from aftersales.models import AfterSalesOrder
        from coupons.models import UserCoupon
        from payments.models import Payment

        claim, payment = AfterSalesOrder.objects.order_by("-id")[1], Payment.objects.order_by("-id")[1]
        yield "order", claim.order_no
        yield "claim", claim.after_sales_no
        yield "refund", f"{claim.after_sales_no}-0"
        yield "payment", payment.out_trade_no
        yield "trade", payment.trade_no
        yield "user", claim.user_id
        yield "coupon", str(UserCoupon.objects.order_by("-id")[1].pk)
        yield "nothing", "there-is-no-such-thing"


def _shown(answer: Any) -> int:
    page = getattr(answer, "context_data", {}).get("cl")
    return len(page.result_list) if page is not None else 0


@contextmanager
def _page_of(owner: Any, shown: int) -> Iterator[None]:
    """The lists of a page with so many rows, where the smaller side fills no page."""
    if owner is None:
        yield
        return
    usual, owner.list_per_page = owner.list_per_page, min(owner.list_per_page, max(1, shown))
    try:
        yield
    finally:
        owner.list_per_page = usual


def _now() -> Any:
    from kernel import clock

    return clock.now()
