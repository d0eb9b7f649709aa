"""Deadlines: each issues the ordinary command its rule names, once, and stands still while somebody else decides."""

from datetime import timedelta

import pytest
from django.db import connection

from aftersales.commands.record_carrier_event import record_carrier_event
from aftersales.commands.run_timer import run_timer
from aftersales.commands.take_due_claims import take_due_claims
from aftersales.drafts import Replacement
from aftersales.models import AfterSalesOrder, ArbitrationCase, CarrierEvent, Type
from kernel.errors import InvalidInput
from tests.aftersales.build import Line, a_paid_order, nut_and_tea
from tests.aftersales.test_exchange import confirm, received, ship

pytestmark = pytest.mark.django_db

EQUAL = Replacement(sku="blue", title="Blue cup", unit_price_fen=10000)


def fire(paid, number: str, **later) -> str:
    return run_timer(claim_id=paid.claim(number).pk, now=paid.now + timedelta(**later)).outcome


def case_of(number: str) -> ArbitrationCase:
    return ArbitrationCase.objects.get(after_sales__after_sales_no=number)


def test_silence_on_an_unshipped_refund_approves_it(now):
    paid = nut_and_tea(now)
    number = paid.apply(2).after_sales_no
    assert fire(paid, number, hours=47) == "waiting"
    assert fire(paid, number, hours=48) == "approved"
    assert paid.claim(number).log.order_by("-to_version")[0].actor_kind == "system"
    assert fire(paid, number, hours=49) == "waiting"


def test_silence_escalates_when_the_merchant_set_it_so_or_goods_have_left(now):
    paid = nut_and_tea(now)
    paid.merchant.auto_approve_unshipped = False
    paid.merchant.save()
    number = paid.apply(1).after_sales_no
    assert fire(paid, number, hours=48) == "escalated"
    paid.ship(2)
    other = paid.apply(2, type=2).after_sales_no
    assert fire(paid, other, hours=48) == "escalated"
    assert [case_of(n).cause for n in (number, other)] == ["merchant_silent"] * 2
    assert paid.claim(other).is_disputed


def test_not_sent_back_in_time_is_canceled(now):
    paid = nut_and_tea(now)
    paid.ship(2)
    number = paid.apply(2, type=2).after_sales_no
    paid.approve(number)
    assert fire(paid, number, days=6) == "waiting"
    assert fire(paid, number, days=7) == "canceled"
    assert paid.claim(number).status == "CANCELED"
    assert paid.line(2).held_ordinals == []


def event(paid, number: str, what: str, **later):
    return record_carrier_event(
        merchant_id=paid.merchant.pk,
        carrier="SF",
        tracking_no=f"SF{number}",
        what=what,
        happened_at=paid.now + timedelta(**later),
        now=paid.now + timedelta(**later),
    )


def test_delivered_and_never_confirmed_is_refunded_after_ten_days(now):
    paid = nut_and_tea(now)
    paid.ship(2)
    number = paid.returned(2)
    assert event(paid, number, "moved", days=1).after_sales_no == number
    event(paid, number, "delivered", days=3)
    claim = paid.claim(number)
    assert claim.due_at == now + timedelta(days=13)
    assert fire(paid, number, days=12) == "waiting"
    assert fire(paid, number, days=13) == "refunding"
    claim.refresh_from_db()
    assert (claim.status, claim.approved_goods_fen) == ("REFUNDING", 16667)
    assert claim.inspection.note == "not confirmed in time"


def test_a_carrier_that_says_nothing_for_twenty_days_escalates(now):
    paid = nut_and_tea(now)
    paid.ship(2)
    number = paid.returned(2)
    assert fire(paid, number, days=19) == "waiting"
    assert fire(paid, number, days=20) == "escalated"
    assert case_of(number).cause == "carrier_silent"


def test_carrier_events_are_kept_once(now):
    paid = nut_and_tea(now)
    paid.ship(2)
    number = paid.returned(2)
    assert not event(paid, number, "delivered", days=1).replayed
    assert event(paid, number, "delivered", days=1).replayed
    assert CarrierEvent.objects.count() == 1
    with pytest.raises(InvalidInput):
        event(paid, number, "teleported")
    assert record_carrier_event(
        merchant_id=paid.merchant.pk, carrier="SF", tracking_no="?", what="moved", happened_at=now, now=now
    ).after_sales_no == ""  # fmt: skip


def exchange(now):
    paid = a_paid_order(now, Line(10000, sku="cup"))
    paid.ship(1)
    return paid, received(paid, EQUAL)


def test_an_exchange_that_is_not_shipped_becomes_a_refund(now):
    paid, number = exchange(now)
    assert fire(paid, number, hours=71) == "waiting"
    assert fire(paid, number, hours=72) == "refunding"


def test_a_reship_that_is_not_shipped_goes_to_arbitration(now):
    paid = a_paid_order(now, Line(10000, sku="cup"))
    paid.ship(1)
    number = paid.apply(1, type=Type.RESHIP, reason="not_received").after_sales_no
    paid.approve(number)
    assert fire(paid, number, hours=72) == "escalated"


def test_the_buyers_silence_confirms_after_seven_days(now):
    paid, number = exchange(now)
    ship(paid, number, version=4)
    assert fire(paid, number, days=6) == "waiting"
    assert fire(paid, number, days=7) == "completed"
    assert paid.line(2).sku == "blue"
    assert confirm.__name__ == "confirm"


def test_an_unpaid_supplement_becomes_a_refund_after_a_day(now):
    paid = a_paid_order(now, Line(10000, sku="cup"))
    paid.ship(1)
    number = received(paid, Replacement(sku="big", title="Big", unit_price_fen=12000))
    assert fire(paid, number, hours=23) == "waiting"
    assert fire(paid, number, hours=24) == "refunding"


def the_planner_joins_by_nested_loop() -> None:
    """The plan under which a limit inside IN (…) is none: once per row, each time past what the last one locked."""
    with connection.cursor() as cursor:
        for way in ("hashjoin", "mergejoin", "hashagg", "sort", "material"):
            cursor.execute(f"SET LOCAL enable_{way} = off")


def test_two_sweeps_never_take_the_same_claim(now):
    paid = nut_and_tea(now)
    for line in (1, 2):
        paid.apply(line)
    later = now + timedelta(hours=49)
    the_planner_joins_by_nested_loop()
    first = take_due_claims(now=later, limit=1)
    second = take_due_claims(now=later)
    assert len(first) == len(second) == 1
    assert first != second
    assert take_due_claims(now=later) == []
    assert len(take_due_claims(now=later + timedelta(seconds=301))) == 2


def test_what_the_risk_desk_holds_no_timer_touches(now):
    paid = nut_and_tea(now)
    number = paid.apply(2).after_sales_no
    AfterSalesOrder.objects.update(held_for_review=True)
    assert take_due_claims(now=now + timedelta(hours=49)) == []
    assert fire(paid, number, hours=49) == "waiting"
