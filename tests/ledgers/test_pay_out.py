"""Finance records what was transferred to a beneficiary: once per transfer, never more than there is."""

import pytest

from ledgers.commands.mature_commission import mature_commission
from ledgers.models import Commission, CommissionAccount, CommissionEntry
from merchants.models import StaffAction
from merchants.roles import Role
from tests.admin.test_guards import clerk, press
from tests.ledgers.test_commission import WEEK, accrue, buckets


@pytest.fixture
def account(merchant, now) -> CommissionAccount:
    """20.00 that can be paid out, 20.00 that cannot yet."""
    for order_no in ("Q1", "Q2"):
        accrue(merchant, now, order_no=order_no)
    [first, _second] = Commission.objects.order_by("order_no")
    mature_commission(commission_id=first.pk, now=now + WEEK)
    assert buckets() == (2000, 2000, 0, 0)
    return CommissionAccount.objects.get()


def pay_out(client, account, yuan: str, reference: str = "bank-7") -> str:
    return press(client, "ledgers_commissionaccount", account.pk, "pay_out", amount_fen=yuan, reference=reference)


def test_a_transfer_is_recorded_once(account, now) -> None:
    anna = clerk("anna", Role.FINANCE, now)
    assert "¥12.50 paid out; ¥7.50 can still be paid out." in pay_out(anna, account, "12.50")
    assert buckets() == (2000, 750, 0, 1250)
    assert "This reference had been paid out before." in pay_out(anna, account, "12.50")
    pay_out(anna, account, "3.00")  # the same transfer cannot have had another amount
    assert buckets() == (2000, 750, 0, 1250)
    assert set(CommissionEntry.objects.filter(reference="bank-7").values_list("kind", flat=True)) == {"withdraw"}
    told = StaffAction.objects.order_by("id").values_list("outcome", flat=True)
    assert list(told)[:2] == ["done", "repeated"]
    first = StaffAction.objects.order_by("id").first()
    told = clerk("eve", Role.AUDITOR, now).get(f"/admin/merchants/staffaction/{first.pk}/change/").content.decode()
    assert "¥12.50" in told
    assert ">1250<" not in told  # amounts are never shown in fen


@pytest.mark.parametrize("yuan", ["20.01", "0.00", "-0", "0", "-1", "1e3", "much", "99999999999999"])
def test_never_more_than_there_is(account, now, yuan: str) -> None:
    assert "paid out;" not in pay_out(clerk("anna", Role.FINANCE, now), account, yuan)
    assert buckets() == (2000, 2000, 0, 0)


@pytest.mark.parametrize("role", [Role.CUSTOMER_SERVICE, Role.OPERATIONS, Role.AUDITOR])
def test_only_finance_pays_out(account, now, role: Role) -> None:
    pay_out(clerk("ben", role, now), account, "1.00")
    assert buckets() == (2000, 2000, 0, 0)
