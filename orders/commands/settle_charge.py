"""Carry out what `orders.matrix` decides about a charge, each decision in one transaction of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from coupons.refusals import CouponRefused
from kernel import outbox
from kernel.errors import IllegalTransition, Refusal
from kernel.statemachine import Edge, P, Sql, advance
from kernel.transactions import leave_evidence, unit_of_work
from orders.actors import Actor
from orders.actors import channel as channel_actor
from orders.advisory import lock_user
from orders.commands._coordinate_coupon import acquire_for_reopening
from orders.commands._end_order import CLOSE, PaymentMovedOn, end_params, end_what_it_held
from orders.commands._hold_points import NotEnoughPoints, spend_points_again_for
from orders.commands._hold_stock import OutOfStock, reserve_stock_for
from orders.commands.confirm_paid import FULFIL_GRACE, confirm_paid
from orders.commands.open_anomaly import open_anomaly
from orders.matrix import Action, Decision, Said, Situation, decide
from orders.models import Anomaly, CouponState, Order, OrderStatusLog
from orders.moves import NEXT_VERSION, event, log_row, move_params
from orders.tender import Heard
from payments.commands.record_payment_paid import AmountDiffers, TradeNoDiffers, record_payment_paid
from payments.commands.record_second_charge import record_second_charge
from payments.commands.request_refund import request_refund
from payments.gateway import PaymentFact, PaymentState
from payments.models import Payment

TRIES = 3
"""An order that moved while we decided is looked at again, but not for ever."""

NO_NEWER = Sql(
    "NOT EXISTS (SELECT 1 FROM orders n WHERE n.merchant_id = t.merchant_id AND n.user_id = t.user_id"
    " AND n.fingerprint = t.fingerprint AND n.id <> t.id AND n.status IN (0, 10, 20, 30)"
    " AND n.created_at >= t.created_at)"
)
REOPEN = Edge(
    Order,
    "reopen_paid",
    guards={
        "payable_fen": P("amount_fen"),
        "reason": Sql("t.closed_reason IN ('timeout', 'enqueue_fail')"),
        "refund_decided_at": None,
        "newer": NO_NEWER,
    },
    changes={
        "version": NEXT_VERSION,
        "closed_reason": "",
        "closed_at": None,
        "trade_no": P("trade_no"),
        "paid_channel": P("channel"),
        "out_trade_no": P("out_trade_no"),
        "paid_at": P("paid_at"),
        "fulfilment": Order.Fulfilment.WAITING,
        "next_fulfil_at": FULFIL_GRACE,
        "next_check_at": None,
    },
    writes=[log_row(OrderStatusLog.Command.REOPEN_PAID, source=Order.Status.CLOSED)],
    emit=event("order.reopened"),
    returning=["version"],
)
DECIDE_REFUND = Edge(
    Order,
    "decide_refund",
    guards={"refund_decided_at": None},
    changes={"version": NEXT_VERSION, "refund_decided_at": P("now"), "next_check_at": None},
    writes=[log_row(OrderStatusLog.Command.DECIDE_REFUND, source=Order.Status.CLOSED)],
    emit=event("order.refund_decided"),
    returning=["version"],
)
NOTE_PAID = Edge(
    Order,
    "note_paid_after_cancel",
    changes={"version": NEXT_VERSION, "next_check_at": None},
    writes=[log_row(OrderStatusLog.Command.NOTE_PAID, source=Order.Status.CANCELLED)],
    emit=event("order.paid_after_cancel"),
    returning=["version"],
)


class NotReopened(Refusal):
    code = "NOT_REOPENED"
    message = _("The order cannot come back: a newer order took its place, or it moved on.")


class MovedOn(Exception):
    """The order is no longer where the decision found it: decide again."""


@dataclass(frozen=True)
class ChargeSettled:
    """What was decided and done. LATER and CLOSE are the caller's to carry out."""

    order_no: str
    action: Action
    outcome: str
    anomaly: str = ""


