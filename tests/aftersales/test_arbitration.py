"""Arbitration: who may open it, what it forbids, what a decision does, to the cent."""

from datetime import timedelta

import pytest

from aftersales.actors import By
from aftersales.commands._hold_case import ArbitrationAlreadyOpen
from aftersales.commands._transition import InArbitration
from aftersales.commands.add_statement import add_statement
from aftersales.commands.decide_arbitration import decide_arbitration
from aftersales.commands.open_arbitration import NothingToArbitrate, escalate, open_arbitration
from aftersales.commands.open_late_arbitration import open_late_arbitration
from aftersales.commands.run_timer import run_timer
from aftersales.commands.withdraw_arbitration import withdraw_arbitration
from aftersales.drafts import AboveEntitlement, NoSuchUnits
from aftersales.models import Actor, AfterSalesOrder, ArbitrationCase, ArbitrationStatement
from kernel.errors import IllegalTransition, InvalidInput, NotFound, VersionConflict
from orders.models import OrderLine
from tests.aftersales.build import BUYER, Line, a_key, a_paid_order, nut_and_tea
from tests.aftersales.test_return import cancel, reject

pytestmark = pytest.mark.django_db

BY_BUYER = By(Actor.BUYER, BUYER)
OPERATOR = By(Actor.PLATFORM, "ops")


def call_in(paid, number: str, *, by: By = BY_BUYER, user_id: str | None = BUYER, now=None):
    return open_arbitration(
        merchant_id=paid.merchant.pk,
        after_sales_no=number,
        user_id=user_id,
        wish="please look",
        by=by,
        key=a_key(paid.merchant.pk),
        now=now or paid.now,
    )


def decide(paid, case_id, *, goods=0, freight=0, responsible="merchant", version=1, now=None):
    return decide_arbitration(
        case_id=case_id,
        expected_version=version,
        goods_fen=goods,
        freight_fen=freight,
        responsible=responsible,
        decision="as we see it",
        by=OPERATOR,
        key=a_key(paid.merchant.pk),
        now=now or paid.now,
    )


@pytest.fixture
def paid(now):
    made = nut_and_tea(now)
    made.ship(1)
    made.ship(2)
    return made


@pytest.fixture
def refused(paid):
    number = paid.apply(2, type=2).after_sales_no
    reject(paid, number)
    return number


def test_after_a_refusal_either_side_opens_it_and_the_units_are_held(paid, refused):
    opened = call_in(paid, refused)
    assert (opened.cause, opened.ordinals, opened.entitled_fen) == ("rejected", [1], 17167)
    assert paid.line(2).held_ordinals == [1]
    assert ArbitrationStatement.objects.get().text == "please look"
    with pytest.raises(NoSuchUnits):
        paid.apply(2, type=2)
    with pytest.raises(ArbitrationAlreadyOpen):
        call_in(paid, refused, by=By(Actor.MERCHANT, "lin"), user_id=None)
    assert ArbitrationCase.objects.count() == 1


def test_nobody_opens_it_before_there_is_a_quarrel(paid):
    number = paid.apply(2, type=2).after_sales_no
    with pytest.raises(NothingToArbitrate):
        call_in(paid, number)
    with pytest.raises(NotFound):
        call_in(paid, number, user_id="u-2")
    assert not ArbitrationCase.objects.exists()


def test_an_award_makes_a_linked_approved_claim_over_the_same_units(paid, refused):
    opened = call_in(paid, refused)
    done = decide(paid, opened.case_id, goods=16667, freight=500)
    linked = paid.claim(done.after_sales_no)
    assert (linked.parent.after_sales_no, linked.origin, linked.hold) == (refused, "arbitration", "consumes")
    assert (linked.status, linked.approved_goods_fen, linked.approved_freight_fen) == ("REFUNDING", 16667, 500)
    assert [unit.ordinal for unit in linked.units.all()] == [1]
    paid.channel_says(f"{done.after_sales_no}-0")
    assert paid.line(2).refunded_ordinals == [1]
    case = ArbitrationCase.objects.get()
    assert (case.state, case.result_id, case.decided_by) == ("DECIDED", linked.pk, "ops")


