"""Coming in, in both languages, and being kept out."""

import pytest
from playwright.sync_api import Page, expect

from merchants.roles import Role
from tests.merchants.factories import PASSWORD, a_merchant, a_person

pytestmark = pytest.mark.django_db(transaction=True)


def test_login_in_chinese_and_english(page: Page, live_server, console, shot, now):
    owner = a_person(role=Role.MERCHANT_OWNER, merchant=a_merchant(now=now), now=now, username="owner")

    page.goto(f"{live_server.url}/admin/")
    expect(page.get_by_role("heading", name="登录")).to_be_visible()
    shot("login-zh")
    page.get_by_role("button", name="English").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    shot("login-en")

    page.fill("[name=username]", owner.user.username)
    page.fill("[name=password]", PASSWORD)
    page.click("#login-form button[type=submit]")
    expect(page.get_by_role("heading", name="清和茶铺")).to_be_visible()
    shot("dashboard-owner-en")
    assert console == []
