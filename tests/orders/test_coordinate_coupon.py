"""Who owns the coupon of an order: the incident of the source (C0) in all its orders, and every decision recorded."""

from datetime import timedelta
from itertools import permutations

import pytest

from coupons import leases
from coupons.commands.redeem_coupon import redeem_coupon
from coupons.commands.release_coupon import release_coupon
from coupons.models import CouponRedemption, CouponRefusal, UserCoupon
from coupons.refusals import TokenMismatch
from kernel.errors import IllegalTransition
from orders.actors import SYSTEM
from orders.commands._coordinate_coupon import coordinate_overdue_lease
from orders.commands.claim_due import claim_due
from orders.commands.close_order import close_order
from orders.commands.confirm_paid import confirm_paid
from orders.commands.fulfil_order import fulfil_order
from orders.commands.hold_units import hold_units
from orders.commands.honour_order import HonourReasonMissing, RefundUnderWay, honour_order
from orders.commands.settle_charge import ACTIONS, Case, MovedOn
from orders.facts import LocalOrderFacts
from orders.matrix import Action, Decision
from orders.models import Anomaly, CouponDecision, Order, OrderCoupon, OrderLine
from orders.tender import Answer, Heard
from payments.models import RefundRequest
from tests.orders.factories import (
    Shop,
    commands_of,
    coupon_state,
    events,
    order_of,
    paid_fact,
    payment_of,
    snapshot,
)


def lose_coupon(shop: Shop, ordered) -> None:
    """Release an order's lease behind its back, as a scanner that was told wrong would."""
    evidence = OrderCoupon.objects.get(order_id=ordered.order_id)
    release_coupon(
        merchant_id=shop.id,
        coupon_id=evidence.coupon_id,
        order_no=ordered.order_no,
        lock_token=leases.token_for(evidence.lock_id),
        expected_version=evidence.coupon_version,
        key=shop.key(),
        now=shop.now,
    )


def confirm(shop: Shop, ordered):
    payment = payment_of(ordered)
    return confirm_paid(order_id=ordered.order_id, payment_id=payment.id, fact=paid_fact(payment), now=shop.now)


def decisions(ordered) -> list[tuple[str, str]]:
    return list(CouponDecision.objects.filter(order_id=ordered.order_id).values_list("decision", "cause"))


def test_nobody_took_it_so_it_is_redeemed_late(shop: Shop) -> None:
    coupon_id = shop.coupon()
    ordered, _placed = shop.placed(coupon_id=coupon_id)
    lose_coupon(shop, ordered)
    assert confirm(shop, ordered).coupon_state == "redeemed"
    assert coupon_state(coupon_id) == "USED"
    assert [decision for decision, _cause in decisions(ordered)] == ["late_redeem"]
    assert CouponRedemption.objects.get().order_no == ordered.order_no
    assert OrderCoupon.objects.get().lock_id == CouponRedemption.objects.get().lock_id
    assert CouponRefusal.objects.count() == 1


def test_another_order_took_it_so_the_paid_order_is_in_conflict(shop: Shop) -> None:
    coupon_id = shop.coupon()
    first, _placed = shop.placed(coupon_id=coupon_id)
    lose_coupon(shop, first)
    second = shop.order(coupon_id=coupon_id, address={"street": "elsewhere"})
    before = UserCoupon.objects.get(pk=coupon_id)

    assert confirm(shop, first).coupon_state == "conflict"
    after = UserCoupon.objects.get(pk=coupon_id)
    assert (after.status, after.state_version, after.locked_order_no) == (
        "LOCKED",
        before.state_version,
        second.order_no,
    )
    assert decisions(first) == [("refund_order", "TOKEN_MISMATCH")]
    inputs = CouponDecision.objects.get().inputs
    assert inputs["coupon"]["locked_order_no"] == second.order_no
    assert Anomaly.objects.get().kind == "coupon_conflict"
    assert {row.code for row in CouponRefusal.objects.all()} >= {"TOKEN_MISMATCH"}
    with pytest.raises(Exception, match="COUPON_NOT_SETTLED"):
        shop.ship(first)