def test_a_part_of_the_worth_of_kept_goods_is_compensation(paid, refused):
    opened = call_in(paid, refused)
    with pytest.raises(InvalidInput):
        decide(paid, opened.case_id, goods=5000, freight=500)
    done = decide(paid, opened.case_id, goods=5000)
    linked = paid.claim(done.after_sales_no)
    assert (linked.hold, linked.approved_goods_fen) == ("deducts", 5000)
    paid.channel_says(f"{done.after_sales_no}-0")
    assert paid.line(2).held_ordinals == []
    assert paid.apply(2, type=2).goods_fen == 11667


def test_no_award_leaves_a_refused_claim_refused_and_frees_the_units(paid, refused):
    opened = call_in(paid, refused)
    done = decide(paid, opened.case_id, responsible="buyer")
    assert (done.after_sales_no, done.awarded_fen) == ("", 0)
    assert paid.line(2).held_ordinals == []
    assert paid.apply(2, type=2).ordinals == [1]


def test_above_what_is_left_is_refused(paid, refused):
    opened = call_in(paid, refused)
    with pytest.raises(AboveEntitlement):
        decide(paid, opened.case_id, goods=16668)
    with pytest.raises(AboveEntitlement):
        decide(paid, opened.case_id, goods=16667, freight=501)
    assert ArbitrationCase.objects.get().state == "OPEN"
    assert AfterSalesOrder.objects.count() == 1


def test_a_lowered_refund_is_topped_up_by_at_most_what_was_kept_back(paid):
    number = paid.returned(2)
    paid.confirm(number, goods_fen=10000, freight_fen=0, reduction_reason="worn")
    paid.channel_says(f"{number}-0")
    opened = call_in(paid, number)
    assert (opened.cause, opened.entitled_fen) == ("amount", 7167)
    with pytest.raises(AboveEntitlement):
        decide(paid, opened.case_id, goods=6668)
    done = decide(paid, opened.case_id, goods=6667, freight=500)
    linked = paid.claim(done.after_sales_no)
    assert (linked.hold, linked.approved_goods_fen, linked.approved_freight_fen) == ("tops_up", 6667, 500)
    paid.channel_says(f"{done.after_sales_no}-0")
    line = paid.line(2)
    assert (line.goods_committed_fen, line.freight_committed_fen) == (16667, 500)
    with pytest.raises(NothingToArbitrate):
        call_in(paid, done.after_sales_no)


def escalated(paid) -> tuple[str, ArbitrationCase]:
    number = paid.apply(2, type=2).after_sales_no
    later = paid.now + timedelta(hours=10)
    escalate(claim_id=paid.claim(number).pk, cause="merchant_silent", now=later)
    return number, ArbitrationCase.objects.get(after_sales__after_sales_no=number)


def test_while_it_is_open_nobody_audits_cancels_rejects_or_lets_time_run(paid):
    number, _case = escalated(paid)
    claim = paid.claim(number)
    assert (claim.is_disputed, claim.due_at, claim.due_left_seconds) == (True, None, 38 * 3600)
    for act in (lambda: paid.approve(number), lambda: reject(paid, number), lambda: cancel(paid, number)):
        with pytest.raises(InArbitration):
            act()
    assert run_timer(claim_id=claim.pk, now=paid.now + timedelta(days=30)).outcome == "waiting"
    assert paid.claim(number).version == 1


def test_without_an_award_the_deadline_goes_on_with_the_time_that_was_left(paid):
    number, case = escalated(paid)
    later = paid.now + timedelta(days=5)
    decide(paid, case.pk, responsible="buyer", now=later)
    claim = paid.claim(number)
    assert (claim.is_disputed, claim.due_at) == (False, later + timedelta(hours=38))
    assert paid.approve(number).status == "WAIT_BUYER_RETURN"


