"""Risk rules hold a claim for a person; a decision is recorded and frees it, or not."""

from datetime import timedelta

import pytest

from aftersales.commands.apply_after_sales import apply_after_sales
from aftersales.commands.change_risk_rule import change_risk_rule
from aftersales.commands.decide_risk import decide_risk
from aftersales.drafts import Item
from aftersales.models import AfterSalesOrder, AfterSalesSettings, CarrierEvent, RiskReview, RiskRule
from aftersales.risk import RULES, Application
from aftersales.settlement import ReasonNeeded
from kernel.errors import IllegalTransition, InvalidInput, VersionConflict
from orders.models import Order, Shipment, ShipmentLine
from tests.aftersales.build import BUYER, MERCHANT, Line, a_key, a_paid_order, nut_and_tea

pytestmark = pytest.mark.django_db


def rule(now, kind: str, merchant=None, **figures) -> None:
    change_risk_rule(
        merchant_id=merchant.pk if merchant else None,
        kind=kind,
        params=figures,
        is_active=True,
        changed_by="ops",
        now=now,
    )


def apply(paid, line_no: int = 1, *, application: Application = Application(), **wish) -> AfterSalesOrder:  # noqa: B008
    item = Item(**{"line_no": line_no, "qty": 1, "type": 1, "reason_code": "quality", **wish})
    done = apply_after_sales(
        merchant_id=paid.merchant.pk,
        order_no=paid.order.order_no,
        user_id=paid.order.user_id,
        items=[item],
        key=a_key(paid.merchant.pk),
        application=application,
        now=paid.now,
    )
    return paid.claim(done.after_sales[0].after_sales_no)


def hits(claim: AfterSalesOrder) -> list[str]:
    review = RiskReview.objects.filter(after_sales=claim).first()
    return [hit["rule"] for hit in review.hits] if review else []


def test_without_rules_nobody_is_held(now):
    claim = apply(nut_and_tea(now))
    assert (claim.held_for_review, hits(claim)) == (False, [])


def test_many_applications(now):
    rule(now, "many_claims", claims=2, days=30)
    paid = a_paid_order(now, Line(1000, qty=4))
    assert [hits(apply(paid)) for _ in range(3)] == [[], [], ["many_claims"]]
    paid.now = now + timedelta(days=31)
    assert hits(apply(paid)) == []


def test_several_lines_at_once_are_one_application(now):
    rule(now, "many_claims", claims=1, days=30)
    paid = nut_and_tea(now)
    paid.apply_all([Item(line_no=n, type=1, qty=1, reason_code="quality") for n in (1, 2)])
    assert not RiskReview.objects.exists()


def test_nearly_all_back_without_a_return(now):
    rule(now, "all_back_without_return", percent=95)
    paid = nut_and_tea(now)
    assert hits(apply(paid, 1)) == []
    paid.ship(2)
    assert hits(apply(paid, 2, goods_fen=10000)) == []
    other = nut_and_tea(now)
    other.ship(2)
    assert hits(apply(other, 2, goods_fen=16000)) == ["all_back_without_return"]
    third = nut_and_tea(now)
    third.ship(2)
    assert hits(apply(third, 2, type=2)) == []


def shipped(paid, tracking_no: str) -> None:
    paid.ship(1, signed=False)
    parcel = Shipment.objects.create(
        merchant=paid.merchant,
        order=paid.order,
        carrier="SF",
        tracking_no=tracking_no,
        shipped_at=paid.now,
        auto_sign_at=paid.now + timedelta(days=10),
    )
    ShipmentLine.objects.create(shipment=parcel, line=paid.line(1), qty=1, ordinals=[1])


def test_refund_before_the_parcel_moved(now):
    rule(now, "before_movement")
    paid = nut_and_tea(now)
    shipped(paid, "SF1")
    assert hits(apply(paid, 1, reason_code="not_received")) == ["before_movement"]
    other = nut_and_tea(now)
    shipped(other, "SF2")
    CarrierEvent.objects.create(
        merchant=other.merchant, carrier="SF", tracking_no="SF2", what="moved", happened_at=now, heard_at=now
    )
    assert hits(apply(other, 1, reason_code="not_received")) == []