def test_a_conflict_nobody_honours_is_refunded_by_itself_once(shop: Shop) -> None:
    ordered = in_conflict(shop)
    assert fulfil_order(order_id=ordered.order_id, now=shop.now).outcome == "nothing"
    assert claim_due(kind="fulfil", now=shop.now + timedelta(minutes=9)) == []
    later = shop.now + timedelta(minutes=10)
    assert claim_due(kind="fulfil", now=later) == [ordered.order_id]
    assert fulfil_order(order_id=ordered.order_id, now=later).outcome == "refund"
    assert fulfil_order(order_id=ordered.order_id, now=later).outcome == "nothing"
    assert [event["order_no"] for event in events("order.refund_required")] == [ordered.order_no]
    with pytest.raises(RefundUnderWay):
        honour_order(order_id=ordered.order_id, username="ops", reason="too late", now=later)


def test_what_was_honoured_in_time_is_not_refunded(shop: Shop) -> None:
    ordered = in_conflict(shop)
    honour_order(order_id=ordered.order_id, username="ops", reason="our mistake", now=shop.now)
    assert fulfil_order(order_id=ordered.order_id, now=shop.now + timedelta(minutes=11)).outcome == "waiting"
    assert events("order.refund_required") == []


def test_an_expired_coupon_is_not_redeemed_late(shop: Shop) -> None:
    coupon_id = shop.coupon()
    ordered, _placed = shop.placed(coupon_id=coupon_id)
    lose_coupon(shop, ordered)
    later = shop.later(days=31)
    assert confirm(later, ordered).coupon_state == "conflict"
    assert CouponDecision.objects.get().inputs["late"] == "COUPON_EXPIRED"


def test_a_held_lease_is_redeemed_after_the_coupons_validity(shop: Shop) -> None:
    coupon_id = shop.coupon()
    ordered, _placed = shop.placed(coupon_id=coupon_id)
    assert confirm(shop.later(days=31), ordered).coupon_state == "redeemed"
    assert decisions(ordered) == []


def test_an_operator_honours_the_price_with_evidence(shop: Shop) -> None:
    ordered = in_conflict(shop)
    before = snapshot()
    with pytest.raises(HonourReasonMissing):
        honour_order(order_id=ordered.order_id, username="ops", reason=" ", now=shop.now)
    assert snapshot() == before
    honour_order(order_id=ordered.order_id, username="ops", reason="our mistake", now=shop.now)
    assert order_of(ordered).coupon_state == "honoured"
    newest = CouponDecision.objects.order_by("at", "id").last()
    assert (newest.decision, newest.actor, newest.inputs["reason"]) == ("honour", "ops", "our mistake")
    assert honour_order(order_id=ordered.order_id, username="ops", reason="x", now=shop.now).replayed
    assert shop.ship(ordered).status == 20


def test_what_is_being_refunded_is_not_honoured(shop: Shop) -> None:
    ordered = in_conflict(shop)
    line = OrderLine.objects.filter(order_id=ordered.order_id).first()
    hold_units(line_id=line.id, ordinals=[1], unshipped=True)
    with pytest.raises(RefundUnderWay):
        honour_order(order_id=ordered.order_id, username="ops", reason="x", now=shop.now)
    plain = shop.paid(address={"street": "3"})
    with pytest.raises(IllegalTransition):
        honour_order(order_id=plain.order_id, username="ops", reason="x", now=shop.now)


def in_conflict(shop: Shop):
    coupon_id = shop.coupon()
    ordered, _placed = shop.placed(coupon_id=coupon_id)
    lose_coupon(shop, ordered)
    shop.order(coupon_id=coupon_id, address={"street": "elsewhere"})
    assert confirm(shop, ordered).coupon_state == "conflict"
    return ordered


def test_closing_releases_only_what_is_its_own(shop: Shop) -> None:
    coupon_id = shop.coupon()
    first, _placed = shop.placed(coupon_id=coupon_id)
    lose_coupon(shop, first)
    second = shop.order(coupon_id=coupon_id, address={"street": "elsewhere"})
    close_order(order_id=first.order_id, reason="timeout", now=shop.now)
    assert UserCoupon.objects.get(pk=coupon_id).locked_order_no == second.order_no
    assert order_of(first).coupon_state == "released"


