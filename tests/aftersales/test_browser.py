"""A merchant audits a return in a real browser, in both languages and at both widths."""

import pytest
from playwright.sync_api import Page, expect

from aftersales.drafts import Replacement
from aftersales.models import AfterSalesOrder
from kernel import clock
from merchants.roles import Role
from tests.aftersales.build import nut_and_tea
from tests.merchants.factories import a_merchant, a_person

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def paid():
    now = clock.now()
    return nut_and_tea(now, merchant=a_merchant(now=now))


def test_a_return_is_approved_inspected_and_refunded(page: Page, live_server, log_in, console, shot, paid):
    paid.ship(1)
    paid.ship(2)
    number = paid.apply(2, type=2, reason="quality", description="茶叶受潮了，有霉味。").after_sales_no
    nut = paid.apply(1, type=1, reason="damaged", goods_fen=500).after_sales_no
    log_in(a_person(role=Role.MERCHANT_OWNER, merchant=paid.merchant, now=paid.now, username="lin"))

    page.goto(f"{live_server.url}/admin/aftersales/aftersalesorder/?tab=audit")
    expect(page.locator("#result_list tbody tr")).to_have_count(2)
    shot("after-sales-queue-zh")
    page.get_by_role("link", name=number).first.click()
    expect(page.locator("[data-amount]")).to_have_text("¥171.67")
    shot("after-sales-audit-zh")

    page.locator("[data-button=approve]").click()
    expect(page.locator(".q-question")).to_contain_text("¥171.67")
    shot("after-sales-approve-zh")
    page.locator("form[data-once] button[type=submit]").click()
    expect(page.locator("[data-button=approve]")).to_have_count(0)
    assert paid.claim(number).status == "WAIT_BUYER_RETURN"

    paid.send_back(number)
    page.reload()
    page.locator("[data-button=confirm_return]").click()
    shot("after-sales-inspection-zh")
    page.locator("form[data-once] button[type=submit]").click()
    expect(page.locator("[data-button=confirm_return]")).to_have_count(0)
    assert paid.claim(number).status == "REFUNDING"
    paid.channel_says(f"{number}-0")
    page.reload()
    expect(page.locator(".as-rollback-done")).to_have_count(5)
    shot("after-sales-refunded-zh")

    page.context.add_cookies([{"name": "django_language", "value": "en", "url": live_server.url}])
    page.reload()
    expect(page.get_by_role("heading", name="How the amount comes about")).to_be_visible()
    shot("after-sales-refunded-en")
    page.goto(f"{live_server.url}/admin/aftersales/aftersalesorder/")
    shot("after-sales-queue-en")
    page.goto(f"{live_server.url}/admin/aftersales/aftersalesorder/{paid.claim(nut).pk}/change/")
    shot("after-sales-audit-en")
    assert console == []


def test_a_page_that_is_no_longer_true_says_who_was_there(page: Page, live_server, log_in, paid):
    number = paid.apply(2).after_sales_no
    log_in(a_person(role=Role.MERCHANT_OWNER, merchant=paid.merchant, now=paid.now, username="wang"))
    page.goto(f"{live_server.url}/admin/aftersales/aftersalesorder/{paid.claim(number).pk}/do/approve/")
    paid.approve(number)
    page.locator("form[data-once] button[type=submit]").click()
    expect(page.locator("body")).to_contain_text("lin")
    assert AfterSalesOrder.objects.get().version == 2


def test_an_exchange_is_received_and_shipped(page: Page, live_server, log_in, console, shot, paid):
    paid.ship(2)
    wanted = Replacement(sku="TEA-B", title="碧螺春礼盒", unit_price_fen=16667)
    number = paid.apply(2, type=3, reason="wrong_size", replacement=wanted).after_sales_no
    paid.approve(number)
    paid.send_back(number)
    claim = paid.claim(number)
    log_in(a_person(role=Role.MERCHANT_STAFF, merchant=paid.merchant, now=paid.now, username="wu"))
    page.goto(f"{live_server.url}/admin/aftersales/aftersalesorder/{claim.pk}/change/")
    page.locator("[data-button=confirm_exchange]").click()
    shot("exchange-inspection-zh")
    page.locator("form[data-once] button[type=submit]").click()
    page.locator("[data-button=ship_replacement]").click()
    page.fill("[name=carrier]", "SF")
    page.fill("[name=tracking_no]", "SF100200")
    page.locator("form[data-once] button[type=submit]").click()
    expect(page.locator("[data-button=ship_replacement]")).to_have_count(0)
    shot("exchange-shipped-zh")
    assert paid.claim(number).status == "WAIT_BUYER_CONFIRM"
    assert console == []
