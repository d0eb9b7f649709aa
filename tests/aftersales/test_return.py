"""Sending goods back: ship_return, confirm_return (inspection), reject_return, cancel, reject."""

from datetime import timedelta

import pytest

from aftersales.actors import By
from aftersales.commands.cancel_after_sales import cancel_after_sales
from aftersales.commands.reject_after_sales import reject_after_sales
from aftersales.commands.reject_return import reject_return
from aftersales.models import Actor, AfterSalesUnit, Inspection, ReturnShipment
from aftersales.settlement import ReasonNeeded
from kernel.errors import IllegalTransition, InvalidInput, NotFound, VersionConflict
from payments.models import RefundAttempt, RefundRequest
from tests.aftersales.build import BUYER, MERCHANT, Line, a_key, a_paid_order, nut_and_tea

pytestmark = pytest.mark.django_db


def reject(paid, number, *, version=1, reason="not ours"):
    return reject_after_sales(
        merchant_id=paid.merchant.pk,
        after_sales_no=number,
        expected_version=version,
        reason=reason,
        by=MERCHANT,
        key=a_key(paid.merchant.pk),
        now=paid.now,
    )


def cancel(paid, number, **more):
    return cancel_after_sales(
        **{
            "merchant_id": paid.merchant.pk,
            "after_sales_no": number,
            "user_id": BUYER,
            "by": By(Actor.BUYER, BUYER),
            "key": a_key(paid.merchant.pk),
            "now": paid.now,
            **more,
        }
    )


def send_away(paid, number, *, version=3, reason="worn", tracking_no="SF9"):
    return reject_return(
        merchant_id=paid.merchant.pk,
        after_sales_no=number,
        expected_version=version,
        reason=reason,
        carrier="SF",
        tracking_no=tracking_no,
        by=MERCHANT,
        key=a_key(paid.merchant.pk),
        now=paid.now,
    )


@pytest.fixture
def paid(now):
    made = nut_and_tea(now)
    made.ship(1)
    made.ship(2)
    return made


def test_the_parcel_is_recorded_and_waits_for_receipt(paid):
    number = paid.apply(2, type=2).after_sales_no
    paid.approve(number)
    done = paid.send_back(number)
    assert (done.status, done.version) == ("WAIT_MERCHANT_RECEIVE", 3)
    parcel = ReturnShipment.objects.get()
    assert (parcel.direction, parcel.carrier, parcel.tracking_no) == ("to_merchant", "SF", f"SF{number}")
    assert paid.claim(number).due_at == paid.now + timedelta(days=20)


def test_no_parcel_before_the_approval_nor_twice_nor_by_another_buyer(paid):
    number = paid.apply(2, type=2).after_sales_no
    with pytest.raises(IllegalTransition):
        paid.send_back(number)
    paid.approve(number)
    with pytest.raises(VersionConflict):
        paid.send_back(number, expected_version=1)
    paid.send_back(number)
    with pytest.raises(IllegalTransition):
        paid.send_back(number)
    assert ReturnShipment.objects.count() == 1


def test_a_confirmed_return_pays_goods_and_freight(paid):
    number = paid.returned(2)
    done = paid.confirm(number)
    assert (done.status, done.version, done.goods_fen, done.freight_fen) == ("REFUNDING", 4, 16667, 500)
    assert RefundAttempt.objects.get().amount_fen == 17167
    found = Inspection.objects.get()
    assert (found.sellable_qty, found.defect_qty, found.missing_qty) == (1, 0, 0)


def test_a17_two_of_three_arrive(now):
    paid = a_paid_order(now, Line(8999, qty=3))
    paid.ship(1)
    number = paid.returned(1, qty=3)
    done = paid.confirm(number, sellable=1, defect=1, missing=1)
    assert (done.accepted_qty, done.goods_fen) == (2, 17998)
    assert paid.line(1).held_ordinals == [1, 2]
    assert list(AfterSalesUnit.objects.order_by("ordinal").values_list("ordinal", "live", "disposition")) == [
        (1, True, "sellable"),
        (2, True, "defect"),
        (3, False, "missing"),
    ]
    assert paid.apply(1, qty=1, type=2).ordinals == [3]


@pytest.mark.parametrize("counts", [{"sellable": 2}, {"sellable": 0}, {"sellable": 0, "missing": 1}, {"sellable": -1}])
def test_counts_that_do_not_add_up(paid, counts):
    number = paid.returned(2)
    with pytest.raises(InvalidInput):
        paid.confirm(number, **counts)
    assert not Inspection.objects.exists()
    assert not RefundRequest.objects.exists()


def test_inspection_may_find_the_buyer_at_fault(paid):
    number = paid.returned(2, reason="quality")
    done = paid.confirm(number, liability="buyer", liability_reason="works")
    assert (done.goods_fen, done.freight_fen) == (16667, 0)
    assert paid.claim(number).liability == "buyer"


def test_confirm_at_another_version_is_refused(paid):
    number = paid.returned(2)
    with pytest.raises(VersionConflict):
        paid.confirm(number, version=2)
    assert paid.line(2).goods_committed_fen == 0


def test_inspection_refuses_with_proof_and_a_parcel_back(paid):
    number = paid.returned(2)
    with pytest.raises(ReasonNeeded):
        send_away(paid, number, reason=" ")
    with pytest.raises(InvalidInput):
        send_away(paid, number, tracking_no="")
    assert paid.claim(number).status == "WAIT_MERCHANT_RECEIVE"
    done = send_away(paid, number)
    assert done.status == "REJECTED"
    assert ReturnShipment.objects.get(direction="sent_back").tracking_no == "SF9"
    assert paid.line(2).held_ordinals == []
    assert paid.apply(2, type=2).ordinals == [1]


def test_rejected_units_are_free_again(paid):
    number = paid.apply(2, type=2).after_sales_no
    with pytest.raises(ReasonNeeded):
        reject(paid, number, reason="")
    done = reject(paid, number)
    assert (done.status, done.version) == ("REJECTED", 2)
    claim = paid.claim(number)
    assert (claim.finished_at, claim.due_at) == (paid.now, None)
    assert not claim.units.filter(live=True).exists()
    assert paid.line(2).held_ordinals == []
    with pytest.raises(IllegalTransition):
        reject(paid, number, version=2)


def test_the_buyer_cancels_before_audit_and_before_sending(paid):
    first = paid.apply(2, type=2).after_sales_no
    assert cancel(paid, first).status == "CANCELED"
    second = paid.apply(2, type=2).after_sales_no
    paid.approve(second)
    assert cancel(paid, second).status == "CANCELED"
    third = paid.returned(2)
    with pytest.raises(IllegalTransition):
        cancel(paid, third)
    assert paid.line(2).held_ordinals == [1]


def test_nobody_cancels_for_another_buyer(paid):
    number = paid.apply(2, type=2).after_sales_no
    with pytest.raises(NotFound):
        cancel(paid, number, user_id="u-2")
    assert paid.claim(number).status == "WAIT_AUDIT"
