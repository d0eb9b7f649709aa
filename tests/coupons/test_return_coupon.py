"""The coupon after a refund: a decision with reasons, and a return that needs one."""

from datetime import timedelta
from functools import partial

import pytest

from coupons.commands.create_policy import create_policy, publish_policy
from coupons.commands.create_template import close_campaign, open_campaign
from coupons.commands.decide_return import (
    AlreadyReturned,
    AlreadyReviewed,
    RedemptionEnded,
    decide_return,
    review_return,
)
from coupons.commands.return_coupon import NoReturnDecision, Returned
from coupons.models import CouponOperation, CouponRedemption, RefundCoupon, UserCoupon
from coupons.refusals import CouponNotFound, IllegalTransition, KeyReused, VersionConflict
from kernel.errors import IdempotencyKeyReused, InvalidInput, NotFound
from kernel.numbers import uuid7
from tests.coupons.factories import (
    Shop,
    decide,
    give_back,
    make_shop,
    race,
    refusals,
    state,
    undo,
    void,
    written,
)


def used(shop: Shop, order: str = "A", **values):
    return shop.redeem(shop.lock(shop.issue(**values).coupon_id, order))


def test_only_the_refund_that_completes_the_order_returns_the_coupon(shop: Shop) -> None:
    redemption = used(shop)

    partial_refund = decide(shop, redemption.redemption_id, order_wholly_refunded=False)
    assert (partial_refund.decision, partial_refund.reasons) == ("KEEP", ["PARTIAL_REFUND"])
    assert state(redemption.coupon_id) == ("USED", 3)
    last = decide(shop, redemption.redemption_id)
    assert (last.decision, last.reasons) == ("RETURN", ["FULL_REFUND"])
    before = UserCoupon.objects.get().valid_until

    returned = give_back(shop, last)

    assert (returned.status, returned.state_version) == ("AVAILABLE", 4)
    assert UserCoupon.objects.get().valid_until == before, "the original validity stays"
    operation = CouponOperation.objects.get(command="RETURN")
    assert operation.decision_id == last.decision_id
    assert operation.redemption_id == redemption.redemption_id
    assert CouponRedemption.objects.get().ended_by_id == operation.pk


def test_a_decision_names_redemption_and_policy(shop: Shop) -> None:
    redemption = used(shop)

    decided = decide(shop, redemption.redemption_id, cause_no="AS7")

    row = RefundCoupon.objects.get(pk=decided.decision_id)
    assert (row.redemption_id, row.order_no, row.cause_no) == (redemption.redemption_id, "A", "AS7")
    assert (row.policy.code, row.policy.version) == (decided.policy_code, decided.policy_version) == ("standard", 1)
    assert row.facts == {
        "order_wholly_refunded": True,
        "expired": False,
        "campaign_closed": False,
        "risk_flagged": False,
    }


def test_the_same_cause_is_decided_once(shop: Shop) -> None:
    redemption = used(shop)
    first = decide(shop, redemption.redemption_id, cause_no="AS7", order_wholly_refunded=False)

    again = decide(shop, redemption.redemption_id, cause_no="AS7", order_wholly_refunded=True)

    assert again.replayed
    assert (again.decision_id, again.decision) == (first.decision_id, "KEEP")
    assert RefundCoupon.objects.count() == 1


@pytest.mark.parametrize(
    ("rules", "facts", "decision", "reason"),
    [
        ({}, {}, "RETURN", "FULL_REFUND"),
        ({"on_full_refund": "KEEP"}, {}, "KEEP", "FULL_REFUND"),
        ({}, {"later": 40}, "KEEP", "COUPON_EXPIRED"),
        ({"when_expired": "VOID"}, {"later": 40}, "VOID", "COUPON_EXPIRED"),
        ({}, {"risk_flagged": True}, "REVIEW", "RISK_FLAGGED"),
        ({"when_risk_flagged": "KEEP"}, {"risk_flagged": True, "later": 40}, "KEEP", "RISK_FLAGGED"),
        ({"when_campaign_closed": "VOID"}, {"closed": True}, "VOID", "CAMPAIGN_CLOSED"),
        ({"when_campaign_closed": "VOID"}, {"closed": False}, "RETURN", "FULL_REFUND"),
    ],
)
def test_what_the_policy_says(transactional_db, now, rules, facts, decision, reason) -> None:
    shop = make_shop(now, rules=rules)
    open_campaign(
        merchant_id=shop.merchant_id, code="spring", name="Spring", template_code="off50", starts_at=now, now=now
    )
    redemption = used(shop, campaign_code="spring")
    if facts.get("closed"):
        close_campaign(merchant_id=shop.merchant_id, code="spring", now=now)

    decided = decide(
        shop,
        redemption.redemption_id,
        risk_flagged=facts.get("risk_flagged", False),
        now=now + timedelta(days=facts.get("later", 0)),
    )

    assert (decided.decision, decided.reasons[-1]) == (decision, reason)
    assert state(redemption.coupon_id) == ("USED", 3), "a decision moves nothing by itself"


def test_publishing_a_policy_alters_no_coupon_issued_before(shop: Shop) -> None:
    redemption = used(shop)
    stricter = create_policy(
        merchant_id=shop.merchant_id, code="standard", rules={"on_full_refund": "VOID"}, now=shop.now
    )
    publish_policy(merchant_id=shop.merchant_id, policy_id=stricter.policy_id, now=shop.now)

    assert decide(shop, redemption.redemption_id).decision == "RETURN"


