"""What the desk itself guards: two people for money outside the channel, and a trail that tells no secrets."""

import uuid

import pytest
from django import forms
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.urls import reverse

from kernel.admin import site
from kernel.admin.buttons import loggable
from kernel.errors import InvalidInput
from merchants.models import StaffAction
from merchants.roles import Role
from payments.models import RefundRequest
from tests.admin.test_permissions import PAGES
from tests.aftersales.build import nut_and_tea
from tests.merchants.factories import a_person

NAMES_OF_PEOPLE = ("real_name", "bank_account", "phone", "id_card", "receiver", "user_id", "beneficiary")


@pytest.fixture
def failed(db, now):
    """A claim whose refund the channel closed."""
    paid = nut_and_tea(now)
    number = paid.apply(2).after_sales_no
    paid.approve(number)
    paid.channel_says(f"{number}-0", "CLOSED")
    return paid.claim(number)


def clerk(name: str, role: Role, now) -> Client:
    client = Client(headers={"accept-language": "en"})
    client.force_login(
        a_person(role=role, now=now, username=name).user, backend="django.contrib.auth.backends.ModelBackend"
    )
    return client


def press(client: Client, page: str, pk, button: str, **fields) -> str:
    """Press a button as a person does, and read what the desk says."""
    address = reverse(f"admin:{page}_do", args=[pk, button])
    seen = client.get(address)
    version = seen.context["seen_version"] if seen.status_code == 200 else ""
    answer = client.post(address, {"once": uuid.uuid4().hex, "seen_version": version, **fields}, follow=True)
    return answer.content.decode()


def test_a_voucher_is_approved_by_another_person_only(failed, now):
    anna, ben = clerk("anna", Role.FINANCE, now), clerk("ben", Role.FINANCE, now)
    request = RefundRequest.objects.get()

    press(anna, "payments_refundrequest", request.pk, "voucher", voucher="bank slip 77")
    press(anna, "payments_refundrequest", request.pk, "approve")
    press(anna, "aftersales_aftersalesorder", failed.pk, "approve_voucher")
    request.refresh_from_db()
    assert (request.status, request.voucher_by, request.approved_by) == ("FAILED", "anna", "")

    press(ben, "payments_refundrequest", request.pk, "approve")
    request.refresh_from_db()
    assert (request.status, request.approved_by) == ("SUCCEEDED", "ben")
    assert list(StaffAction.objects.order_by("id").values_list("username", "action", "outcome")) == [
        ("anna", "voucher", "done"),
        ("anna", "approve", "SECOND_PERSON_NEEDED"),
        ("anna", "approve_voucher", "SECOND_PERSON_NEEDED"),
        ("ben", "approve", "done"),
    ]


def test_a_refund_is_given_up_by_two_people_only(failed, now):
    anna, ben = clerk("anna", Role.OPERATIONS, now), clerk("ben", Role.FINANCE, now)

    press(anna, "aftersales_aftersalesorder", failed.pk, "ask_rejection", reason="cannot be paid")
    press(anna, "aftersales_aftersalesorder", failed.pk, "approve_rejection")
    failed.refresh_from_db()
    assert (failed.status, failed.rejection_asked_by) == ("REFUND_FAILED", "anna")

    press(ben, "aftersales_aftersalesorder", failed.pk, "approve_rejection")
    failed.refresh_from_db()
    assert failed.status == "REJECTED"


def test_two_people_never_look_like_one_in_a_history(db, now):
    with pytest.raises(InvalidInput):
        a_person(role=Role.FINANCE, now=now, username="x" * 65)


@pytest.mark.parametrize("statement", ["UPDATE staff_action SET username = 'ben'", "DELETE FROM staff_action"])
def test_the_trail_is_for_good(failed, now, statement):
    press(
        clerk("anna", Role.FINANCE, now),
        "payments_refundrequest",
        RefundRequest.objects.get().pk,
        "voucher",
        voucher="x",
    )

    with pytest.raises(DatabaseError, match="pgtrigger"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)

    assert StaffAction.objects.get().username == "anna"


def test_what_was_entered_is_kept_without_secrets_and_with_masks():
    kept = loggable(
        {"password": "p", "secret_values": {"a": 1}, "real_name": "欧阳娜娜", "reason": "moved", "note": ""},
        personal=frozenset({"real_name"}),
    )

    assert kept == {"real_name": "欧****", "reason": "moved"}


FORMS = sorted(
    {button.form for model in PAGES for button in [*site._registry[model].buttons, *site._registry[model].list_buttons]}
    - {None},
    key=lambda form: form.__qualname__,
)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__qualname__)
def test_forms_declare_what_is_personal_or_secret(form):
    fields = form.base_fields

    assert {name for name in fields if name in NAMES_OF_PEOPLE} == form.personal
    for name, field in fields.items():
        if isinstance(field.widget, forms.PasswordInput):
            assert "password" in name or "secret" in name, "the trail would keep it"
