"""After-sales as a rule-based machine against PostgreSQL: any commands in any order, all invariants after each step."""

import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from aftersales.actors import By
from aftersales.commands.decide_arbitration import decide_arbitration
from aftersales.commands.retry_after_sales import retry_after_sales
from aftersales.drafts import Item, Replacement
from aftersales.models import Actor, AfterSalesOrder, ArbitrationCase
from kernel.errors import Refusal
from orders.models import OrderLine
from payments.models import Payment, RefundAttempt
from tests.aftersales.build import MERCHANT, Line, a_key, a_paid_order, deliver
from tests.aftersales.test_arbitration import call_in
from tests.aftersales.test_exchange import confirm as confirm_replacement
from tests.aftersales.test_exchange import pay as pay_supplement
from tests.aftersales.test_exchange import ship as ship_replacement
from tests.aftersales.test_exchange import sold_out
from tests.aftersales.test_return import cancel, reject, send_away

NOW = datetime(2026, 11, 30, 4, 0, tzinfo=UTC)
EXAMPLES, STEPS = int(os.environ.get("QUITS_MACHINE_EXAMPLES", "80")), 8
FINGERPRINT = """
SELECT (SELECT (count(*), sum(version), count(*) FILTER (WHERE is_disputed))::text FROM after_sales_order),
       (SELECT (count(*), sum(version))::text FROM refund_request),
       (SELECT (count(*), sum(version), count(*) FILTER (WHERE state = 'OPEN'))::text FROM arbitration_case),
       (SELECT string_agg((held_ordinals, refunded_ordinals, goods_committed_fen, freight_committed_fen)::text, ';'
            ORDER BY line_no) FROM order_line),
       (SELECT string_agg((sellable, reserved, defect)::text, ';' ORDER BY sku) FROM stock_item)
"""
BROKEN = """
WITH unit AS (
    SELECT u.*, a.status, a.goods_state FROM after_sales_unit u JOIN after_sales_order a ON a.id = u.after_sales_id
), money AS (
    SELECT line_id, sum(approved_goods_fen) AS goods, sum(approved_freight_fen) AS freight FROM after_sales_order
    WHERE status IN ('REFUNDING', 'REFUND_FAILED', 'REFUND_SUCCESS') GROUP BY line_id
)
SELECT 'payment', p.out_trade_no FROM payment p
WHERE p.refund_committed_fen > p.amount_fen OR p.refund_committed_fen <> (
    SELECT coalesce(sum(amount_fen), 0) FROM refund_request r WHERE r.payment_id = p.id AND r.status <> 'ABANDONED')
UNION ALL
SELECT 'money of a line', l.line_no::text FROM order_line l LEFT JOIN money m ON m.line_id = l.id
WHERE l.goods_committed_fen <> coalesce(m.goods, 0) OR l.freight_committed_fen <> coalesce(m.freight, 0)
UNION ALL
SELECT 'held units', l.line_no::text FROM order_line l WHERE
    ARRAY(SELECT o FROM unnest(l.held_ordinals) o ORDER BY o) <> ARRAY(
        SELECT u.ordinal FROM unit u WHERE u.line_id = l.id AND u.live AND u.is_open AND u.hold = 'consumes'
        UNION ALL
        SELECT c.ordinal FROM arbitration_unit c JOIN arbitration_case k ON k.id = c.case_id
        WHERE c.line_id = l.id AND c.is_open AND k.holds_line ORDER BY 1)
UNION ALL
SELECT 'units given back', l.line_no::text FROM order_line l WHERE
    ARRAY(SELECT o FROM unnest(l.refunded_ordinals) o ORDER BY o) <> ARRAY(
        SELECT u.ordinal FROM unit u
        WHERE u.line_id = l.id AND u.live AND NOT u.is_open AND u.hold = 'consumes' ORDER BY 1)
UNION ALL
SELECT 'shipped under a claim', l.line_no::text FROM order_line l JOIN unit u ON u.line_id = l.id
WHERE u.live AND u.is_open AND u.hold = 'consumes' AND u.goods_state = 'unshipped'
  AND u.ordinal = ANY (l.shipped_ordinals)
UNION ALL
SELECT 'a unit pays too much', u.id::text FROM (
    SELECT min(id::text) AS id, line_id, ordinal, sum(goods_fen) AS goods, max(worth_fen) AS worth FROM unit
    WHERE live AND status IN ('REFUNDING', 'REFUND_FAILED', 'REFUND_SUCCESS') GROUP BY line_id, ordinal) u
WHERE u.goods > u.worth
UNION ALL
SELECT 'log', a.after_sales_no FROM after_sales_order a WHERE
    (SELECT count(*) FROM after_sales_log g WHERE g.after_sales_id = a.id) <> a.version
UNION ALL
SELECT 'units of a claim', a.after_sales_no FROM after_sales_order a WHERE
    CASE WHEN a.status IN ('REJECTED', 'CANCELED')
         THEN EXISTS (SELECT 1 FROM unit u WHERE u.after_sales_id = a.id AND u.live)
         WHEN a.status IN ('REFUNDING', 'REFUND_FAILED', 'REFUND_SUCCESS')
         THEN (SELECT (sum(goods_fen)::bigint, sum(freight_fen)::bigint) FROM unit u
               WHERE u.after_sales_id = a.id AND u.live) <> (a.approved_goods_fen, a.approved_freight_fen) END
    OR EXISTS (SELECT 1 FROM unit u WHERE u.after_sales_id = a.id AND u.is_open)
       <> (a.status NOT IN ('REFUND_SUCCESS', 'COMPLETED', 'REJECTED', 'CANCELED'))
UNION ALL
SELECT 'rollbacks', a.after_sales_no FROM after_sales_order a
WHERE a.status = 'REFUND_SUCCESS' AND (SELECT count(*) FROM after_sales_rollback r WHERE r.after_sales_id = a.id) < 5
"""
accepted: Counter[str] = Counter()
refused: Counter[str] = Counter()
examples: Counter[str] = Counter()

