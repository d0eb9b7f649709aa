"""The platform administrator's day and the owner's settings, in a browser."""

import re

import pytest
from django.test import Client
from playwright.sync_api import Page, expect

from merchants.models import ApiClient, Merchant, Staff, StaffAction
from merchants.roles import Role
from tests.merchants.factories import PASSWORD, a_client, a_merchant, a_person

pytestmark = pytest.mark.django_db(transaction=True)


def english(page: Page) -> None:
    page.context.set_extra_http_headers({"Accept-Language": "en"})


def test_administrator_makes_a_merchant_staff_and_a_client(page: Page, live_server, log_in, console, shot, now):
    admin = a_person(role=Role.PLATFORM_ADMIN, now=now, username="root")
    log_in(admin)
    shot("dashboard-administrator-zh")

    page.goto(f"{live_server.url}/admin/merchants/merchant/")
    page.click("[data-button=create]")
    page.fill("[name=code]", "tea-house")
    page.fill("[name=name]", "清和茶铺")
    page.click(".q-ask button[type=submit]")
    expect(page.get_by_text("清和茶铺")).to_be_visible()

    page.goto(f"{live_server.url}/admin/merchants/staff/do/create/")
    page.fill("[name=username]", "mei")
    page.fill("[name=password]", "12345")
    page.select_option("[name=role]", "merchant_staff")
    page.click(".q-ask button[type=submit]")
    expect(page.get_by_text("商家角色必须属于一个商家")).to_be_visible()
    page.fill("[name=password]", "12345")
    page.select_option("[name=merchant]", label="清和茶铺")
    page.click(".q-ask button[type=submit]")
    expect(page.get_by_text("密码太短")).to_be_visible()
    page.fill("[name=password]", PASSWORD)
    shot("staff-create-zh")
    page.click(".q-ask button[type=submit]")
    expect(page).to_have_url(re.compile("/admin/merchants/staff/$"))
    shot("staff-list-zh")

    page.goto(f"{live_server.url}/admin/merchants/apiclient/do/create/")
    page.select_option("[name=merchant]", label="清和茶铺")
    page.fill("[name=name]", "小程序后端")
    shot("client-create-zh")
    page.click(".q-ask button[type=submit]")
    secret = page.locator("[data-secret]").inner_text()
    assert len(secret) == 43
    shot("client-secret-zh")
    page.get_by_role("link", name="我已复制").click()
    expect(page.get_by_role("heading", name="密钥")).to_be_visible()
    assert secret not in page.content()
    shot("client-page-zh")

    assert Staff.objects.get(user__username="mei").must_change_password
    assert ApiClient.objects.get().merchant == Merchant.objects.get()
    assert sorted(StaffAction.objects.values_list("subject_type", "action")) == [
        ("merchants.apiclient", "create"),
        ("merchants.merchant", "create"),
        ("merchants.staff", "create"),
        ("merchants.staff", "create"),
    ]
    assert secret not in str(list(StaffAction.objects.values())) and PASSWORD not in str(
        list(StaffAction.objects.values())
    )
    assert console == []


def test_first_login_asks_for_a_password_of_ones_own(page: Page, live_server, console, shot, now):
    person = a_person(
        role=Role.MERCHANT_STAFF, merchant=a_merchant(now=now), now=now, username="mei", must_change_password=True
    )
    page.goto(f"{live_server.url}/admin/login/")
    page.fill("[name=username]", "mei")
    page.fill("[name=password]", PASSWORD)
    page.click("#login-form button[type=submit]")
    expect(page).to_have_url(re.compile("password_change"))
    shot("password-change-zh")

    page.goto(f"{live_server.url}/admin/merchants/merchant/")
    expect(page).to_have_url(re.compile("password_change"))
    page.fill("[name=old_password]", PASSWORD)
    page.fill("[name=new_password1]", "another 9 good one")
    page.fill("[name=new_password2]", "another 9 good one")
    page.locator("form:has([name=new_password1]) [type=submit], #submit-row [type=submit]").first.click()
    page.wait_for_url("**/password_change/done/")
    page.goto(f"{live_server.url}/admin/")
    expect(page.get_by_role("heading", name="清和茶铺")).to_be_visible()

    person.refresh_from_db()
    assert not person.must_change_password
    assert StaffAction.objects.get().action == "password_changed"
    assert console == []


