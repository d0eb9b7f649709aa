"""Rollbacks that nobody asked for are asked for and done; whatever was done before is not done twice."""

import pytest

from aftersales.commands.complete_rollbacks import ClaimNotRefunded, complete_rollbacks
from aftersales.models import ALWAYS_TURNED_BACK, Rollback
from kernel.errors import NotFound
from kernel.models import OutboxEvent
from tests.aftersales.build import nut_and_tea

pytestmark = pytest.mark.django_db


def rows() -> set[tuple[str, str]]:
    return set(Rollback.objects.values_list("system", "state"))


def test_missing_and_waiting(now):
    paid = nut_and_tea(now)
    number = paid.apply(2).after_sales_no
    paid.approve(number)
    paid.channel_says(f"{number}-0")
    everything = rows()
    Rollback.objects.filter(system="sales").delete()
    Rollback.objects.filter(system="stock").update(state="PENDING", done_at=None)
    done = complete_rollbacks(merchant_id=paid.merchant.pk, after_sales_no=number, now=now)
    assert (done.asked, sorted(done.done)) == (["sales"], ["sales", "stock"])
    assert rows() == everything == {(str(system), "DONE") for system in ALWAYS_TURNED_BACK}
    asked = OutboxEvent.objects.filter(name="rollback.requested").count()
    again = complete_rollbacks(merchant_id=paid.merchant.pk, after_sales_no=number, now=now)
    assert (again.asked, again.done) == ([], [])
    assert OutboxEvent.objects.filter(name="rollback.requested").count() == asked == len(ALWAYS_TURNED_BACK) + 1


def test_refusals_write_nothing(now):
    paid = nut_and_tea(now)
    number = paid.apply(2).after_sales_no
    paid.approve(number)
    for wrong, error in ((number, ClaimNotRefunded), ("AS-NOWHERE", NotFound)):
        with pytest.raises(error):
            complete_rollbacks(merchant_id=paid.merchant.pk, after_sales_no=wrong, now=now)
    assert not Rollback.objects.exists()
    assert not OutboxEvent.objects.filter(name="rollback.requested").exists()
