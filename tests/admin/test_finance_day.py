"""Finance's day: the second factor first, then a day is reconciled, a refund is paid offline, books leave as CSV."""

import csv
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from aftersales.models import AfterSalesOrder
from kernel import clock, valkey
from merchants.models import StaffAction
from merchants.roles import Role
from payments.models import Payment, RefundRequest
from reconciliation.models import Finding, ReconciliationRun
from reconciliation.tasks import reconcile_on
from tests.merchants.factories import a_person
from tests.merchants.test_entrance import code_of
from tests.reconciliation.books import DAY, Books, careless
from tests.reconciliation.conftest import books  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)


def send(page: Page) -> None:
    page.locator("form[data-once] button[type=submit]").click()


def saved(page: Page, tmp_path: Path, click: str) -> list[list[str]]:
    """What a click downloads, read as a spreadsheet would."""
    with page.expect_download() as started:
        page.locator(click).first.click()
    path = tmp_path / started.value.suggested_filename
    started.value.save_as(path)
    return list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))


def a_careful_entry(page: Page, live_server, shot, anna) -> None:
    """The role demands a second factor: nothing opens before it, and the picture holds the key."""
    page.goto(f"{live_server.url}/admin/login/")
    page.fill("[name=username]", "anna")
    page.fill("[name=password]", "correct horse 7 battery")
    page.click("#login-form button[type=submit]")
    page.wait_for_url("**/second-factor/set-up/")
    send(page)
    picture = page.locator("[data-qr]")
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    shot("second-factor-zh")
    page.fill("[name=code]", code_of(anna, clock.now()))
    send(page)
    expect(page.locator("[data-codes] li")).to_have_count(8)
    page.locator(".q-ask a.q-button-primary").click()


def test_a_day_is_reconciled_and_a_refund_paid_offline(
    page: Page,
    browser,
    live_server,
    log_in,
    console,
    shot,
    settings,
    tmp_path,
    books: Books,  # noqa: F811
):
    books.refund(books.sale(coupon=True))
    dead = books.refund(books.sale(buyer="wang"), to="CLOSED")
    books.bill_days()
    careless("DELETE FROM bill_line WHERE kind = 'refund'")
    settings.QUITS_SECOND_FACTOR_ROLES = frozenset({"finance"})
    anna = a_person(role=Role.FINANCE, now=clock.now(), username="anna")
    a_careful_entry(page, live_server, shot, anna)
    expect(page.locator("[data-waiting='aftersales.failed'] .q-card-number")).to_have_text("1")
    shot("day-finance-zh")

    # The day, from the button to the file.
    page.goto(f"{live_server.url}/admin/reconciliation/reconciliationrun/")
    page.locator("[data-button=reconcile]").click()
    page.fill("[name=day]", DAY.isoformat())
    send(page)
    expect(page.locator("body")).to_contain_text(DAY.isoformat())
    assert valkey.client().llen("bulk") == 1, "a worker was asked"
    reconcile_on(DAY.isoformat())
    page.reload()
    page.locator("#result_list tbody th a, #result_list tbody td a").first.click()
    expect(page.locator(".q-figures")).to_be_visible()
    shot("day-run-zh")
    rows = saved(page, tmp_path, "a[href$='export.csv']")
    assert ["refunds", "yunwu", "wechat", "", "claims", "1", "17167", "171.67"] in rows

    # What disagrees: read, taken, talked about, and ended with a reason.
    finding = Finding.objects.get(rule="REFUND_MISSING_AT_CHANNEL")
    page.goto(f"{live_server.url}/admin/reconciliation/finding/")
    shot("day-findings-zh")
    page.goto(f"{live_server.url}/admin/reconciliation/finding/{finding.pk}/change/")
    page.locator("[data-button=take]").click()
    send(page)
    page.locator("[data-button=comment]").click()
    page.fill("[name=text]", "已向渠道发函查询。")
    send(page)
    expect(page.locator(".q-timeline")).to_contain_text("已向渠道发函查询。")
    shot("day-finding-zh")
    page.locator("[data-button=accept]").click()
    page.fill("[name=reason]", "渠道书面确认已退款，账单延迟一天。")
    send(page)
    expect(page.locator("[data-button=accept]")).to_have_count(0)

    # A refund that the channel closed is paid offline: she enters the voucher, and cannot approve it herself.
    claim = AfterSalesOrder.objects.get(pk=dead.pk)
    address = f"{live_server.url}/admin/aftersales/aftersalesorder/{claim.pk}"
    page.goto(f"{address}/change/")
    page.locator("[data-button=enter_voucher]").click()
    expect(page.locator(".q-question")).to_contain_text("¥200.00")
    page.fill("[name=voucher]", "工行 2026112800017")
    send(page)
    page.goto(f"{address}/do/approve_voucher/")
    expect(page.locator(".q-question")).to_contain_text("工行 2026112800017")
    send(page)
    assert RefundRequest.objects.get(owner_no=claim.after_sales_no).status == "FAILED"
    settings.QUITS_SECOND_FACTOR_ROLES = frozenset()
    page.context.clear_cookies()
    log_in(a_person(role=Role.FINANCE, now=clock.now(), username="ben"))
    page.goto(f"{address}/do/approve_voucher/")
    send(page)
    assert RefundRequest.objects.get(owner_no=claim.after_sales_no).status == "SUCCEEDED"

    # Books that leave the house.
    page.goto(f"{live_server.url}/admin/orders/order/")
    rows = saved(page, tmp_path, "[data-export]")
    assert len(rows) == 3
    assert StaffAction.objects.filter(action="export").count() == 2
    assert ReconciliationRun.objects.get().state == "DONE"
    assert console == []


def test_the_money_pages(page: Page, live_server, log_in, console, shot, books: Books):  # noqa: F811
    """Each page of payments with something on it, at both widths."""
    paid = books.sale(coupon=True)
    books.refund(paid)
    dead = books.refund(books.sale(buyer="wang"), to="CLOSED")
    books.bill_days()
    log_in(a_person(role=Role.FINANCE, now=clock.now(), username="anna"))
    payment = Payment.objects.get(order_no=paid.order_no)
    request = RefundRequest.objects.get(owner_no=dead.after_sales_no)
    base = f"{live_server.url}/admin/payments"
    for name, path in {
        "payments": "payment/",
        "payment": f"payment/{payment.pk}/change/",
        "refunds": "refundrequest/",
        "refund-failed": f"refundrequest/{request.pk}/change/",
        "notifies": "channelnotify/",
        "bills": "channelbill/",
        "bill": f"channelbill/{books.bills['trade', DAY].pk}/change/",
    }.items():
        page.goto(f"{base}/{path}")
        shot(f"money-{name}-zh")
    page.goto(f"{base}/payment/{payment.pk}/change/")
    expect(page.locator("#content")).to_contain_text("¥171.67")
    assert console == []


def test_an_account_fits_a_phone(page: Page, live_server, log_in, console, shot, books: Books):  # noqa: F811
    log_in(a_person(role=Role.PLATFORM_ADMIN, now=clock.now(), username="root"))
    page.goto(f"{live_server.url}/admin/payments/channelaccount/{books.account.pk}/change/")
    expect(page.locator(".q-settings")).to_be_visible()
    shot("money-account-zh")
    assert console == []