@dataclass(frozen=True)
class Case:
    """Everything one decision is carried out with."""

    order: Order
    payment: Payment
    decision: Decision
    fact: PaymentFact
    evidence: Mapping[str, Any]
    actor: Actor
    now: datetime


def settle_charge(
    *,
    payment_id: UUID,
    now: datetime,
    said: Said = Said.NOTHING,
    fact: PaymentFact | None = None,
    heard: Heard | None = None,
    evidence: Mapping[str, Any] | None = None,
) -> ChargeSettled:
    """Decide and act on what a callback says (`said`, with its `fact`) and the channel answered (`heard`).

    The money that counts is what the *query* confirms wherever the channel was asked. Never inside a transaction of
    the caller's: each action is one of its own. Idempotent: a charge that is accounted for is a replay.
    """
    for _try in range(TRIES):
        payment = Payment.objects.select_related("account").get(id=payment_id)
        order = Order.objects.get(merchant_id=payment.merchant_id, order_no=payment.order_no)
        believed = heard.fact if heard is not None and heard.fact is not None else fact
        decision = decide(situation_of(order), said, heard.answer if heard else None)
        if believed is None:
            believed = PaymentFact(
                channel=payment.channel,  # type: ignore[arg-type]
                state=PaymentState.NOTPAY,
                out_trade_no=payment.out_trade_no,
            )
        told = {**(evidence or {}), "said": said, "answer": heard.answer if heard else None}
        if heard is not None and heard.detail:
            told["detail"] = heard.detail
        case = Case(order, payment, decision, believed, told, channel_actor(payment.channel), now)
        try:
            return ACTIONS[decision.action](case)
        except (MovedOn, IllegalTransition, PaymentMovedOn):
            continue
    raise MovedOn(order.order_no)


def situation_of(order: Order) -> Situation:
    """Where an order stands in the matrix."""
    if order.status == Order.Status.CLOSED:
        if order.refund_decided_at is not None:
            return Situation.CLOSED_REFUNDED
        return Situation.CLOSED_REOPENABLE if order.closed_reason in Order.MAY_REOPEN else Situation.CLOSED_FOR_GOOD
    if order.status == Order.Status.CANCELLED:
        return Situation.CANCELLED_REFUNDED if known_trades(order) else Situation.CANCELLED
    return {
        Order.Status.PENDING: Situation.PENDING,
        Order.Status.PAID: Situation.PAID,
        Order.Status.DELIVERED: Situation.DELIVERED,
        Order.Status.COMPLETED: Situation.COMPLETED,
    }[Order.Status(order.status)]


def known_trades(order: Order) -> dict[str, int]:
    """The charges of an order that are accounted for: {trade number: fen}."""
    paid = Payment.objects.filter(
        merchant_id=order.merchant_id, order_no=order.order_no, status=Payment.Status.PAID
    ).exclude(trade_no="")
    return dict(paid.values_list("trade_no", "amount_fen"))


def _done(case: Case, outcome: str = "") -> ChargeSettled:
    return ChargeSettled(
        case.order.order_no, case.decision.action, outcome or case.decision.action, case.decision.anomaly
    )


def _queue(case: Case, *, kind: str = "", outcome: str = "") -> None:
    """Put the decision's anomaly, if it has one, into the queue, with both sides' figures."""
    kind = kind or case.decision.anomaly
    if not kind:
        return
    open_anomaly(
        merchant_id=case.order.merchant_id,
        kind=kind,
        order=case.order,
        out_trade_no=case.payment.out_trade_no,
        trade_no=case.fact.trade_no,
        facts={"theirs_fen": case.fact.amount_fen, "state": case.fact.state},
        evidence={
            **case.evidence,
            "ours": {
                "status": case.order.status,
                "closed_reason": case.order.closed_reason,
                "payable_fen": case.order.payable_fen,
                "trade_no": case.order.trade_no,
                "payment_status": case.payment.status,
            },
            "theirs": {
                "state": case.fact.state,
                "trade_no": case.fact.trade_no,
                "amount_fen": case.fact.amount_fen,
                "out_trade_no": case.fact.out_trade_no,
            },
        },
        outcome=outcome or case.decision.action,
        now=case.now,
    )


