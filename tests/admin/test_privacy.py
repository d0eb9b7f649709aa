"""Personal data of buyers: hidden, masked or plain by role, on every page that has some; each reveal written down."""

import pytest
from django.test import Client
from django.urls import reverse

from kernel.admin import site
from kernel.admin.columns import mask
from kernel.admin.export import harmless
from kernel.admin.reveal import personal_fields
from merchants import scoping
from merchants.models import StaffAction
from merchants.roles import MERCHANT, Role
from payments.models import ChannelNotify
from tests.admin.rows import PERSONAL, SECRET, a_row, anything_goes, is_personal
from tests.admin.test_permissions import PAGES, logged_in
from tests.merchants.factories import a_merchant

WITH_PEOPLE = [
    model
    for model in PAGES
    if any(is_personal(field) for field in model._meta.concrete_fields) or personal_fields(model)
]
FINANCE_AND_CARE = {Role.FINANCE, Role.CUSTOMER_SERVICE}
DECLARED = [model for model in PAGES if any(name in PERSONAL for name in personal_fields(model))]


def pages_of(client: Client, model, row) -> str:
    base = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    answers = [client.get(reverse(f"{base}_changelist")), client.get(reverse(f"{base}_change", args=[row.pk]))]
    return "".join(answer.content.decode() for answer in answers if answer.status_code == 200)


@pytest.mark.parametrize("model", WITH_PEOPLE, ids=lambda model: model._meta.label)
def test_nobody_of_the_house_reads_a_buyer_by_the_way(model, db, now):
    merchant = a_merchant(now=now)
    with anything_goes():
        row = a_row(model, merchant, now)
        for role in Role:
            if role not in MERCHANT and role in scoping.entry_of(model).view:
                assert SECRET not in pages_of(logged_in(role, merchant, now), model, row), role


@pytest.mark.parametrize("model", DECLARED, ids=lambda model: model._meta.label)
def test_plain_for_the_shop_masked_for_service_hidden_from_finance(model, db, now):
    merchant, entry = a_merchant(now=now), scoping.entry_of(model)
    with anything_goes():
        row = a_row(model, merchant, now)
        if Role.MERCHANT_OWNER in entry.view:
            assert SECRET in pages_of(logged_in(Role.MERCHANT_OWNER, merchant, now), model, row)
        if Role.CUSTOMER_SERVICE in entry.view:
            assert mask(SECRET) in pages_of(logged_in(Role.CUSTOMER_SERVICE, merchant, now), model, row)
        if Role.FINANCE in entry.view:
            assert mask(SECRET) not in pages_of(logged_in(Role.FINANCE, merchant, now), model, row)


@pytest.mark.parametrize("model", DECLARED[:1], ids=lambda model: model._meta.label)
def test_a_reveal_is_written_down(model, db, now):
    merchant = a_merchant(now=now)
    name = next(name for name in personal_fields(model) if name in PERSONAL)
    with anything_goes():
        row = a_row(model, merchant, now)
        asked = {"model": model._meta.label_lower, "pk": str(row.pk), "field": name}
        service, finance = (logged_in(role, merchant, now) for role in (Role.CUSTOMER_SERVICE, Role.FINANCE))
        other = a_merchant(code="nut-shop", name="坚果铺", now=now)
        stranger = logged_in(Role.MERCHANT_OWNER, other, now)

        answer = service.post(reverse("admin:reveal"), asked)

        assert SECRET in answer.json()["value"]
        action = StaffAction.objects.get(action="reveal")
        assert (action.subject_id, action.detail, action.merchant_id) == (str(row.pk), {"field": name}, merchant.pk)
        assert SECRET not in str(action.__dict__)
        assert finance.post(reverse("admin:reveal"), asked).status_code == 403
        assert stranger.post(reverse("admin:reveal"), asked).status_code == 404
        assert service.get(reverse("admin:reveal"), asked).status_code == 405
        assert service.post(reverse("admin:reveal"), {**asked, "field": "id"}).status_code == 403
        assert service.post(reverse("admin:reveal"), {**asked, "pk": "nonsense"}).status_code == 404
        assert service.post(reverse("admin:reveal"), {**asked, "model": "auth.user"}).status_code == 403
        assert StaffAction.objects.filter(action="reveal").count() == 1


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("", ""),
        ("张", "张****"),
        ("张三", "张****"),
        ("欧阳娜娜", "欧****"),
        ("13812345678", "138****5678"),
        ("oUpF8uMuAJO_M2pxb1Q9zNjWeS6o", "oUp****eS6o"),
        ("u-1024", "u****"),
        ("h4-7d8514", "h****"),
        ("王小二 13912345678 上海市 南京路 4 号", "王****"),
        ("上海市南京路1234567号", "上****"),
    ],
)
def test_masks_leave_enough_to_recognise(value, shown):
    assert mask(value) == shown


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+86 138", "'+86 138"),
        ("-12.50", "-12.50"),
        ("@x", "'@x"),
        ("\tx", "'\tx"),
        ("-2+3", "'-2+3"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_a_spreadsheet_executes_nothing(value, cell):
    assert harmless(value) == cell


EXPORTING = [model for model in PAGES if site._registry[model].export_columns]


@pytest.mark.parametrize("model", EXPORTING, ids=lambda model: model._meta.label)
def test_an_export_carries_the_masks_and_is_written_down(model, db, now):
    merchant = a_merchant(now=now)
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_export")
    with anything_goes():
        a_row(model, merchant, now)
        for role in scoping.entry_of(model).actions["export"]:
            answer = logged_in(role, merchant, now).get(address)
            text = b"".join(answer.streaming_content).decode()

            assert text.startswith("\ufeff") and text.count("\r\n") >= 2
            assert role in MERCHANT or SECRET not in text
            assert StaffAction.objects.filter(action="export", role=role).count() == 1


CALLBACKS = [
    b"gmt_create=2026-11-01&buyer_open_id=074a1CcTG1LelxKe4xQC0zgNdId0nxi95b5&buyer_logon_id=159%2A%2A&total_amount=1.00",
    b'{"payer": {"openid": "074a1CcTG1LelxKe4xQC0zgNdId0nxi95b5"}, "amount": {"total": 100}}',
    b'{"sp_openid":"074a1CcTG1LelxKe4xQC0zgNdId0nxi95b5","user_received_account":"bank 0403"}',
]


@pytest.mark.parametrize("body", CALLBACKS)
def test_a_callback_tells_only_the_shop_who_paid(body, db, now):
    merchant = a_merchant(now=now)
    with anything_goes():
        row = a_row(
            ChannelNotify, merchant, now, body=body, facts={"payer_ref": "074a1CcTG1LelxKe4", "amount_fen": 100}
        )
        page = reverse("admin:payments_channelnotify_change", args=[row.pk])
        shown = {
            role: logged_in(role, merchant, now).get(page).content.decode() for role in MERCHANT | FINANCE_AND_CARE
        }
        asked = {"model": "payments.channelnotify", "pk": str(row.pk), "field": "body"}

        assert all(("074a1CcTG1LelxKe4" in text) is (role in MERCHANT) for role, text in shown.items())
        assert "0403" not in shown[Role.FINANCE] and "159%2A" not in shown[Role.FINANCE]
        assert "data-field" in shown[Role.CUSTOMER_SERVICE] and "data-field" not in shown[Role.FINANCE]
        assert "074a1" in logged_in(Role.AUDITOR, merchant, now).post(reverse("admin:reveal"), asked).json()["value"]
        assert StaffAction.objects.get(action="reveal").detail == {"field": "body"}
