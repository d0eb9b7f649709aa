"""Every page of every role in a real browser: nothing wrong in the console, nothing asked of another host, CSP set.

Pages and roles come from the registry, and each page has a row to show (tests/admin/rows.py).
"""

from collections.abc import Iterator

import pytest
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.db import connection, connections
from django.test.testcases import LiveServerThread
from django.urls import reverse
from playwright.sync_api import BrowserContext, Page

from config.headers import CONTENT_SECURITY_POLICY
from kernel.admin import site
from merchants import scoping
from merchants.roles import MERCHANT, Role
from tests.admin.rows import Parents, a_row, anything_goes
from tests.admin.test_permissions import PAGES, logged_in
from tests.merchants.factories import a_merchant

EVERYBODYS = ("index", "find", "password_change", "second_factor_setup")


@pytest.fixture
def server(db, monkeypatch) -> Iterator[str]:
    """A server inside the test's transaction: it sees the rows made without checks, and all of it is rolled back."""
    thread = LiveServerThread("127.0.0.1", StaticFilesHandler, connections_override={"default": connections["default"]})
    monkeypatch.setattr(connections["default"], "close", lambda: None)  # a thread that ends takes nothing with it
    connection.inc_thread_sharing()
    thread.daemon = True
    thread.start()
    thread.is_ready.wait()
    try:
        assert thread.error is None, thread.error
        yield f"http://127.0.0.1:{thread.port}"
    finally:
        thread.terminate()
        connection.dec_thread_sharing()


def test_no_page_of_any_role_complains(server, page: Page, context: BrowserContext, console: list[str], now):
    merchant = a_merchant(now=now)
    with anything_goes():
        rows: Parents = {}
        for model in PAGES:
            rows[model] = rows.get(model) or a_row(model, merchant, now, rows)
        details = {(model, None) for model in PAGES}
        details |= {(model, button.name) for model in PAGES for button in buttons_of(model)}
        for role in Role:
            client = logged_in(role, merchant, now)
            client.get(reverse("admin:index"))
            context.add_cookies(
                [{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": server, "httpOnly": True}]
            )
            for name in EVERYBODYS:
                visit(page, server, reverse(f"admin:{name}"), console)
            for model in PAGES:
                entry, base = scoping.entry_of(model), f"admin:{model._meta.app_label}_{model._meta.model_name}"
                if role not in entry.view:
                    continue
                visit(page, server, reverse(f"{base}_changelist"), console)
                if role in MERCHANT and entry.path is None:
                    continue
                for button in {None, *entry.actions}:
                    if (model, button) in details and (button is None or role in entry.actions[button]):
                        details.discard((model, button))
                        visit(page, server, address_of(model, rows[model], button), console)
        assert details == set(), "pages and buttons that nobody opened"


def buttons_of(model):
    return [*site._registry[model].buttons, *site._registry[model].list_buttons]


def address_of(model, row, button: str | None) -> str:
    base = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    if button is None:
        return reverse(f"{base}_change", args=[row.pk])
    if any(item.name == button for item in site._registry[model].buttons):
        return reverse(f"{base}_do", args=[row.pk, button])
    return reverse(f"{base}_do_list", args=[button])


def visit(page: Page, server: str, address: str, console: list[str]) -> None:
    answer = page.goto(server + address)
    assert answer is not None and answer.status == 200, (address, answer and answer.status)
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY, address
    assert console == [], address


def test_the_page_of_the_api_is_no_exception(server, page: Page, console: list[str]):
    visit(page, server, "/api/docs", console)
    page.wait_for_selector(".opblock")
    assert console == []