def test_a_return_needs_a_decision_to_return(shop: Shop) -> None:
    redemption = used(shop)
    keep = decide(shop, redemption.redemption_id, order_wholly_refunded=False)
    other = decide(shop, used(shop, "B").redemption_id)
    before = written()

    with pytest.raises(NoReturnDecision):
        give_back(shop, keep)
    with pytest.raises(NoReturnDecision):
        give_back(shop, other, redemption_id=redemption.redemption_id)
    with pytest.raises(CouponNotFound):
        give_back(shop, keep, redemption_id=uuid7())

    assert written() == before
    assert [code for _command, code, *_rest in refusals()] == ["NO_RETURN_DECISION"] * 2 + ["NOT_FOUND"]


def test_a_return_happens_once(shop: Shop) -> None:
    decided = decide(shop, used(shop).redemption_id)
    first = give_back(shop, decided, key="k")
    before = written()

    again = give_back(shop, decided, key="k")
    with pytest.raises(VersionConflict):
        give_back(shop, decided)
    with pytest.raises(KeyReused):
        give_back(shop, decided, key="k", redemption_id=uuid7())

    assert again.replayed
    assert {**vars(again), "replayed": False} == vars(first)
    assert written() == before


def test_the_same_return_at_once(shop: Shop) -> None:
    decided = decide(shop, used(shop).redemption_id)

    results = race([partial(give_back, shop, decided) for _ in range(5)])

    assert sum(isinstance(result, Returned) for result in results) == 1
    assert state(decided.coupon_id) == ("AVAILABLE", 4)


def test_a_coupon_whose_validity_ended_after_the_decision_goes_to_expired(shop: Shop) -> None:
    decided = decide(shop, used(shop).redemption_id)

    returned = give_back(shop, decided, now=shop.now + timedelta(days=40))

    assert returned.status == "EXPIRED"


def test_wrong_version_and_wrong_state(shop: Shop) -> None:
    decided = decide(shop, used(shop).redemption_id)
    with pytest.raises(VersionConflict):
        give_back(shop, decided, expected_version=2)
    void(shop, decided.coupon_id, expected_version=3)

    with pytest.raises(IllegalTransition):
        give_back(shop, decided)

    assert state(decided.coupon_id) == ("VOID", 4)


def test_a_returned_coupon_can_be_used_again_by_another_order(shop: Shop) -> None:
    """C8: use, refund, use again; the first redemption is kept as it was."""
    redemption = used(shop)
    give_back(shop, decide(shop, redemption.redemption_id))

    second = shop.redeem(shop.lock(redemption.coupon_id, "B"))

    assert second.redemption_id != redemption.redemption_id
    assert CouponRedemption.objects.filter(coupon_id=redemption.coupon_id).count() == 2
    with pytest.raises(RedemptionEnded):
        decide(shop, redemption.redemption_id)


def test_one_return_per_redemption(shop: Shop) -> None:
    redemption = used(shop)
    first = decide(shop, redemption.redemption_id)
    before = written()

    with pytest.raises(AlreadyReturned) as refused:
        decide(shop, redemption.redemption_id)

    assert refused.value.data["decision_id"] == str(first.decision_id)
    assert written() == before


def test_two_claims_that_complete_the_order_at_once(shop: Shop) -> None:
    for _round in range(4):
        redemption = used(shop)

        results = race([partial(decide, shop, redemption.redemption_id) for _ in range(2)])

        assert sorted(type(result).__name__ for result in results) == ["AlreadyReturned", "Decided"]
        assert RefundCoupon.objects.filter(redemption_id=redemption.redemption_id).count() == 1


def test_a_review_is_settled_by_a_person_once(shop: Shop) -> None:
    redemption = used(shop)
    waiting = decide(shop, redemption.redemption_id, risk_flagged=True)

    def settle(decision: str = "RETURN", **values):
        values = {"decision_id": waiting.decision_id, "reason": "looked into it", **values}
        return review_return(
            merchant_id=shop.merchant_id, decision=decision, actor="staff:ops", key=shop.key(), now=shop.now, **values
        )

    for wrong in ({"reason": " "}, {"decision": "REVIEW"}):
        with pytest.raises(InvalidInput):
            settle(**wrong)
    with pytest.raises(NotFound):
        settle(decision_id=uuid7())
    settled = settle()
    with pytest.raises(AlreadyReviewed):
        settle("KEEP")

    assert (settled.decision, settled.reasons) == ("RETURN", ["REVIEWED", "looked into it"])
    assert RefundCoupon.objects.get(pk=settled.decision_id).review_of_id == waiting.decision_id
    assert give_back(shop, settled).status == "AVAILABLE"


def test_after_a_reversed_return_a_new_decision_is_possible(shop: Shop) -> None:
    decided = decide(shop, used(shop).redemption_id)
    give_back(shop, decided)
    restored = undo(shop, decided.coupon_id)

    again = decide(shop, restored.redemption_id)

    assert again.decision == "RETURN"
    assert give_back(shop, again).state_version == 6


def test_deciding_under_a_used_key(shop: Shop) -> None:
    key = shop.key("k", a=1)
    values = {
        "merchant_id": shop.merchant_id,
        "redemption_id": used(shop).redemption_id,
        "order_wholly_refunded": True,
        "cause_no": "AS1",
        "now": shop.now,
    }
    first = decide_return(key=key, **values)

    assert decide_return(key=key, **values).decision_id == first.decision_id
    with pytest.raises(IdempotencyKeyReused):
        decide_return(key=shop.key("k", a=2), **values)
    with pytest.raises(NotFound):
        decide_return(key=shop.key(), **{**values, "redemption_id": uuid7()})