LINES = st.lists(st.tuples(st.integers(0, 9_999), st.integers(2, 6)), min_size=1, max_size=3)
SEEDS = st.lists(st.integers(0, 2**32), min_size=4, max_size=9)
FITTING = {
    "WAIT_AUDIT": ["approve", "approve", "approve", "approve", "reject", "cancel"],
    "WAIT_BUYER_RETURN": ["send_back", "send_back", "cancel"],
    "WAIT_MERCHANT_RECEIVE": ["inspect", "inspect", "inspect", "refuse_parcel"],
    "WAIT_BUYER_PAY": ["sell_out", "pay"],
    "WAIT_MERCHANT_SHIP": ["ship_replacement", "sell_out"],
    "WAIT_BUYER_CONFIRM": ["confirm_replacement", "confirm_replacement", "arbitrate"],
    "REFUNDING": ["channel_says"],
    "REFUND_FAILED": ["retry", "retry", "channel_says"],
    "REJECTED": ["arbitrate", "apply"],
}
"""What usually comes next; every action is tried out of place as well."""
ACTIONS = sorted({name for names in FITTING.values() for name in names} | {"decide", "ship"})


class Claims(RuleBasedStateMachine):
    """One paid order of one buyer, and everything that may be done to it."""

    @initialize(lines=LINES, coupon=st.integers(0, 100), freight=st.integers(0, 999))
    def an_order(self, lines, coupon, freight):
        self.frame = transaction.atomic()
        self.frame._from_testcase = True
        self.frame.__enter__()
        rows = [Line(price, qty, sku=f"sku-{n}") for n, (price, qty) in enumerate(lines)]
        goods = sum(row.price * row.qty for row in rows)
        self.paid = a_paid_order(NOW, *rows, coupon=goods * coupon // 200, freight=freight)
        for number, row in enumerate(rows, 1):
            if (freight + number) % 3:
                self.paid.ship(number, 1 + row.qty // 2)
        examples["examples"] += 1

    def teardown(self):
        if hasattr(self, "frame"):
            transaction.set_rollback(True)
            self.frame.__exit__(None, None, None)

    def attempt(self, name: str, act) -> Any:
        """Do it, count whether it was accepted, and let every deferred constraint speak at once."""
        examples["steps"] += 1
        before = self.fingerprint()
        try:
            done = act()
        except Refusal:
            refused[name] += 1
            assert self.fingerprint() == before, f"{name} was refused and left something"
            return None
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute("SET CONSTRAINTS ALL DEFERRED")
        accepted[name] += 1
        return done

    def fingerprint(self) -> tuple:
        """What a refusal must not have changed."""
        with connection.cursor() as cursor:
            cursor.execute(FINGERPRINT)
            return cursor.fetchone()

    # --- what can be done ---------------------------------------------------------------------------------------

    @rule(seeds=SEEDS)
    def live_on(self, seeds):
        """Some actions one after the other, each chosen by its seed; the invariants hold after each."""
        for seed in seeds:
            rng = Random(seed)
            claims = list(AfterSalesOrder.objects.order_by("created_at", "after_sales_no"))
            busy = [claim for claim in claims if claim.status in FITTING]
            claim = rng.choice(busy if busy and rng.random() > 0.15 else claims) if claims else None
            name = "apply" if claim is None or (len(busy) < 3 and rng.random() < 0.3) else ""
            if not name and claim is not None:
                name = rng.choice(FITTING.get(claim.status, ["decide", "apply"]) if rng.random() > 0.2 else ACTIONS)
            act = getattr(self, name)(rng, claim) if claim or name == "apply" else None
            if act is not None:
                self.attempt(name, act)
                self.everything_adds_up()

    def line(self, rng: Random) -> OrderLine:
        return rng.choice(list(OrderLine.objects.order_by("line_no")))

    def apply(self, rng: Random, _claim):
        line = self.line(rng)
        fits = [2, 2, 3, 3, 3, 4, 5] if line.shipped_ordinals else [1]
        kind = rng.choice(fits if rng.random() > 0.2 else [1, 2, 3, 4, 5])
        reason = {4: "not_received", 5: "price_drop"}.get(kind, rng.choice(["quality", "changed_mind"]))
        part = line.net_fen * rng.randint(0, 60) // 100 if kind == 5 or (kind == 1 and rng.random() < 0.3) else None
        item = Item(
            line_no=line.line_no,
            type=kind,
            qty=rng.randint(1, 2),
            reason_code=reason,
            goods_fen=part,
            replacement=Replacement(sku="x", title="X", unit_price_fen=rng.randint(0, 9_999)) if kind == 3 else None,
        )
        return lambda: self.paid.apply_all([item])

    def approve(self, rng: Random, claim):
        ask = {}
        if rng.random() < 0.4:
            fen = claim.applied_goods_fen * rng.randint(0, 105) // 100
            ask = {"goods_fen": fen, "reduction_reason": "as seen"}
        version = claim.version + (rng.random() < 0.1)
        return lambda: self.paid.approve(claim.after_sales_no, version=version, **ask)

    def reject(self, rng: Random, claim):
        return lambda: reject(self.paid, claim.after_sales_no, version=claim.version)

    def cancel(self, rng: Random, claim):
        return lambda: cancel(self.paid, claim.after_sales_no)

    def send_back(self, rng: Random, claim):
        return lambda: self.paid.send_back(claim.after_sales_no)

    def inspect(self, rng: Random, claim):
        missing = rng.choice([0, 0, 0, 1, claim.qty])
        counts = {"sellable": claim.qty - missing, "missing": missing}
        if claim.type == 3:
            return lambda: receive_exchange(self.paid, claim, counts)
        return lambda: self.paid.confirm(claim.after_sales_no, version=claim.version, **counts)

    def refuse_parcel(self, rng: Random, claim):
        return lambda: send_away(self.paid, claim.after_sales_no, version=claim.version)

    def ship_replacement(self, rng: Random, claim):
        return lambda: ship_replacement(self.paid, claim.after_sales_no, version=claim.version)

    def confirm_replacement(self, rng: Random, claim):
        return lambda: confirm_replacement(self.paid, claim.after_sales_no)

    def sell_out(self, rng: Random, claim):
        return lambda: sold_out(self.paid, claim.after_sales_no, version=claim.version)

    def pay(self, rng: Random, claim):
        if not Payment.objects.filter(order_no=claim.after_sales_no, kind="supplement").exists():
            return None
        return lambda: pay_supplement(self.paid, claim.after_sales_no, trade_no=f"4200{claim.after_sales_no}")

    def channel_says(self, rng: Random, claim):
        numbers = list(RefundAttempt.objects.order_by("number").values_list("number", flat=True))
        if not numbers:
            return None
        mine = [number for number in numbers if number.startswith(claim.after_sales_no)]
        state = rng.choice(["SUCCESS", "SUCCESS", "CLOSED", "CLOSED", "CLOSED", "ABNORMAL", "PROCESSING"])
        return lambda: self.paid.channel_says(rng.choice(mine or numbers), state)

    def retry(self, rng: Random, claim):
        return lambda: retry_after_sales(
            merchant_id=self.paid.merchant.pk,
            after_sales_no=claim.after_sales_no,
            expected_version=claim.version,
            by=MERCHANT,
            key=a_key(self.paid.merchant.pk),
            now=NOW,
        )

    def ship(self, rng: Random, _claim):
        self.paid.ship(self.line(rng).line_no, rng.randint(1, 3))

    def arbitrate(self, rng: Random, claim):
        return lambda: call_in(self.paid, claim.after_sales_no)

    def decide(self, rng: Random, _claim):
        cases = list(ArbitrationCase.objects.order_by("opened_at", "id"))
        if not cases:
            return None
        case = rng.choice([each for each in cases if each.state == "OPEN"] or cases)
        return lambda: decide_arbitration(
            case_id=case.pk,
            expected_version=case.version,
            goods_fen=case.entitled_fen * rng.choice([0, 30, 60, 110, 110]) // 100,
            freight_fen=0,
            responsible="merchant",
            decision="so be it",
            by=By(Actor.PLATFORM, "ops"),
            key=a_key(self.paid.merchant.pk),
            now=NOW + timedelta(hours=1),
        )

    # --- what always holds --------------------------------------------------------------------------------------

    def everything_adds_up(self):
        if not hasattr(self, "paid"):
            return
        with connection.cursor() as cursor:
            cursor.execute(BROKEN)
            assert cursor.fetchall() == []


def receive_exchange(paid, claim: AfterSalesOrder, counts: dict[str, int]):
    from aftersales.commands.confirm_exchange import confirm_exchange

    done = confirm_exchange(
        merchant_id=paid.merchant.pk,
        after_sales_no=claim.after_sales_no,
        expected_version=claim.version,
        dispositions=counts,
        by=MERCHANT,
        key=a_key(paid.merchant.pk),
        now=NOW,
    )
    deliver(NOW)
    return done


@pytest.mark.slow
@pytest.mark.django_db
def test_any_commands_in_any_order():
    run_state_machine_as_test(
        Claims,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(f"{dict(examples)}\naccepted {dict(accepted)}\nrefused {dict(refused)}")
    assert examples["steps"] / examples["examples"] >= 15
    if EXAMPLES >= 60:
        assert [name for name in ACTIONS if name != "ship" and not accepted[name]] == []
        assert [name for name in ACTIONS if name not in ("ship", "pay", "channel_says") and not refused[name]] == []
