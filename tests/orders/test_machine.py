"""Random lives of orders against PostgreSQL and the simulator: whatever happens in whatever order, the books agree.

A Hypothesis state machine issues the real commands (quote, order, pay, cancel, close, ship, …), lets the channel take
money rightly, wrongly, twice or late, and delivers callbacks as often as it likes. Invariants are asserted over the
tables after every step.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from coupons.models import CouponRedemption, UserCoupon
from kernel.errors import Refusal
from ledgers.models import StockEntry, StockItem
from orders.commands._release_quote import expire_quote
from orders.commands.check_order import check_order
from orders.commands.close_by_admin import close_by_admin
from orders.commands.close_order import close_order
from orders.commands.complete_order import confirm_receipt
from orders.commands.fulfil_order import fulfil_order
from orders.commands.sign_shipment import sign_shipment
from orders.models import CouponDecision, Order, OrderBill, OrderStatusLog, Quote
from payments.models import Payment, RefundRequest
from payments.simulator.client import SimulatorError
from tests.orders.factories import CARD, NUT, TEA, Shop
from tests.orders.test_callback_matrix import Cell, deliver_callback

STEPS = int(os.environ.get("QUITS_MACHINE_STEPS", "30"))
EXAMPLES = int(os.environ.get("QUITS_MACHINE_EXAMPLES", "10"))
CARTS = {"goods": ((NUT, TEA), 1000), "card": ((CARD,), 0), "mixed": ((CARD, TEA), None)}
_users = count(1)


class OrderMachine(RuleBasedStateMachine):
    """One buyer with two coupons in one shop; time only goes on."""

    shop: ClassVar[Shop]
    accepted: ClassVar[Counter[str]] = Counter()
    refused: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        base = type(self).shop
        self.buyer = Shop(base.merchant, base.account_id, base.now, base.simulator, user_id=f"m{next(_users)}")
        self.coupons = [self.buyer.coupon() for _ in range(2)]
        self.quotes: list[Any] = []
        self.orders: list[Any] = []
        self.charges: list[tuple[Any, dict[str, Any]]] = []

    def do(self, name: str, command: Callable[[], Any]) -> Any:
        """Run a command; a typed refusal is an answer too."""
        try:
            result = command()
        except Refusal:
            type(self).refused[name] += 1
            return None
        type(self).accepted[name] += 1
        return result

    def some_order(self, data: st.DataObject) -> Any:
        return data.draw(st.sampled_from(self.orders[-4:]))

    def cell(self, ordered: Any) -> Cell | None:
        payment = Payment.objects.filter(order_no=ordered.order_no, kind="order").select_related("account").first()
        return payment and Cell(self.buyer, ordered, payment)

    @initialize(cart=st.sampled_from(sorted(CARTS)), coupon=st.sampled_from([None, 0, 1]))
    def first_purchase(self, cart: str, coupon: int | None) -> None:
        self.buy(cart, coupon, placed=True)

    @rule(cart=st.sampled_from(sorted(CARTS)), coupon=st.sampled_from([None, 0, 1]), placed=st.booleans())
    def buy(self, cart: str, coupon: int | None, placed: bool) -> None:
        """Quote and order in one go, as most buyers do, and usually place the payment."""
        self.quote(cart, coupon, 0)
        if not self.quotes:
            return
        quoted = self.quotes[-1]
        ordered = self.do("order", lambda: self.buyer.order(quote=quoted))
        if ordered is None:
            return
        if not ordered.reused:
            self.orders.append(ordered)
        if placed:
            self.do("pay", lambda: self.buyer.pay(ordered))

    @rule(minutes=st.sampled_from([0, 1, 1, 6, 31]))
    def time_passes(self, minutes: int) -> None:
        self.buyer = self.buyer.later(minutes=minutes)

    @rule(cart=st.sampled_from(sorted(CARTS)), coupon=st.sampled_from([None, 0, 1]), subsidy=st.sampled_from([0, 7]))
    def quote(self, cart: str, coupon: int | None, subsidy: int) -> None:
        lines, freight = CARTS[cart]
        if freight is None:
            lines, freight = (CARD, type(TEA)(sku="TEA", title="茶", unit_price_fen=20000, qty=2)), 300
        quoted = self.do(
            "quote",
            lambda: self.buyer.quote(
                *lines,
                freight_fen=freight,
                subsidy_fen=subsidy,
                coupon_id=None if coupon is None else self.coupons[coupon],
            ),
        )
        if quoted:
            self.quotes.append(quoted)

    @precondition(lambda self: self.quotes)
    @rule(data=st.data())
    def order(self, data: st.DataObject) -> None:
        quoted = data.draw(st.sampled_from(self.quotes[-3:]))
        ordered = self.do("order", lambda: self.buyer.order(quote=quoted))
        if ordered and not ordered.reused:
            self.orders.append(ordered)

    @precondition(lambda self: self.orders)
    @rule(data=st.data())
    def pay(self, data: st.DataObject) -> None:
        ordered = self.some_order(data)
        self.do("pay", lambda: self.buyer.pay(ordered))

    @precondition(lambda self: self.orders)
    @rule(data=st.data(), how=st.sampled_from(["right", "right", "right", "wrong", "again", "late"]))
    def channel_takes_money(self, data: st.DataObject, how: str) -> None:
        cell = self.cell(self.some_order(data))
        if cell is None:
            return
        options = {"wrong": {"amount_fen": 77}, "again": {"again": True}, "late": {"force": True}}.get(how, {})
        try:
            charge = self.buyer.simulator.pay(cell.payment.out_trade_no, notify=False, **options)["charge"]
        except SimulatorError:
            return
        self.charges.append((cell, charge))

    @precondition(lambda self: self.orders)
    @rule(data=st.data(), ship=st.booleans())
    def paid(self, data: st.DataObject, ship: bool) -> None:
        """The usual course: the money comes, so does the callback, and often the parcel leaves."""
        ordered = self.some_order(data)
        cell = self.cell(ordered)
        if cell is None:
            return
        try:
            charge = self.buyer.simulator.pay(cell.payment.out_trade_no, notify=False)["charge"]
        except SimulatorError:
            return
        self.charges.append((cell, charge))
        self.do(
            "callback",
            lambda: deliver_callback(cell, trade_no=charge["trade_no"], amount_fen=charge["amount_fen"]),
        )
        if ship:
            self.do("ship", lambda: self.buyer.ship(ordered))

    @precondition(lambda self: self.charges)
    @rule(data=st.data(), lie=st.sampled_from([False, False, False, True]))
    def callback(self, data: st.DataObject, lie: bool) -> None:
        cell, charge = data.draw(st.sampled_from(self.charges))
        cell = Cell(self.buyer, cell.ordered, cell.payment)
        amount = 1 if lie else charge["amount_fen"]
        self.do("callback", lambda: deliver_callback(cell, trade_no=charge["trade_no"], amount_fen=amount))

    @precondition(lambda self: self.orders)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        ordered = self.some_order(data)
        self.do("cancel", lambda: self.buyer.cancel(ordered))

    @precondition(lambda self: self.orders)
    @rule(data=st.data(), reason=st.sampled_from(["timeout", "manual"]))
    def close(self, data: st.DataObject, reason: str) -> None:
        ordered, now = self.some_order(data), self.buyer.now
        if reason == "manual":
            self.do(
                "close_by_admin",
                lambda: close_by_admin(order_id=ordered.order_id, username="cs", reason="x", now=now),
            )
        else:
            self.do("close", lambda: close_order(order_id=ordered.order_id, reason=reason, now=now))

    @precondition(lambda self: self.orders)
    @rule(data=st.data())
    def check(self, data: st.DataObject) -> None:
        ordered = self.some_order(data)
        self.do("check", lambda: check_order(order_id=ordered.order_id, now=self.buyer.now))

    @precondition(lambda self: self.orders)
    @rule(data=st.data())
    def fulfil(self, data: st.DataObject) -> None:
        ordered = self.some_order(data)
        self.do("fulfil", lambda: fulfil_order(order_id=ordered.order_id, now=self.buyer.now))

    @precondition(lambda self: self.orders)
    @rule(data=st.data(), part=st.booleans())
    def ship(self, data: st.DataObject, part: bool) -> None:
        ordered = self.some_order(data)
        self.do("ship", lambda: self.buyer.ship(ordered, *([(1, 1)] if part else [])))

    @precondition(lambda self: self.orders)
    @rule(data=st.data())
    def sign(self, data: st.DataObject) -> None:
        ordered, buyer = self.some_order(data), self.buyer
        self.do(
            "sign",
            lambda: sign_shipment(merchant_id=buyer.id, order_no=ordered.order_no, key=buyer.key(), now=buyer.now),
        )

    @precondition(lambda self: self.orders)
    @rule(data=st.data())
    def receive(self, data: st.DataObject) -> None:
        ordered, buyer = self.some_order(data), self.buyer
        self.do(
            "receive",
            lambda: confirm_receipt(
                merchant_id=buyer.id,
                order_no=ordered.order_no,
                user_id=buyer.user_id,
                key=buyer.key(),
                now=buyer.now,
            ),
        )

    @precondition(lambda self: self.quotes)
    @rule(data=st.data())
    def quote_expires(self, data: st.DataObject) -> None:
        quoted = data.draw(st.sampled_from(self.quotes))
        self.do("expire_quote", lambda: expire_quote(quote_id=quoted.quote_id, now=self.buyer.now))

    # What is true after every step.

    @invariant()
    def orders_are_where_their_logs_say(self) -> None:
        for order in Order.objects.filter(user_id=self.buyer.user_id):
            log = list(OrderStatusLog.objects.filter(order=order).order_by("to_version"))
            assert [row.to_version for row in log] == list(range(1, order.version + 1))
            assert log[-1].to_status == order.status
            assert OrderBill.objects.filter(order=order).count() == (order.status in (20, 30))
            if order.status in (10, 20, 30):
                paid = Payment.objects.get(order_no=order.order_no, trade_no=order.trade_no)
                assert (paid.amount_fen, paid.status) == (order.payable_fen, "PAID")
                assert order.refund_decided_at is None
                assert order.coupon_state in ("none", "redeemed", "conflict")

    @invariant()
    def a_coupon_is_one_orders(self) -> None:
        for coupon in UserCoupon.objects.filter(user_id=self.buyer.user_id):
            redeemed = list(
                CouponRedemption.objects.filter(coupon=coupon, ended_by=None).values_list("order_no", flat=True)
            )
            leased = set(
                Order.objects.filter(coupon_id=coupon.pk, coupon_state="leased", status=0).values_list(
                    "order_no", flat=True
                )
            ) | set(Quote.objects.filter(coupon_id=coupon.pk, lease_held=True).values_list("order_no", flat=True))
            if coupon.status == "LOCKED":
                assert leased == {coupon.locked_order_no}
            else:
                assert leased == set()
            assert len(redeemed) == (coupon.status == "USED")
            holders = Order.objects.filter(coupon_id=coupon.pk, coupon_state="redeemed").values_list(
                "order_no", flat=True
            )
            assert list(holders) == redeemed

    @invariant()
    def money_that_came_is_kept_once_or_goes_back_once(self) -> None:
        for payment in Payment.objects.filter(order_no__in=[each.order_no for each in self.orders], status="PAID"):
            order = Order.objects.get(order_no=payment.order_no)
            back = RefundRequest.objects.filter(payment=payment)
            is_the_orders_own = order.status in (10, 20, 30) and payment.trade_no == order.trade_no
            assert back.count() == (0 if is_the_orders_own else 1)
            assert payment.refund_committed_fen == (0 if is_the_orders_own else payment.amount_fen)

    @invariant()
    def stock_is_somewhere(self) -> None:
        for item in StockItem.objects.filter(merchant_id=self.buyer.id):
            entries = StockEntry.objects.filter(item=item)
            for bucket in ("sellable", "reserved"):
                deltas = entries.filter(bucket=bucket).values_list("delta", flat=True)
                assert sum(deltas) == getattr(item, bucket) >= 0

    @invariant()
    def a_conflict_has_its_decision(self) -> None:
        for order in Order.objects.filter(user_id=self.buyer.user_id, coupon_state="conflict"):
            assert CouponDecision.objects.filter(order=order, decision="refund_order").exists()


@pytest.mark.slow
def test_random_lives_of_orders(shop: Shop) -> None:
    from ledgers.commands.adjust_stock import adjust_stock

    for sku in ("NUT", "TEA"):
        adjust_stock(merchant_id=shop.id, sku=sku, delta=10**6, business_key=f"m:{sku}", reference="m", now=shop.now)
    OrderMachine.shop = shop
    OrderMachine.accepted.clear()
    OrderMachine.refused.clear()
    run_state_machine_as_test(
        OrderMachine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
    print(f"\norder machine: accepted {dict(OrderMachine.accepted)}; refused {dict(OrderMachine.refused)}")
    assert sum(OrderMachine.accepted.values()) > EXAMPLES * STEPS / 5