# C0: A locks, closes, B locks, A's callback arrives late


def late_callback(shop: Shop, ordered) -> str:
    """A's paid callback arrives late and the channel confirms."""
    from orders.commands.settle_charge import settle_charge

    payment = payment_of(ordered)
    heard = Heard(answer=Answer.PAID_EQUAL, fact=paid_fact(payment))
    return settle_charge(payment_id=payment.id, heard=heard, now=shop.now).outcome


B_STEPS = ("b_orders", "a_late", "a_again")
ENDINGS = ("nothing", "b_pays", "b_cancels", "b_closes")


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("steps", list(permutations(B_STEPS)), ids="-".join)
def test_c0_whatever_the_order_of_events(shop: Shop, steps: tuple[str, ...], ending: str) -> None:
    coupon_id = shop.coupon()
    first, _placed = shop.placed(coupon_id=coupon_id)
    close_order(order_id=first.order_id, reason="timeout", now=shop.now)
    second = None
    for step in steps:
        if step == "b_orders":
            try:
                second, _ = shop.placed(coupon_id=coupon_id, address={"street": "B"})
            except Exception as refusal:
                assert getattr(refusal, "code", "") == "ALREADY_REDEEMED", refusal
        else:
            late_callback(shop, first)
    if second is not None:
        if ending == "b_pays":
            assert confirm(shop, second).coupon_state == "redeemed"
        elif ending == "b_cancels":
            shop.cancel(second)
        elif ending == "b_closes":
            close_order(order_id=second.order_id, reason="timeout", now=shop.now)
    late_callback(shop, first)

    order = order_of(first)
    redemptions = list(CouponRedemption.objects.values_list("order_no", flat=True))
    assert len(redemptions) <= 1
    refunds = RefundRequest.objects.filter(order_no=first.order_no)
    if steps[0] == "b_orders":
        # B had the coupon: A is refunded, once, and never comes back, not even when the coupon is free again (C35).
        assert (order.status, order.refund_decided_at is not None) == (40, True)
        assert [(row.owner_no, row.amount_fen) for row in refunds] == [(paid_fact(payment_of(first)).trade_no, 26000)]
        assert redemptions == ([second.order_no] if ending == "b_pays" else [])
        assert "reopen_paid" not in commands_of(first)
    else:
        # Nobody had it: A came back with its coupon; B could not take what was used.
        assert (order.status, order.coupon_state) == (10, "redeemed")
        assert redemptions == [first.order_no]
        assert refunds.count() == 0
        assert second is None


def test_c0_with_the_coupon_expired_meanwhile(shop: Shop) -> None:
    coupon_id = shop.coupon()
    first, _placed = shop.placed(coupon_id=coupon_id)
    close_order(order_id=first.order_id, reason="timeout", now=shop.now)
    later = shop.later(days=31)
    assert late_callback(later, first) == "refund"
    assert order_of(first).status == 40
    assert Anomaly.objects.get().evidence["not_reopened"] == "COUPON_EXPIRED"


def test_c0_the_old_token_is_worthless(shop: Shop) -> None:
    coupon_id = shop.coupon()
    first = shop.order(coupon_id=coupon_id)
    evidence = OrderCoupon.objects.get(order_id=first.order_id)
    token = leases.token_for(evidence.lock_id)
    close_order(order_id=first.order_id, reason="timeout", now=shop.now)
    second = shop.order(coupon_id=coupon_id, address={"street": "B"})
    with pytest.raises(TokenMismatch):
        redeem_coupon(
            merchant_id=shop.id,
            coupon_id=coupon_id,
            order_no=first.order_no,
            lock_token=token,
            expected_version=evidence.coupon_version,
            payment_no="late",
            key=shop.key(),
            now=shop.now,
        )
    assert UserCoupon.objects.get(pk=coupon_id).locked_order_no == second.order_no


