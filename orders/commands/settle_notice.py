"""Settle a verified callback: find its order, ask the channel where the matrix says so, act on the decision."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from kernel.transactions import unit_of_work
from orders.actors import channel as channel_actor
from orders.commands.close_order import close_order
from orders.commands.open_anomaly import open_anomaly
from orders.commands.resolve_anomaly import resolve_decided
from orders.commands.settle_charge import ChargeSettled, known_trades, settle_charge, situation_of
from orders.matrix import Action, Said, asks
from orders.models import Anomaly, Order
from orders.tender import OPEN, ask
from payments.gateway import Channel, PaymentFact, PaymentState
from payments.models import ChannelNotify, Payment

ALARM_AFTER = timedelta(minutes=5)
"""A callback whose order cannot be found for this long is shown to people, and still tried again."""


@dataclass(frozen=True)
class NoticeSettled:
    """`again`: nothing could be decided; the work item stays and is tried again."""

    outcome: str
    order_no: str = ""
    again: bool = False


def settle_notice(*, notify_id: UUID, now: datetime) -> NoticeSettled:
    """Decide one stored, verified payment callback. Never inside a transaction (it may ask the channel); idempotent:
    the callback delivered again, or a worker that died half way, changes nothing twice."""
    notify = ChannelNotify.objects.get(id=notify_id)
    fact = fact_of(notify)
    payment = payment_of(notify)
    if payment is not None and payment.kind == Payment.Kind.SUPPLEMENT:
        return NoticeSettled("not_ours")
    order = None
    if payment is not None:
        order = Order.objects.filter(merchant_id=payment.merchant_id, order_no=payment.order_no).first()
    if payment is None or order is None:
        return _unknown_order(notify, now=now)
    said = said_of(order, payment, fact)
    evidence = {"notify_id": str(notify.id), "event": notify.event_type, "claimed_fen": fact.amount_fen}
    heard = None
    if asks(situation_of(order), said):
        heard = ask(payment, now=now, trade_no=fact.trade_no if said is Said.OTHER_TRADE_NO else "")
    settled = settle_charge(payment_id=payment.id, said=said, fact=fact, heard=heard, evidence=evidence, now=now)
    return _carry_on(settled, order, payment, now=now)


def payment_of(notify: ChannelNotify) -> Payment | None:
    """Our payment that a callback is about, inside the merchant whose keys signed it."""
    found = Payment.objects.filter(out_trade_no=notify.out_trade_no, merchant=notify.merchant)
    return found.exclude(kind=Payment.Kind.EXTRA).select_related("account").first()


def _carry_on(settled: ChargeSettled, order: Order, payment: Payment, *, now: datetime) -> NoticeSettled:
    if settled.action is Action.LATER:
        return NoticeSettled(settled.outcome, order.order_no, again=True)
    if settled.action is Action.CLOSE and payment.status in OPEN:
        ended = close_order(
            order_id=order.id,
            reason=Order.ClosedReason.TIMEOUT.value,
            now=now,
            actor=channel_actor(payment.channel),
            note="closed by the channel",
        )
        return NoticeSettled(ended.ending, order.order_no)
    resolve_decided(
        order=order,
        kind=Anomaly.Kind.GATEWAY_QUERY_FAILED,
        how=f"the channel answered: {settled.outcome}",
        now=now,
    )
    return NoticeSettled(settled.outcome, order.order_no)


def said_of(order: Order, payment: Payment, fact: PaymentFact) -> Said:
    """What a callback says, seen from its order. A REFUND state is no SUCCESS, so it is only ever a reason to ask."""
    if not fact.state.is_paid:
        return Said.UNPAID
    if not fact.trade_no or fact.amount_fen is None:
        return Said.SENSELESS
    known = known_trades(order)
    if fact.trade_no in known:
        return Said.PAID if known[fact.trade_no] == fact.amount_fen else Said.WRONG_AMOUNT
    if known:
        return Said.OTHER_TRADE_NO
    equal = fact.state is PaymentState.SUCCESS and fact.amount_fen == payment.amount_fen
    return Said.PAID if equal else Said.WRONG_AMOUNT


def fact_of(notify: ChannelNotify) -> PaymentFact:
    """The fact a verified callback carries, from what was stored of it."""
    told: dict[str, Any] = notify.facts
    return PaymentFact(
        channel=Channel(notify.channel),
        state=PaymentState(told["state"]),
        out_trade_no=told["out_trade_no"],
        trade_no=told.get("trade_no") or "",
        amount_fen=told.get("amount_fen"),
        payer_paid_fen=told.get("payer_paid_fen"),
        paid_at=datetime.fromisoformat(told["paid_at"]) if told.get("paid_at") else None,
    )


def _unknown_order(notify: ChannelNotify, *, now: datetime) -> NoticeSettled:
    """The order's transaction has not committed yet, or never will: tried again, and shown to people in time."""
    if now - notify.received_at >= ALARM_AFTER:
        assert notify.merchant_id is not None
        with unit_of_work(now=now):
            open_anomaly(
                merchant_id=notify.merchant_id,
                kind=Anomaly.Kind.ORDER_DISAPPEARED,
                out_trade_no=notify.out_trade_no,
                trade_no=notify.trade_no,
                facts={"notify_no": notify.notify_no},
                evidence={"notify_id": str(notify.id), "facts": notify.facts},
                outcome="asked again later",
                now=now,
            )
    return NoticeSettled("unknown_order", again=True)
