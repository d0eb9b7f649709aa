"""A merchant's morning: ten returns to audit, some together, some alone, one paid less, some refused."""

import re

import pytest
from playwright.sync_api import Page, expect

from aftersales.commands.reject_after_sales import reject_after_sales
from aftersales.models import AfterSalesOrder
from kernel import clock
from merchants.models import SavedFilter, StaffAction
from merchants.roles import Role
from tests.aftersales.build import MERCHANT, Line, a_key, a_paid_order
from tests.merchants.factories import a_merchant, a_person

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def shop():
    return a_merchant(now=clock.now())


@pytest.fixture
def claims(shop) -> list[str]:
    made = []
    for number in range(10):
        paid = a_paid_order(clock.now(), Line(10_000 + number * 100, sku=f"TEA-{number}"), merchant=shop)
        reason = "changed_mind" if number % 2 else "ordered_wrong"
        made.append(paid.apply(1, type=1, reason=reason, description="拍错了规格，麻烦退款。").after_sales_no)
    return made


def tick(page: Page, *numbers: str) -> None:
    for number in numbers:
        page.locator("#result_list tr", has_text=number).locator("input.action-select").check()


def run(page: Page, label: str) -> None:
    page.select_option("select[name=action]", label=label)
    page.locator("#changelist-actions-wrapper button[type=submit]").click()


def test_ten_returns(page: Page, live_server, log_in, console, shot, shop, claims):
    log_in(a_person(role=Role.MERCHANT_OWNER, merchant=shop, now=clock.now(), username="lin"))
    expect(page.locator("[data-waiting='aftersales.audit']")).to_contain_text("10")
    shot("day-dashboard-zh")
    page.locator("[data-waiting='aftersales.audit']").click()
    expect(page.locator("#result_list tbody tr.data-row")).to_have_count(10)

    # Five together. A colleague refuses one of them meanwhile: the other four are done all the same.
    tick(page, *claims[:5])
    shot("day-ticked-zh")
    run(page, "同意")
    expect(page.locator(".q-rows li")).to_have_count(5)
    shot("day-bulk-ask-zh")
    stolen = AfterSalesOrder.objects.get(after_sales_no=claims[4])
    reject_after_sales(
        merchant_id=shop.pk,
        after_sales_no=stolen.after_sales_no,
        expected_version=1,
        reason="已电话沟通，买家撤回",
        by=MERCHANT,
        key=a_key(shop.pk),
        now=clock.now(),
    )
    page.click(".q-ask form button[type=submit]")
    expect(page.locator(".q-rows li[data-ok=yes]")).to_have_count(4)
    expect(page.locator(".q-rows li[data-ok=no]")).to_have_count(1)
    shot("day-bulk-result-zh")

    # One alone, paid less, with a reason.
    reduced = AfterSalesOrder.objects.get(after_sales_no=claims[5])
    page.goto(f"{live_server.url}/admin/aftersales/aftersalesorder/{reduced.pk}/do/approve/")
    page.fill("[name=goods_fen]", "80.00")
    page.click(".q-ask form button[type=submit]")
    expect(page.locator(".q-ask")).to_contain_text("低于应退金额")
    page.fill("[name=reduction_reason]", "包装已拆，双方协商")
    shot("day-reduced-zh")
    page.click(".q-ask form button[type=submit]")
    expect(page.locator("body")).to_contain_text("¥80.00")

    # Two alone, from the buttons of their rows.
    for number in claims[6:8]:
        page.goto(f"{live_server.url}/admin/aftersales/aftersalesorder/?tab=audit")
        row = page.locator("#result_list tr.data-row", has_text=number)
        row.get_by_role("link", name="同意").click()
        page.click(".q-ask form button[type=submit]")
        expect(page).to_have_url(re.compile("/change/$"))

    # The last two together, refused with one reason.
    page.goto(f"{live_server.url}/admin/aftersales/aftersalesorder/?tab=audit")
    tick(page, *claims[8:])
    run(page, "拒绝")
    page.fill("[name=reason]", "已超出可退范围，详见商品页说明")
    page.click(".q-ask form button[type=submit]")
    expect(page.locator(".q-rows li[data-ok=yes]")).to_have_count(2)

    status = dict(AfterSalesOrder.objects.values_list("after_sales_no", "status"))
    assert [status[number] for number in claims] == ["REFUNDING"] * 4 + ["REJECTED"] + ["REFUNDING"] * 3 + [
        "REJECTED"
    ] * 2
    reduced.refresh_from_db()
    assert (reduced.approved_goods_fen, reduced.reduction_reason) == (8000, "包装已拆，双方协商")
    assert StaffAction.objects.filter(outcome="done", action__in=["approve", "reject"]).count() == 9
    page.goto(f"{live_server.url}/admin/")
    expect(page.locator("[data-waiting='aftersales.audit']")).to_contain_text("0")
    assert console == []


def test_a_list_by_keyboard_and_a_filter_that_is_kept(page: Page, live_server, log_in, console, shot, shop, claims):
    owner = a_person(role=Role.MERCHANT_OWNER, merchant=shop, now=clock.now(), username="lin")
    log_in(owner)
    address = f"{live_server.url}/admin/aftersales/aftersalesorder/"
    page.goto(f"{address}?q={claims[3]}")
    page.fill(".q-save-filter [name=label]", "要跟进的")
    page.click(".q-save-filter button")
    page.goto(address)
    page.get_by_role("link", name="要跟进的").click()
    expect(page.locator("#result_list tbody tr.data-row")).to_have_count(1)
    expect(page.locator(".q-chip-on")).to_have_text(re.compile("要跟进的"))
    shot("list-kept-filter-zh")
    assert SavedFilter.objects.get().staff == owner

    page.goto(address)
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="快捷键")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("input.action-select:checked")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/change/"))
    page.wait_for_load_state()  # the keys are read by a script of the page
    page.keyboard.press("Control+k")
    page.keyboard.type(claims[7])
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/change/"))
    expect(page.locator("h1")).to_contain_text(claims[7])

    page.goto(address)
    page.locator(".q-chip button").click()
    expect(page.locator(".q-chip")).to_have_count(0)
    assert not SavedFilter.objects.exists()
    assert console == []


def test_saved_filters_are_ones_own(client, shop):
    mine, other = (
        a_person(role=role, merchant=shop, now=clock.now()) for role in (Role.MERCHANT_OWNER, Role.MERCHANT_STAFF)
    )
    client.force_login(mine.user, backend="django.contrib.auth.backends.ModelBackend")
    sent = {"page": "aftersales.aftersalesorder", "label": " 我的 ", "query": "tab=audit&p=3"}
    assert client.post("/admin/filters/save/", sent)["Location"].endswith(
        "/admin/aftersales/aftersalesorder/?tab=audit"
    )
    assert client.post("/admin/filters/save/", {**sent, "page": "auth.user"}).status_code == 404
    assert client.post("/admin/filters/save/", {**sent, "page": "kernel.inboxmessage"}).status_code == 404
    client.post("/admin/filters/save/", {**sent, "label": ""})
    row = SavedFilter.objects.get()
    assert (row.staff, row.label, row.query) == (mine, "我的", "tab=audit")

    client.force_login(other.user, backend="django.contrib.auth.backends.ModelBackend")
    client.post("/admin/filters/forget/", {"page": "aftersales.aftersalesorder", "filter": str(row.pk)})
    assert SavedFilter.objects.exists()
    assert (
        client.post("/admin/filters/forget/", {"page": "aftersales.aftersalesorder", "filter": "x"}).status_code == 404
    )
