"""What a form has to bring along before anything is done: its own token, and the version that was looked at."""

import uuid

import pytest
from django.urls import reverse

from aftersales.models import AfterSalesOrder, Status
from merchants.roles import Role
from tests.admin.test_guards import clerk, press
from tests.aftersales.build import nut_and_tea

PAGE = "aftersales_aftersalesorder"
UNREADABLE = ["", "abc", "-1", "1\x00", "１", "2147483648", "9223372036854775808", "9" * 5000, None]
STRANGE = ["", "a\x00b", "x" * 65, "with space", None]


@pytest.fixture
def claim(transactional_db, now) -> AfterSalesOrder:
    paid = nut_and_tea(now)
    return AfterSalesOrder.objects.get(after_sales_no=paid.apply(2, reason="changed_mind").after_sales_no)


@pytest.fixture
def owner(claim, now):
    from django.test import Client

    from tests.merchants.factories import a_person

    client = Client(headers={"accept-language": "en"})
    person = a_person(role=Role.MERCHANT_OWNER, merchant=claim.merchant, now=now)
    client.force_login(person.user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def sent(**fields):
    return {name: value for name, value in fields.items() if value is not None}


def untouched(claim) -> bool:
    now_is = AfterSalesOrder.objects.get(pk=claim.pk)
    return (now_is.status, now_is.version) == (Status.WAIT_AUDIT, 1)


@pytest.mark.parametrize("seen", UNREADABLE)
@pytest.mark.parametrize("button", ["approve", "reject"])
def test_nobody_acts_on_a_version_they_do_not_name(claim, owner, button: str, seen) -> None:
    address = reverse(f"admin:{PAGE}_do", args=[claim.pk, button])
    fields = sent(once=uuid.uuid4().hex, seen_version=seen, reason="no", liability="buyer")
    answer = owner.post(address, fields, follow=True)
    assert answer.status_code == 200
    said = [str(each) for each in answer.context["messages"]]
    assert any("does not say which version" in each for each in said), said
    assert untouched(claim)


@pytest.mark.parametrize("once", STRANGE)
def test_nothing_is_done_without_the_forms_own_token(claim, owner, once) -> None:
    address = reverse(f"admin:{PAGE}_do", args=[claim.pk, "approve"])
    answer = owner.post(address, sent(once=once, seen_version="1", liability="buyer"))
    assert answer.status_code == 200
    assert "without its own token" in answer.content.decode()
    assert len(answer.context["once"]) == 32  # asked again, with a good one
    assert untouched(claim)


@pytest.mark.parametrize("seen", UNREADABLE)
def test_ticked_rows_say_their_version_too(claim, owner, seen) -> None:
    address = reverse(f"admin:{PAGE}_bulk", args=["approve"])
    fields = sent(once=uuid.uuid4().hex, ids=[str(claim.pk)], **sent(**{f"seen_{claim.pk}": seen}))
    [row] = owner.post(address, fields, headers={"accept": "application/json"}).json()["rows"]
    assert not row["ok"]
    assert untouched(claim)


@pytest.mark.parametrize("once", STRANGE)
def test_ticked_rows_need_the_token(claim, owner, once) -> None:
    address = reverse(f"admin:{PAGE}_bulk", args=["approve"])
    answer = owner.post(address, sent(once=once, ids=[str(claim.pk)], **{f"seen_{claim.pk}": "1"}))
    assert answer.status_code == 200
    assert untouched(claim)


def test_the_page_itself_says_both(claim, owner) -> None:
    assert "Approved:" in press(owner, PAGE, claim.pk, "approve", liability="buyer")
    assert not untouched(claim)


def test_a_version_that_never_was_blames_nobody(claim, owner) -> None:
    """And a buyer who really was there is not named by their id."""
    address = reverse(f"admin:{PAGE}_do", args=[claim.pk, "approve"])
    fields = {"once": uuid.uuid4().hex, "seen_version": "6", "liability": "buyer"}
    said = owner.post(address, fields, follow=True).content.decode()
    assert "Changed by" not in said
    fields = {"once": uuid.uuid4().hex, "seen_version": "0", "liability": "buyer"}
    said = owner.post(address, fields, follow=True).content.decode()
    assert "Changed by Buyer a moment ago" in said
    assert untouched(claim)


def test_finance_is_asked_too(claim, now) -> None:
    """The frame's guards are every page's, not one command's."""
    from ledgers.commands.accrue_commission import accrue_commission
    from ledgers.models import CommissionAccount

    accrue_commission(
        merchant_id=claim.merchant_id,
        order_no="Q1",
        line_no=1,
        beneficiary="mei",
        level=1,
        base_fen=100,
        amount_fen=10,
        hold_until=now,
        now=now,
    )
    account = CommissionAccount.objects.get()
    CommissionAccount.objects.filter(pk=account.pk).update(withdrawable_fen=10)
    address = reverse("admin:ledgers_commissionaccount_do", args=[account.pk, "pay_out"])
    anna = clerk("anna", Role.FINANCE, now)
    for wrong in ({"once": "a\x00b"}, {"once": "a", "seen_version": "9" * 5000}):
        assert anna.post(address, {"amount_fen": "0.01", "reference": "r", **wrong}, follow=True).status_code == 200
    assert CommissionAccount.objects.get().withdrawn_fen == 0
