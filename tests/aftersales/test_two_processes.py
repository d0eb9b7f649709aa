"""Two processes at the same claims: one wins each, the other gets a typed refusal, nothing extra is written."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from aftersales.models import AfterSalesLog, AfterSalesOrder
from kernel.models import OutboxEvent
from payments.models import Payment, RefundAttempt, RefundRequest
from tests.aftersales.build import BUYER, Line, a_merchant, a_paid_order, nut_and_tea
from tests.payments.test_three_hundred_refunds import environment

ROOT = Path(__file__).resolve().parents[2]
EACH = 12


def race(paid, *acts: list[list[str]]) -> list[list[str]]:
    """A process per list of acts, all started before any is let go; their outcomes."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.aftersales.racer"],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _each in acts
    ]
    told = {"merchant_id": str(paid.merchant.pk), "user_id": BUYER, "now": paid.now.isoformat()}
    try:
        for racer, mine in zip(racers, acts, strict=True):
            racer.stdin.write(json.dumps({**told, "acts": mine}) + "\n")
            racer.stdin.flush()
        assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * len(acts)
        for racer in racers:
            racer.stdin.write("go\n")
            racer.stdin.flush()
        return [json.loads(racer.stdout.readline()) for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_one_wins_each_claim_each_last_unit_and_each_last_cent(now):
    """Per kind so many races: the same claim approved by both; the same last unit applied for by both; and two claims
    of one payment that has room for one of them, each process beginning with the other one."""
    merchant = a_merchant(now)
    same = [nut_and_tea(now, merchant=merchant) for _ in range(EACH)]
    claims = [paid.apply(2).after_sales_no for paid in same]
    units = [a_paid_order(now, Line(3000), merchant=merchant) for _ in range(EACH)]
    cents = [a_paid_order(now, Line(6000), Line(6000), merchant=merchant) for _ in range(EACH)]
    Payment.objects.filter(order_no__in=[paid.order.order_no for paid in cents]).update(refund_committed_fen=2000)
    pairs = [[paid.apply(number).after_sales_no for number in (1, 2)] for paid in cents]

    both = [["approve", number] for number in claims] + [["apply", paid.order.order_no] for paid in units]
    left = both + [["approve", first] for first, _second in pairs]
    right = both + [["approve", second] for _first, second in pairs]
    first, second = race(same[0], left, right)

    codes = Counter()
    for mine, theirs in zip(first, second, strict=True):
        assert sorted([mine, theirs]).count("done") == 1, (mine, theirs)
        codes[next(code for code in (mine, theirs) if code != "done")] += 1
    print(f"{3 * EACH} races, refused: {dict(codes)}; won by the first process: {first.count('done')}")
    assert set(codes) <= {"VERSION_CONFLICT", "ILLEGAL_TRANSITION", "UNITS_NOT_AVAILABLE", "REFUND_EXCEEDS_PAID"}
    assert codes["UNITS_NOT_AVAILABLE"] == codes["REFUND_EXCEEDS_PAID"] == EACH

    for paid, number in zip(same, claims, strict=True):
        assert AfterSalesLog.objects.filter(after_sales__after_sales_no=number).count() == 2
        assert OutboxEvent.objects.filter(name="after_sales.approved", subject=number).count() == 1
        assert RefundAttempt.objects.get(request__owner_no=number).amount_fen == 17167
        assert Payment.objects.get(pk=paid.payment.pk).refund_committed_fen == 17167
    for paid in units:
        assert AfterSalesOrder.objects.filter(order=paid.order).count() == 1
        assert paid.line(1).held_ordinals == [1]
    for paid, numbers in zip(cents, pairs, strict=True):
        assert Payment.objects.get(pk=paid.payment.pk).refund_committed_fen == 8000
        assert RefundRequest.objects.filter(owner_no__in=numbers).count() == 1
        statuses = AfterSalesOrder.objects.filter(after_sales_no__in=numbers).values_list("status", flat=True)
        assert sorted(statuses) == ["REFUNDING", "WAIT_AUDIT"]