def test_reopening_needs_the_stock_again(shop: Shop) -> None:
    """C22: expired; capacity resold; payment lands."""
    from ledgers.commands.adjust_stock import adjust_stock

    ordered, _placed = shop.placed()
    close_order(order_id=ordered.order_id, reason="timeout", now=shop.now)
    adjust_stock(merchant_id=shop.id, sku="TEA", delta=-10, business_key="resold", reference="resold", now=shop.now)
    assert late_callback(shop, ordered) == "refund"
    assert order_of(ordered).status == 40
    assert Anomaly.objects.get().evidence["not_reopened"] == "OUT_OF_STOCK"


def test_a_newer_order_for_the_same_cart_stops_the_reopening(shop: Shop) -> None:
    ordered, _placed = shop.placed()
    close_order(order_id=ordered.order_id, reason="timeout", now=shop.now)
    newer = shop.order()
    assert late_callback(shop, ordered) == "refund"
    assert (order_of(ordered).status, order_of(newer).status) == (40, 0)
    assert Anomaly.objects.get().evidence["not_reopened"] == "NOT_REOPENED"


def test_c35_a_decision_made_on_an_older_look_reopens_nothing(shop: Shop) -> None:
    """Two workers hear of the money: one has refunded it when the other, who looked before, comes to reopen."""
    ordered, _placed = shop.placed()
    close_order(order_id=ordered.order_id, reason="timeout", now=shop.now)
    before = order_of(ordered)
    newer = shop.order()
    assert late_callback(shop, ordered) == "refund"
    shop.cancel(newer)
    payment = payment_of(ordered)
    case = Case(before, payment, Decision(Action.REOPEN_OR_REFUND), paid_fact(payment), {}, SYSTEM, shop.now)
    with pytest.raises(MovedOn):
        ACTIONS[Action.REOPEN_OR_REFUND](case)
    assert order_of(ordered).status == 40
    assert RefundRequest.objects.filter(order_no=ordered.order_no).count() == 1


def test_reopening_says_so_before_it_says_paid(shop: Shop) -> None:
    ordered, _placed = shop.placed(coupon_id=shop.coupon())
    close_order(order_id=ordered.order_id, reason="timeout", now=shop.now)
    assert late_callback(shop, ordered) == "reopened"
    from kernel.models import OutboxEvent

    names = OutboxEvent.objects.filter(subject=ordered.order_no).order_by("id").values_list("name", flat=True)
    wanted = [name for name in names if name in ("order.closed", "order.reopened", "order.paid")]
    assert wanted == ["order.closed", "order.reopened", "order.paid"]
    assert commands_of(ordered) == ["create", "close", "reopen_paid"]
    assert Order.objects.get(id=ordered.order_id).closed_reason == ""


def test_the_scanner_leaves_a_pending_orders_lease_and_asks_about_a_paid_ones(shop: Shop) -> None:
    from coupons.commands.scan_leases import scan_leases

    coupon_id = shop.coupon()
    ordered, _placed = shop.placed(coupon_id=coupon_id)
    later = ordered.pay_expires_at
    assert scan_leases(now=later).waiting == 1
    # An order that was paid and yet still holds its lease: what a crash of an older release could have left behind.
    evidence = OrderCoupon.objects.get()
    confirm(shop, ordered)
    assert coupon_state(coupon_id) == "USED"
    again = shop.coupon()
    other, _ = shop.placed(coupon_id=again, address={"street": "2"})
    payment = payment_of(other)
    from payments.commands.record_payment_paid import record_payment_paid

    record_payment_paid(
        payment_id=payment.id, trade_no="4200X1", amount_fen=payment.amount_fen, paid_at=shop.now, now=shop.now
    )
    assert LocalOrderFacts().lease_verdicts(
        merchant_id=shop.id, order_nos=[ordered.order_no, other.order_no, "Q-none"], now=later
    ) == {ordered.order_no: "COORDINATE", other.order_no: "WAIT"}
    assert coordinate_overdue_lease(merchant_id=shop.id, order_no=other.order_no, now=later).coupon_state == "leased"
    assert (
        coordinate_overdue_lease(merchant_id=shop.id, order_no=ordered.order_no, now=later).coupon_state == "redeemed"
    )
    assert evidence.coupon_id == coupon_id