def test_owner_changes_settings_and_sees_who_did(page: Page, live_server, log_in, console, shot, now):
    merchant = a_merchant(now=now)
    log_in(a_person(role=Role.MERCHANT_OWNER, merchant=merchant, now=now, username="owner"))
    page.goto(f"{live_server.url}/admin/merchants/merchant/{merchant.pk}/change/")
    shot("shop-zh")
    page.click("[data-button=settings]")
    page.fill("[name=audit_hours]", "24")
    page.select_option("[name=freight_policy]", "equal")
    shot("shop-settings-zh")
    page.click(".q-ask button[type=submit]")
    expect(page.get_by_text("设置已保存。")).to_be_visible()

    page.goto(f"{live_server.url}/admin/merchants/staffaction/")
    shot("trail-zh")
    page.locator("tbody th a").first.click()
    expect(page.get_by_role("row", name="审核时限（小时） 48 24")).to_be_visible()
    expect(page.get_by_role("row", name="运费分摊 按金额 按行平均")).to_be_visible()
    shot("trail-entry-zh")

    merchant.refresh_from_db()
    assert (merchant.audit_hours, merchant.freight_policy, merchant.version) == (24, "equal", 1)
    entry = StaffAction.objects.get()
    assert (entry.before["audit_hours"], entry.after["audit_hours"], entry.address) == (48, 24, "127.0.0.1")
    assert console == []


def test_two_who_change_the_same_thing_are_told_kindly(live_server, log_in, page: Page, now):
    merchant = a_merchant(now=now)
    log_in(a_person(role=Role.MERCHANT_OWNER, merchant=merchant, now=now, username="owner"))
    page.goto(f"{live_server.url}/admin/merchants/merchant/{merchant.pk}/do/settings/")
    page.fill("[name=audit_hours]", "24")
    Merchant.objects.filter(pk=merchant.pk).update(version=7, audit_hours=36)

    page.click(".q-ask button[type=submit]")

    expect(page.get_by_text("刚刚有人修改过，请刷新后再看。")).to_be_visible()
    merchant.refresh_from_db()
    assert merchant.audit_hours == 36
    assert StaffAction.objects.get().outcome == "VERSION_CONFLICT"


def test_five_failed_attempts_lock_the_login_until_unlocked(client: Client, now):
    owner = a_person(role=Role.MERCHANT_OWNER, merchant=a_merchant(now=now), now=now, username="owner")
    admin = a_person(role=Role.PLATFORM_ADMIN, now=now, username="root")
    wrong, right = {"username": "owner", "password": "x"}, {"username": "owner", "password": PASSWORD}

    for _ in range(5):
        answer = client.post("/admin/login/", wrong)
    assert answer.status_code == 429
    assert "15" in answer.content.decode()
    assert client.post("/admin/login/", right).status_code == 429, "even the right password waits"

    desk = Client()
    desk.force_login(admin.user, backend="django.contrib.auth.backends.ModelBackend")
    assert desk.post(f"/admin/merchants/staff/{owner.pk}/do/unlock/", {"once": "a" * 32}).status_code == 302
    assert client.post("/admin/login/", right).status_code == 302


def test_a_double_click_does_it_once(client: Client, now):
    admin = a_person(role=Role.PLATFORM_ADMIN, now=now, username="root")
    merchant = a_merchant(now=now)
    key = a_client(merchant=merchant, now=now)
    client.force_login(admin.user, backend="django.contrib.auth.backends.ModelBackend")
    sent = {"once": "b" * 32, "key_id": key.key_id}
    address = f"/admin/merchants/apiclient/{key.client_id}/do/revoke/"

    assert client.post(address, sent).status_code == 302
    assert client.post(address, sent).status_code in (200, 302)

    assert StaffAction.objects.filter(action="revoke", outcome="done").count() == 1


def test_pages_carry_their_policy(client: Client, now):
    admin = a_person(role=Role.PLATFORM_ADMIN, now=now, username="root")
    client.force_login(admin.user, backend="django.contrib.auth.backends.ModelBackend")

    answer = client.get("/admin/")

    policy = answer["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
    assert {"no-store", "private"} <= set(answer["Cache-Control"].split(", "))
