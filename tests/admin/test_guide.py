"""The first-day guides, walked in both languages: what they show is what a new user finds, and their pictures come
from here: after a run they lie in $QUITS_VAR/…/screenshots/guide, to be copied to docs/images/guide."""

import pytest
from playwright.sync_api import Page, expect

from aftersales.models import AfterSalesOrder
from kernel import clock
from merchants.roles import Role
from orders.models import Anomaly
from tests.aftersales.build import Line, a_paid_order, nut_and_tea
from tests.merchants.factories import a_merchant, a_person
from tests.orders.conftest import keys, now, shop, simulator, simulator_process  # noqa: F401
from tests.orders.factories import Shop
from tests.orders.test_coordinate_coupon import in_conflict

pytestmark = pytest.mark.django_db(transaction=True)

LANGUAGES = {"zh": ("zh-hans", "清和茶铺"), "en": ("en", "Clear & Calm Tea")}


@pytest.fixture(params=LANGUAGES)
def language(request, page: Page, live_server) -> str:
    code = LANGUAGES[request.param][0]
    page.context.add_cookies([{"name": "django_language", "value": code, "url": live_server.url}])
    return request.param


def test_a_merchants_first_day(page: Page, live_server, log_in, console, guide_shot, language):
    merchant = a_merchant(now=clock.now(), name=LANGUAGES[language][1])
    paid = nut_and_tea(clock.now(), merchant=merchant)
    paid.ship(1)
    paid.ship(2)
    tea = paid.apply(2, type=2, reason="quality", description="茶叶受潮了，有霉味。" if language == "zh" else "Damp.")
    for number in range(3):
        other = a_paid_order(clock.now(), Line(8_800 + 100 * number, sku=f"TEA-{number}"), merchant=merchant)
        other.apply(1, type=1, reason="ordered_wrong")
    log_in(a_person(role=Role.MERCHANT_OWNER, merchant=merchant, now=clock.now(), username="lin"))
    guide_shot(f"merchant-dashboard-{language}")

    page.locator("[data-waiting='aftersales.audit']").click()
    expect(page.locator("#result_list tbody tr.data-row")).to_have_count(4)
    guide_shot(f"merchant-queue-{language}")
    page.get_by_role("link", name=tea.after_sales_no).first.click()
    expect(page.locator("[data-amount]")).to_have_text("¥171.67")
    guide_shot(f"merchant-claim-{language}")
    page.locator("[data-button=approve]").click()
    guide_shot(f"merchant-approve-{language}")
    page.locator("form[data-once] button[type=submit]").click()
    expect(page.locator("[data-button=approve]")).to_have_count(0)

    paid.send_back(tea.after_sales_no)
    claim = AfterSalesOrder.objects.get(after_sales_no=tea.after_sales_no)
    page.goto(f"{live_server.url}/admin/aftersales/aftersalesorder/{claim.pk}/do/confirm_return/")
    guide_shot(f"merchant-inspection-{language}")
    page.locator("form[data-once] button[type=submit]").click()
    claim.refresh_from_db()
    assert claim.status == "REFUNDING"
    page.goto(f"{live_server.url}/admin/merchants/merchant/{merchant.pk}/change/")
    guide_shot(f"merchant-settings-{language}")
    assert console == []


def test_customer_services_first_day(page: Page, live_server, log_in, console, guide_shot, language, shop: Shop):  # noqa: F811
    in_conflict(shop)
    anomaly = Anomaly.objects.order_by("-id")[0]
    log_in(a_person(role=Role.CUSTOMER_SERVICE, now=shop.now, username="wen"))
    guide_shot(f"service-dashboard-{language}")
    page.locator("[data-waiting='orders.anomalies']").click()
    guide_shot(f"service-anomalies-{language}")
    page.goto(f"{live_server.url}/admin/orders/anomaly/{anomaly.pk}/change/")
    guide_shot(f"service-anomaly-{language}")
    page.goto(f"{live_server.url}/admin/orders/order/")
    reveal = page.locator("[data-reveal]").first
    expect(reveal).to_be_visible()
    guide_shot(f"service-masked-{language}")
    reveal.click()
    expect(page.locator("[data-reveal]").first).not_to_have_text("x", timeout=3000)
    assert console == []
