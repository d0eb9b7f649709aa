"""Every cell of the callback matrix, through the real commands: order state × callback × the channel's answer.

The order is brought into its state by the real commands, the callback is a stored, verified notify, and the
channel's answer comes over the simulator's wire. What is asserted is what moved, not what the table says: money that
came goes somewhere exactly once, and nothing is delivered that was not paid.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from kernel import numbers
from orders.commands.close_by_admin import close_by_admin
from orders.commands.close_order import close_order
from orders.commands.complete_order import confirm_receipt
from orders.commands.settle_notice import settle_notice
from orders.matrix import TABLE, Action, Decision, Said, Situation, asks, decide
from orders.models import Anomaly, Order, OrderStatusLog
from orders.tender import Answer
from payments.models import ChannelNotify, Payment, RefundRequest
from tests.orders.factories import NUT, TEA, Shop, order_of, payment_of

CALLBACKS = [Said.PAID, Said.WRONG_AMOUNT, Said.OTHER_TRADE_NO, Said.UNPAID, Said.SENSELESS]
FREE_STATES = {Situation.PENDING, Situation.CLOSED_REOPENABLE, Situation.CLOSED_FOR_GOOD, Situation.CANCELLED}
"""States in which no charge is known: there a trade number cannot be *another*."""


def test_every_cell_is_decided() -> None:
    for situation, said, answer in product(Situation, Said, Answer):
        decision = decide(situation, said, answer)
        assert isinstance(decision.action, Action)
        assert decision.anomaly in ("", *Anomaly.Kind.values)
    assert {situation: set(rules) for situation, rules in TABLE.items()} == {
        situation: set(Said) for situation in Situation
    }


def test_no_cell_delivers_without_the_channels_success() -> None:
    for situation, said, answer in product(Situation, Said, Answer):
        action = decide(situation, said, answer).action
        if action is Action.CONFIRM and asks(situation, said):
            assert answer is Answer.PAID_EQUAL
        if action is Action.REOPEN_OR_REFUND:
            assert (situation, answer) == (Situation.CLOSED_REOPENABLE, Answer.PAID_EQUAL)
        if situation in (Situation.CANCELLED, Situation.CANCELLED_REFUNDED):
            assert action not in (Action.CONFIRM, Action.REOPEN_OR_REFUND)


def test_no_cell_forgets_money_or_sends_it_back_twice() -> None:
    for situation, said, answer in product(Situation, Said, Answer):
        if said in (Said.UNPAID, Said.NOTHING) or not asks(situation, said):
            continue
        action = decide(situation, said, answer).action
        if answer in (Answer.PAID_EQUAL, Answer.PAID_DIFFERENT):
            assert action not in (Action.IGNORE, Action.LATER, Action.ANOMALY, Action.REPLAY), (situation, said, answer)
        if answer in (Answer.NOT_FOUND, Answer.UNKNOWN):
            assert action is Action.LATER, (situation, said, answer)
        if answer is Answer.REFUNDED:
            assert action is Action.ANOMALY


@dataclass
class Cell:
    """One order in one state, with everything the callback is about."""

    shop: Shop
    ordered: Any
    payment: Payment
    own_trade: str = ""


def pending(shop: Shop, street: str) -> Cell:
    ordered, _placed = shop.placed(NUT, TEA, freight_fen=1000, address={"street": street})
    return Cell(shop, ordered, payment_of(ordered))


def paid(shop: Shop, street: str) -> Cell:
    cell = pending(shop, street)
    charge = shop.simulator.pay(cell.payment.out_trade_no, notify=False)["charge"]
    deliver_callback(cell, trade_no=charge["trade_no"], amount_fen=charge["amount_fen"])
    assert order_of(cell.ordered).status == 10
    cell.own_trade = charge["trade_no"]
    return cell


def delivered(shop: Shop, street: str) -> Cell:
    cell = paid(shop, street)
    shop.ship(cell.ordered)
    return cell


def completed(shop: Shop, street: str) -> Cell:
    cell = delivered(shop, street)
    confirm_receipt(merchant_id=shop.id, order_no=cell.ordered.order_no, user_id="user-1", key=shop.key(), now=shop.now)
    return cell


def closed(shop: Shop, street: str) -> Cell:
    cell = pending(shop, street)
    close_order(order_id=cell.ordered.order_id, reason="timeout", now=shop.now)
    return cell


def closed_for_good(shop: Shop, street: str) -> Cell:
    cell = pending(shop, street)
    close_by_admin(order_id=cell.ordered.order_id, username="cs", reason="fraud", now=shop.now)
    return cell


def cancelled(shop: Shop, street: str) -> Cell:
    cell = pending(shop, street)
    shop.cancel(cell.ordered)
    return cell


def with_known_charge(make: Callable[[Shop, str], Cell]) -> Callable[[Shop, str], Cell]:
    def known(shop: Shop, street: str) -> Cell:
        cell = make(shop, street)
        charge = shop.simulator.pay(cell.payment.out_trade_no, notify=False, force=True)["charge"]
        deliver_callback(cell, trade_no=charge["trade_no"], amount_fen=charge["amount_fen"])
        assert RefundRequest.objects.filter(order_no=cell.ordered.order_no).count() == 1
        cell.own_trade = charge["trade_no"]
        return cell

    return known


MAKE: dict[Situation, Callable[[Shop, str], Cell]] = {
    Situation.PENDING: pending,
    Situation.PAID: paid,
    Situation.DELIVERED: delivered,
    Situation.COMPLETED: completed,
    Situation.CLOSED_REOPENABLE: closed,
    Situation.CLOSED_FOR_GOOD: closed_for_good,
    Situation.CLOSED_REFUNDED: with_known_charge(closed_for_good),
    Situation.CANCELLED: cancelled,
    Situation.CANCELLED_REFUNDED: with_known_charge(cancelled),
}


def deliver_callback(cell: Cell, *, trade_no: str, amount_fen: int | None, state: str = "SUCCESS") -> Any:
    """Store a verified callback as the endpoint does, and settle it as the worker does."""
    notify = ChannelNotify.objects.create(
        id=numbers.uuid7(),
        channel="wechat",
        kind="payment",
        merchant_id=cell.shop.id,
        account_id=cell.shop.account_id,
        verdict="VERIFIED",
        body=b"{}",
        body_size=2,
        event_type="TRANSACTION.SUCCESS",
        out_trade_no=cell.payment.out_trade_no,
        trade_no=trade_no,
        facts={
            "state": state,
            "out_trade_no": cell.payment.out_trade_no,
            "trade_no": trade_no,
            "amount_fen": amount_fen,
            "paid_at": cell.shop.now.isoformat(),
        },
        received_at=cell.shop.now,
    )
    return settle_notice(notify_id=notify.id, now=cell.shop.now)


def answer_with(cell: Cell, answer: Answer, *, other_trade: bool) -> str:
    """Bring the channel into the state in which it gives this answer. The trade number the callback will name."""
    sim, number = cell.shop.simulator, cell.payment.out_trade_no
    amount = {Answer.PAID_DIFFERENT: 12345}.get(answer, cell.payment.amount_fen)
    trade = "4200009999202611300000000001"
    if answer in (Answer.PAID_EQUAL, Answer.PAID_DIFFERENT, Answer.REFUNDED):
        charge = sim.pay(number, amount_fen=amount, notify=False, force=True, again=other_trade)["charge"]
        trade = charge["trade_no"]
    operation = "wechat.query_by_id" if other_trade else "wechat.query"
    match answer:
        case Answer.REFUNDED:
            sim.fault(operation, "refuse", times=0)
            refund_at_channel(cell, trade, amount)
        case Answer.UNPAID if not other_trade:
            sim.post("trade-state", out_trade_no=number, state="NOTPAY")
        case Answer.OVER if not other_trade:
            sim.post("trade-state", out_trade_no=number, state="CLOSED")
        case Answer.NOT_FOUND:
            sim.fault(operation, "refuse", times=9, status=404, code="ORDER_NOT_EXIST", message="")
        case Answer.UNKNOWN:
            sim.fault(operation, "server_error", times=9)
    return trade


def refund_at_channel(cell: Cell, trade_no: str, amount_fen: int) -> None:
    """Refund at the channel behind our back, so that a query says REFUND."""
    from payments.registry import gateway_for

    gateway = gateway_for(cell.payment.account)
    number = f"BEHIND{trade_no[-20:]}"
    gateway.refund(
        refund_no=number,
        out_trade_no=cell.payment.out_trade_no,
        amount_fen=amount_fen,
        total_fen=amount_fen,
        reason="x",
        notify_url="https://shop.example/r",
        trade_no=trade_no,
        now=cell.shop.now,
    )
    cell.shop.simulator.settle(number)


def can_be_answered(said: Said, answer: Answer) -> bool:
    """A charge that a trade number names cannot be unpaid at the channel, only unknown to it."""
    return not (said is Said.OTHER_TRADE_NO and answer in (Answer.UNPAID, Answer.OVER))


def money_out(cell: Cell) -> list[tuple[str, int]]:
    requests = RefundRequest.objects.filter(order_no=cell.ordered.order_no).order_by("created_at", "id")
    return [(request.owner_no, request.amount_fen) for request in requests]


STATUS_AFTER = {
    Action.CONFIRM: Order.Status.PAID,
    Action.CLOSE: Order.Status.CLOSED,
    Action.CLOSE_AND_REFUND: Order.Status.CLOSED,
    Action.REOPEN_OR_REFUND: Order.Status.PAID,
}
REFUNDS = {
    Action.CLOSE_AND_REFUND,
    Action.REFUND,
    Action.REFUND_SECOND_CHARGE,
    Action.REFUND_AFTER_CANCEL,
}


def check(cell: Cell, said: Said, answer: Answer | None, decision: Decision) -> None:
    """Deliver the callback of this cell twice and look at what moved."""
    shop, number = cell.shop, cell.ordered.order_no
    amount = {Said.WRONG_AMOUNT: 777, Said.SENSELESS: None}.get(said, cell.payment.amount_fen)
    if said is Said.PAID and answer is Answer.PAID_DIFFERENT:
        amount = cell.payment.amount_fen
    other = said is Said.OTHER_TRADE_NO
    trade = answer_with(cell, answer, other_trade=other) if answer else "4200009999202611300000000002"
    if cell.own_trade and not other:
        trade = cell.own_trade
    before, refunds_before = order_of(cell.ordered), money_out(cell)
    logs_before = OrderStatusLog.objects.filter(order_id=before.id).count()
    anomalies_before = Anomaly.objects.filter(order_no=number).count()
    state = "CLOSED" if said is Said.UNPAID else "SUCCESS"

    settled = deliver_callback(cell, trade_no="" if said is Said.SENSELESS else trade, amount_fen=amount, state=state)
    after = order_of(cell.ordered)
    assert after.status == STATUS_AFTER.get(decision.action, before.status)
    assert settled.again == (decision.action is Action.LATER)
    new_refunds = money_out(cell)[len(refunds_before) :]
    if decision.action in REFUNDS:
        expected = 12345 if answer is Answer.PAID_DIFFERENT else cell.payment.amount_fen
        assert new_refunds == [(trade, expected)]
        assert Payment.objects.get(trade_no=trade).refund_committed_fen == expected
    else:
        assert new_refunds == []
    if decision.action in (Action.REPLAY, Action.IGNORE, Action.LATER, Action.ANOMALY, Action.REFUSE):
        assert OrderStatusLog.objects.filter(order_id=before.id).count() == logs_before
    kinds = set(Anomaly.objects.filter(order_no=number).values_list("kind", flat=True))
    if decision.anomaly:
        assert decision.anomaly in kinds
    else:
        assert Anomaly.objects.filter(order_no=number).count() == anomalies_before

    logs = OrderStatusLog.objects.filter(order_id=before.id).count()
    shop.simulator.clear_faults()
    if decision.action is not Action.LATER:
        deliver_callback(cell, trade_no="" if said is Said.SENSELESS else trade, amount_fen=amount, state=state)
        again = order_of(cell.ordered)
        assert (again.status, again.version) == (after.status, after.version), "the second time moved something"
        assert OrderStatusLog.objects.filter(order_id=before.id).count() == logs
        assert money_out(cell) == [*refunds_before, *new_refunds]


def cells() -> list[tuple[Situation, Said, Answer | None]]:
    found: list[tuple[Situation, Said, Answer | None]] = []
    for situation, said in product(Situation, CALLBACKS):
        if said is Said.OTHER_TRADE_NO and situation in FREE_STATES:
            continue
        if asks(situation, said):
            found += [(situation, said, answer) for answer in Answer if can_be_answered(said, answer)]
        else:
            found.append((situation, said, None))
    return found


@pytest.mark.parametrize("situation", list(Situation), ids=lambda s: s.name.lower())
def test_cells_through_the_real_commands(shop: Shop, situation: Situation) -> None:
    from ledgers.commands.adjust_stock import adjust_stock

    for sku in ("NUT", "TEA"):
        adjust_stock(
            merchant_id=shop.id, sku=sku, delta=100, business_key=f"more:{sku}", reference="more", now=shop.now
        )
    walked = [(said, answer) for where, said, answer in cells() if where is situation]
    for index, (said, answer) in enumerate(walked):
        cell = MAKE[situation](shop, f"{situation.name}-{index}")
        decision = decide(situation, said, answer)
        try:
            check(cell, said, answer, decision)
        except AssertionError as error:
            raise AssertionError(f"{situation} × {said} × {answer} → {decision.action}: {error}") from error


def test_the_page_of_the_documentation_is_the_code() -> None:
    from pathlib import Path

    from orders import matrix_page

    root = Path(__file__).parents[2]
    text = (root / matrix_page.PATH).read_text(encoding="utf-8")
    assert text == matrix_page.page(), "run: manage.py callback_matrix --write"
    print(matrix_page.summary())