def _nothing(case: Case) -> ChargeSettled:
    """Replay, ignore, refuse, later, close: nothing moves here; the anomaly, if any, is queued."""
    _queue(case)
    return _done(case)


def _confirm(case: Case) -> ChargeSettled:
    with unit_of_work(now=case.now):
        try:
            paid = confirm_paid(
                order_id=case.order.id,
                payment_id=case.payment.id,
                fact=case.fact,
                now=case.now,
                actor=case.actor,
                payment_awaits=case.payment.status == Payment.Status.AWAITING,
            )
        except (AmountDiffers, TradeNoDiffers) as error:
            raise MovedOn(case.order.order_no) from error
        _queue(case)
    return _done(case, "replay" if paid.replayed else "confirmed")


def _close_and_refund(case: Case) -> ChargeSettled:
    """Paid with another amount: the order ends, and what the channel has goes back."""
    with unit_of_work(now=case.now):
        asked = {case.payment.id: case.payment.version}
        params = {
            **move_params(actor=case.actor, now=case.now, reason="paid with another amount"),
            **end_params(asked={}, now=case.now, closed_reason=Order.ClosedReason.MANUAL.value),
        }
        if advance(CLOSE, pk=case.order.id, params=params) is None:
            raise MovedOn(case.order.order_no)
        end_what_it_held(case.order, asked=asked, reason="amount_mismatch", now=case.now)
        _decide_refund(case, reason="amount_mismatch")
    return _done(case)


def _refund(case: Case) -> ChargeSettled:
    with unit_of_work(now=case.now):
        _decide_refund(case, reason=case.decision.anomaly)
    return _done(case)


def _decide_refund(case: Case, *, reason: str) -> None:
    """CLOSED stays closed for good (one conditional update) and the charge goes back."""
    evidence = {"trade_no": case.fact.trade_no, "amount_fen": case.fact.amount_fen}
    params = move_params(actor=case.actor, now=case.now, reason=reason, evidence=evidence)
    if advance(DECIDE_REFUND, pk=case.order.id, params=params) is None:
        raise MovedOn(case.order.order_no)
    _send_back(case, reason=reason)
    _queue(case)


def _send_back(case: Case, *, reason: str) -> None:
    """Account for the charge and ask for its refund: exactly one request per trade number. The amount is what the
    channel confirmed."""
    assert case.fact.amount_fen is not None
    request_refund(
        merchant_id=case.order.merchant_id,
        payment_id=take_charge(case),
        owner_kind="order_payment",
        owner_no=case.fact.trade_no,
        amount_fen=case.fact.amount_fen,
        reason=reason,
        now=case.now,
    )


def take_charge(case: Case) -> UUID:
    """The payment row that carries this charge: our own when it is its first and equal, else a second charge."""
    fact, payment = case.fact, Payment.objects.get(id=case.payment.id)
    assert fact.amount_fen is not None
    if payment.status == Payment.Status.PAID or fact.amount_fen != payment.amount_fen:
        if payment.trade_no == fact.trade_no:
            return payment.id
        return record_second_charge(
            payment_id=payment.id,
            trade_no=fact.trade_no,
            amount_fen=fact.amount_fen,
            paid_at=fact.paid_at or case.now,
            now=case.now,
        ).payment_id
    return record_payment_paid(
        payment_id=payment.id,
        trade_no=fact.trade_no,
        amount_fen=fact.amount_fen,
        paid_at=fact.paid_at or case.now,
        payer_ref=fact.payer_ref,
        payer_paid_fen=fact.payer_paid_fen,
        now=case.now,
    ).payment_id


