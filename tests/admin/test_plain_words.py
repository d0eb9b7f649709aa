"""Pages speak words: no code, id or technical name where people read."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import translation

from aftersales.models import AfterSalesOrder, ArbitrationCase
from coupons.coupon_page import actor_of
from kernel.admin import site
from ledgers.commands.top_up_wallet import top_up_wallet
from ledgers.models import JournalEntry, WalletAccount, WalletEntry
from merchants.admin import sentence_of
from merchants.models import Merchant, Staff, StaffAction
from merchants.roles import Role
from orders.models import Order, OrderLine
from payments.models import ChannelNotify, RefundRequest
from reconciliation.admin import _rows
from tests.admin.rows import a_row, anything_goes
from tests.admin.test_permissions import logged_in
from tests.merchants.factories import a_merchant

pytestmark = pytest.mark.django_db


@pytest.fixture
def merchant(now) -> Merchant:
    return a_merchant(now=now)


def page_of(client: Client, row: Any) -> str:
    address = reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])
    answer = client.get(address, headers={"Accept-Language": "en"})
    assert answer.status_code == 200, address
    return " ".join(answer.content.decode().split())


def an_action(merchant, now, **values: Any) -> StaffAction:
    given = {"before": {}, "after": {}, "detail": {}, "subject_type": "merchants.apiclient", "action": "change"}
    return a_row(StaffAction, merchant, now, **{**given, **values})  # type: ignore[return-value]


def test_a_refusal_in_the_trail_says_its_sentence(merchant, now):
    client = logged_in(Role.AUDITOR, None, now)
    with anything_goes():
        action = an_action(merchant, now, outcome="VERSION_CONFLICT")
        sentence = "Someone else changed this a moment ago. Reload and look again."
        page = page_of(client, action)
        rows = client.get("/admin/merchants/staffaction/", headers={"Accept-Language": "en"}).content.decode()
        for text in (page, rows):
            assert "Refused" in text and f'title="{sentence}"' in text and "VERSION_CONFLICT" not in text
        assert f"</span></span> {sentence}" in page
    assert sentence_of("GONE_LONG_AGO") == "GONE_LONG_AGO"


def test_lists_and_filters_in_the_trail_are_words(merchant, now):
    with anything_goes(), translation.override("en"):
        page = site._registry[StaffAction]
        action = an_action(
            merchant,
            now,
            before={"scopes": ["read"]},
            after={"scopes": ["read", "coupons"]},
            detail={"scopes": ["read"], "filters": "status=1"},
        )
        said = page.page_context(None, action)  # type: ignore[attr-defined]
    [(_label, before, after)] = said["changes"]
    assert after.startswith(f"{before}, ") and "[" not in before + after and before != "read"
    assert said["entered"] == [("Filters", "status=1")]


def test_the_last_login_is_a_time_of_the_house(merchant, now):
    client = logged_in(Role.PLATFORM_ADMIN, None, now)
    staff = Staff.objects.select_related("user").get()
    staff.user.last_login = now
    staff.user.save()
    page = page_of(client, staff)
    assert '<time datetime="' in page and str(staff.user.last_login) not in page


def test_every_column_of_money_has_its_sum(merchant, now):
    client = logged_in(Role.AUDITOR, None, now)
    with anything_goes():
        order = a_row(Order, merchant, now)
        for number in (1, 2, 3):
            figures = {"net_fen": 10_000 * number, "goods_committed_fen": 500, "freight_committed_fen": 11}
            a_row(OrderLine, merchant, now, order_id=order.pk, line_no=number, **figures)
        for reason in ("second_charge", "not_reopened:OUT_OF_STOCK", "second_charge: so the buyer says"):
            a_row(RefundRequest, merchant, now, order_no=order.order_no, reason=reason)  # type: ignore[attr-defined]
        page = page_of(client, order)
    assert '<td class="q-right q-money" data-sum="net">¥600.00</td>' in page
    assert '<td class="q-right q-money" data-sum="refunds">¥15.33</td>' in page
    for words in (">Second charge<", ">Refunded instead of reopened<", ">second_charge: so the buyer says<"):
        assert words in page


def test_the_books_name_accounts_and_reasons(merchant, now):
    client = logged_in(Role.AUDITOR, None, now)
    top_up_wallet(merchant_id=merchant.pk, user_id="lan", amount_fen=50_000, reference="bank-1", now=now)
    page = page_of(client, JournalEntry.objects.get())
    assert "Money for top-ups ¥500.00" in page and "wallet_funding" not in page
    account = WalletAccount.objects.get()
    with anything_goes():
        a_row(WalletEntry, merchant, now, account_id=account.pk, kind="credit", note="changed_mind")
        page = page_of(client, account)
    assert "Changed my mind" in page and "changed_mind" not in page


def test_a_claim_lowered_by_arbitration_shows_no_id(merchant, now):
    client = logged_in(Role.AUDITOR, None, now)
    with anything_goes():
        case = a_row(ArbitrationCase, merchant, now)
        claim = a_row(AfterSalesOrder, merchant, now, reduction_reason="arbitration")
        page = page_of(client, claim)
        other = page_of(client, a_row(AfterSalesOrder, merchant, now, reduction_reason="arbitration of our own"))
    assert "Lowered: Decided by arbitration" in page and str(case.pk) not in page
    assert "Lowered: arbitration of our own" in other


@pytest.mark.parametrize(("awarded", "said"), [(0, "Nothing was awarded."), (5, "What was awarded went to the buyer")])
def test_a_case_says_whether_anything_was_awarded(merchant, now, awarded, said):
    client = logged_in(Role.AUDITOR, None, now)
    with anything_goes():
        values = {"awarded_goods_fen": awarded, "awarded_freight_fen": 0, "closed_at": now}
        page = page_of(client, a_row(ArbitrationCase, merchant, now, state="DECIDED", **values))
    assert page.count("Decided for good.") == 1 and said in page


def test_a_callback_is_called_by_channel_and_kind(merchant, now):
    client = logged_in(Role.AUDITOR, None, now)
    with anything_goes():
        page = page_of(client, a_row(ChannelNotify, merchant, now, channel="wechat", kind="refund", verdict="VERIFIED"))
    assert "WeChat Pay · Refund" in page and "wechat refund" not in page


@pytest.mark.parametrize(
    ("actor", "said"),
    [
        ("orders.create_quote", "System: price quote"),
        ("system", "System"),
        ("client:qk_1", "API client qk_1"),
        ("staff:ops", "ops"),
        ("demo", "demo"),
    ],
)
def test_who_acted_on_a_coupon_is_words(actor, said):
    with translation.override("en"):
        assert actor_of(actor) == said


def test_a_finding_names_the_kind():
    with translation.override("en"):
        assert _rows({"kind": "order", "status": "PAID", "n": 1}) == [("kind", "Order"), ("status", "PAID"), ("n", "1")]
