"""The order page and the anomaly queue in a real browser: who sees what, who may do what, how it looks."""

import pytest
from playwright.sync_api import Page, expect

from merchants.roles import Role
from orders.models import Order
from tests.admin.conftest import (  # noqa: F401
    _cheap_hashes,
    browser_context_args,
    browser_type_launch_args,
    console,
    log_in,
    shot,
)
from tests.merchants.factories import a_person
from tests.orders.factories import Shop, order_of
from tests.orders.test_coordinate_coupon import in_conflict

pytestmark = pytest.mark.django_db(transaction=True)


def english(page: Page, live_server) -> None:
    page.context.add_cookies([{"name": "django_language", "value": "en", "url": live_server.url}])
    page.reload()


def test_a_merchant_ships_an_order(page: Page, live_server, log_in, console, shot, shop: Shop):  # noqa: F811
    ordered = shop.paid(coupon_id=shop.coupon())
    shop.order(address={"street": "second"})
    log_in(a_person(role=Role.MERCHANT_OWNER, merchant=shop.merchant, now=shop.now, username="lin"))

    page.goto(f"{live_server.url}/admin/orders/order/")
    expect(page.locator("#result_list tbody tr")).to_have_count(2)
    shot("orders-list-zh")
    page.get_by_role("link", name=ordered.order_no).first.click()
    expect(page.locator("[data-amount]")).to_have_text("¥260.00")
    shot("orders-page-paid-zh")
    page.locator("[data-button=ship]").click()
    page.fill("[name=carrier]", "SF")
    page.fill("[name=tracking_no]", "SF0001")
    page.locator("form[data-once] button[type=submit]").click()
    expect(page.locator("[data-button=ship]")).to_have_count(0)
    assert order_of(ordered).status == 20
    page.locator("[data-button=sign]").click()
    page.locator("form[data-once] button[type=submit]").click()
    expect(page.locator("[data-button=sign]")).to_have_count(0)
    shot("orders-page-delivered-zh")
    english(page, live_server)
    expect(page.get_by_role("heading", name="Lines, with every share")).to_be_visible()
    shot("orders-page-delivered-en")
    assert page.locator("[data-button=close]").count() == 0
    assert console == []


def test_operations_honours_a_price(page: Page, live_server, log_in, console, shot, shop: Shop):  # noqa: F811
    ordered = in_conflict(shop)
    log_in(a_person(role=Role.OPERATIONS, now=shop.now, username="ops"))
    page.goto(f"{live_server.url}/admin/orders/order/{ordered.order_id}/change/")
    shot("orders-page-conflict-zh")
    page.locator("[data-button=honour]").click()
    expect(page.locator(".q-question")).to_contain_text("¥50.00")
    page.fill("[name=reason]", "系统延误，保留优惠")
    page.locator("form[data-once] button[type=submit]").click()
    expect(page.locator("[data-button=honour]")).to_have_count(0)
    assert Order.objects.get(id=ordered.order_id).coupon_state == "honoured"
    assert console == []