def _reopen_or_refund(case: Case) -> ChargeSettled:
    """Back to PAID when coupon, points and stock can be had again and nothing newer took its place; else refund."""
    try:
        with unit_of_work(now=case.now):
            _reopen(case)
        return _done(case, "reopened")
    except (CouponRefused, NotEnoughPoints, OutOfStock, NotReopened) as refusal:
        if Order.objects.get(id=case.order.id).version != case.order.version:
            raise MovedOn(case.order.order_no) from refusal
        why = refusal.code
        if not isinstance(refusal, CouponRefused):
            leave_evidence(refusal, now=case.now)
    refund = Case(
        case.order,
        case.payment,
        Decision(Action.REFUND, Anomaly.Kind.PAID_ON_CLOSED),
        case.fact,
        {**case.evidence, "not_reopened": why},
        case.actor,
        case.now,
    )
    with unit_of_work(now=case.now):
        _decide_refund(refund, reason=f"not_reopened:{why}")
    return _done(refund)


def _reopen(case: Case) -> None:
    order, fact = case.order, case.fact
    lock_user(merchant_id=order.merchant_id, user_id=order.user_id)
    moved = advance(
        REOPEN,
        pk=order.id,
        params={
            **move_params(
                actor=case.actor,
                now=case.now,
                reason=f"closed by {order.closed_reason}, paid at the channel",
                evidence={
                    "closed_at": order.closed_at.isoformat() if order.closed_at else None,
                    "trade_no": fact.trade_no,
                },
            ),
            "amount_fen": fact.amount_fen,
            "trade_no": fact.trade_no,
            "channel": fact.channel.value,
            "out_trade_no": fact.out_trade_no,
            "paid_at": fact.paid_at or case.now,
        },
    )
    if moved is None:
        raise NotReopened(order_no=order.order_no)
    take_charge(case)
    if order.coupon_id is not None and order.coupon_state != CouponState.REDEEMED:
        acquire_for_reopening(order, payment_no=fact.out_trade_no, now=case.now)
    spend_points_again_for(order, now=case.now)
    reserve_stock_for(Order.objects.get(id=order.id), now=case.now)
    outbox.append(
        name="order.paid",
        merchant_id=order.merchant_id,
        subject=order.order_no,
        payload={
            "order_no": order.order_no,
            "order_id": str(order.id),
            "status": Order.Status.PAID.value,
            "version": moved["version"],
        },
        now=case.now,
    )


def _hold(case: Case) -> Order:
    """The order's row, held, still in the status the decision was made for; the charge not accounted for yet."""
    order = Order.objects.select_for_update().get(id=case.order.id)
    if order.status != case.order.status or case.fact.trade_no in known_trades(order):
        raise MovedOn(order.order_no)
    return order


def _refund_second_charge(case: Case) -> ChargeSettled:
    with unit_of_work(now=case.now):
        _hold(case)
        _send_back(case, reason="second_charge")
        _queue(case)
    return _done(case)


def _refund_after_cancel(case: Case) -> ChargeSettled:
    """CANCELLED stays: an audit row, one refund, no delivery ever."""
    with unit_of_work(now=case.now):
        _hold(case)
        evidence = {"trade_no": case.fact.trade_no, "amount_fen": case.fact.amount_fen}
        params = move_params(actor=case.actor, now=case.now, reason=case.decision.anomaly, evidence=evidence)
        if advance(NOTE_PAID, pk=case.order.id, params=params) is None:
            raise MovedOn(case.order.order_no)
        _send_back(case, reason="paid_after_cancel")
        _queue(case)
    return _done(case)


ACTIONS: Mapping[Action, Callable[[Case], ChargeSettled]] = {
    Action.CONFIRM: _confirm,
    Action.REPLAY: _nothing,
    Action.IGNORE: _nothing,
    Action.REFUSE: _nothing,
    Action.LATER: _nothing,
    Action.ANOMALY: _nothing,
    Action.CLOSE: _nothing,
    Action.CLOSE_AND_REFUND: _close_and_refund,
    Action.REOPEN_OR_REFUND: _reopen_or_refund,
    Action.REFUND: _refund,
    Action.REFUND_SECOND_CHARGE: _refund_second_charge,
    Action.REFUND_AFTER_CANCEL: _refund_after_cancel,
}