def test_an_award_ends_the_claim_that_was_open(paid):
    number, case = escalated(paid)
    done = decide(paid, case.pk, goods=16667, freight=500)
    assert (paid.claim(number).status, paid.claim(done.after_sales_no).status) == ("CANCELED", "REFUNDING")
    assert paid.claim(number).log.order_by("-to_version")[0].command == "end_by_arbitration"


def test_it_never_forbids_what_the_channel_says(paid):
    """R12: facts of the channel pass."""
    number = paid.apply(1, type=1, reason="damaged").after_sales_no
    paid.approve(number)
    AfterSalesOrder.objects.filter(after_sales_no=number).update(is_disputed=True)
    paid.channel_says(f"{number}-0")
    assert paid.claim(number).status == "REFUND_SUCCESS"


def test_decided_once_at_the_version_that_was_seen(paid, refused):
    opened = call_in(paid, refused)
    with pytest.raises(VersionConflict):
        decide(paid, opened.case_id, version=2)
    decide(paid, opened.case_id)
    with pytest.raises(IllegalTransition):
        decide(paid, opened.case_id, version=2)
    with pytest.raises(InvalidInput):
        decide(paid, opened.case_id, responsible="nobody")


def test_the_opener_takes_it_back(paid, refused):
    opened = call_in(paid, refused)
    key = a_key(paid.merchant.pk)
    with pytest.raises(IllegalTransition):
        withdraw_arbitration(
            merchant_id=paid.merchant.pk, case_id=opened.case_id, by=By(Actor.BUYER, "u-2"), key=key, now=paid.now
        )
    done = withdraw_arbitration(
        merchant_id=paid.merchant.pk, case_id=opened.case_id, by=BY_BUYER, key=a_key(paid.merchant.pk), now=paid.now
    )
    assert done.state == "WITHDRAWN"
    assert paid.line(2).held_ordinals == []


def test_after_the_window_only_arbitration_is_left(paid):
    late = paid.now + timedelta(days=16)
    wish = {"merchant_id": paid.merchant.pk, "order_no": paid.order.order_no, "user_id": BUYER, "line_no": 1, "qty": 1}
    with pytest.raises(NothingToArbitrate):
        open_late_arbitration(**wish, wish="broken", key=a_key(paid.merchant.pk), now=paid.now + timedelta(days=1))
    opened = open_late_arbitration(**wish, wish="broken", key=a_key(paid.merchant.pk), now=late)
    assert (opened.cause, opened.ordinals, opened.after_sales_no) == ("window_over", [1], "")
    done = decide(paid, opened.case_id, goods=3000, now=late)
    assert paid.claim(done.after_sales_no).approved_goods_fen == 3000


def test_statements_only_while_it_is_open(paid, refused):
    opened = call_in(paid, refused)
    said = {"merchant_id": paid.merchant.pk, "case_id": opened.case_id, "now": paid.now}
    add_statement(**said, text="it was fine", by=By(Actor.MERCHANT, "lin"), key=a_key(paid.merchant.pk))
    with pytest.raises(InvalidInput):
        add_statement(**said, text=" ", by=BY_BUYER, user_id=BUYER, key=a_key(paid.merchant.pk))
    with pytest.raises(NotFound):
        add_statement(**said, text="me too", by=By(Actor.BUYER, "u-2"), user_id="u-2", key=a_key(paid.merchant.pk))
    decide(paid, opened.case_id)
    with pytest.raises(IllegalTransition):
        add_statement(**said, text="but", by=BY_BUYER, user_id=BUYER, key=a_key(paid.merchant.pk))
    assert ArbitrationStatement.objects.count() == 2


def test_an_award_for_an_unshipped_unit_is_given_back_and_not_shipped(now):
    paid = a_paid_order(now, Line(10000))
    number = paid.apply(1).after_sales_no
    reject(paid, number)
    opened = call_in(paid, number)
    done = decide(paid, opened.case_id, goods=10000)
    assert paid.claim(done.after_sales_no).goods_state == "unshipped"
    paid.channel_says(f"{done.after_sales_no}-0")
    assert OrderLine.objects.get().refunded_ordinals == [1]