def test_new_account(now):
    rule(now, "new_account", days=7, from_fen=1000)
    paid = nut_and_tea(now)
    assert hits(apply(paid, 1)) == ["new_account"]
    old = Application(account_created_at=now - timedelta(days=400))
    assert hits(apply(nut_and_tea(now), 1, application=old)) == []


def test_shared_address_and_device(now):
    paid = nut_and_tea(now)
    rule(now, "shared_address", buyers=2, days=90)
    rule(now, "shared_device", buyers=1, days=90)
    for user in ("u-8", "u-9", BUYER):
        paid = nut_and_tea(now, merchant=paid.merchant, user=user)
        Order.objects.filter(pk=paid.order.pk).update(address={"street": "1"})
        found = hits(apply(paid, 1, application=Application(device_hash="d-1")))
    assert found == ["shared_address", "shared_device"]


def test_freight_insurance(now):
    rule(now, "freight_insurance", returns=2, days=60)
    paid = a_paid_order(now, Line(1000, qty=4))
    paid.ship(1)
    insured = Application(freight_insured=True)
    own = {"type": 2, "reason_code": "changed_mind"}
    assert hits(apply(paid, application=insured, **own)) == []
    assert hits(apply(paid, application=insured, **own)) == ["freight_insurance"]
    assert hits(apply(paid, application=insured, type=2)) == []
    assert hits(apply(paid, **own)) == []


def test_a_merchants_own_rule_replaces_the_one_for_all(now):
    paid = a_paid_order(now, Line(1000, qty=4))
    rule(now, "many_claims", claims=0, days=30)
    rule(now, "many_claims", merchant=paid.merchant, claims=9, days=30)
    assert hits(apply(paid)) == []
    assert hits(apply(nut_and_tea(now))) == ["many_claims"]


def test_rules_are_edited_with_sense(now):
    with pytest.raises(InvalidInput):
        rule(now, "phase_of_the_moon")
    with pytest.raises(InvalidInput):
        rule(now, "many_claims", claims=-1)
    with pytest.raises(InvalidInput):
        rule(now, "many_claims", moons=1)
    rule(now, "many_claims")
    assert RiskRule.objects.get().params == RULES["many_claims"].figures
    with pytest.raises(VersionConflict):
        change_risk_rule(
            merchant_id=None,
            kind="many_claims",
            params={},
            is_active=False,
            expected_version=7,
            changed_by="x",
            now=now,
        )


def instant(paid, limit: int) -> None:
    AfterSalesSettings.objects.create(merchant=paid.merchant, instant_refund_up_to_fen=limit)


def test_small_unshipped_refunds_are_approved_in_the_same_breath(now):
    paid = nut_and_tea(now)
    instant(paid, 9000)
    assert apply(paid, 1).status == "REFUNDING"
    assert apply(paid, 2).status == "WAIT_AUDIT"


def test_a_hit_holds_auto_approval_until_somebody_clears_it(now):
    paid = nut_and_tea(now)
    instant(paid, 900000)
    rule(now, "many_claims", claims=0, days=30)
    claim = apply(paid, 1)
    assert (claim.status, claim.held_for_review) == ("WAIT_AUDIT", True)
    decide = {"merchant_id": paid.merchant.pk, "after_sales_no": claim.after_sales_no, "by": MERCHANT, "now": now}
    with pytest.raises(ReasonNeeded):
        decide_risk(**decide, clear=True, reason="", key=a_key(paid.merchant.pk))
    assert decide_risk(**decide, clear=True, reason="known buyer", key=a_key(paid.merchant.pk)).state == "CLEARED"
    claim.refresh_from_db()
    assert not claim.held_for_review
    with pytest.raises(IllegalTransition):
        decide_risk(**decide, clear=False, reason="again", key=a_key(paid.merchant.pk))


def test_a_confirmed_risk_stays_with_people(now):
    paid = nut_and_tea(now)
    rule(now, "many_claims", claims=0, days=30)
    claim = apply(paid, 1)
    decide_risk(
        merchant_id=paid.merchant.pk,
        after_sales_no=claim.after_sales_no,
        clear=False,
        reason="fraud ring",
        by=MERCHANT,
        key=a_key(paid.merchant.pk),
        now=now,
    )
    claim.refresh_from_db()
    assert claim.held_for_review
    assert paid.approve(claim.after_sales_no).status == "REFUNDING"
