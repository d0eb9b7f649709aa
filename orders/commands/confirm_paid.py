"""Confirm: the channel has exactly the order's money. The guard on the amount lives inside the update."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from kernel.errors import IllegalTransition
from kernel.statemachine import Carry, Edge, P, Sql, advance
from kernel.transactions import unit_of_work
from orders.actors import SYSTEM, Actor
from orders.commands._coordinate_coupon import REDEEM_HELD, redeem_for_order, redeem_params
from orders.models import CouponState, Order, OrderStatusLog
from orders.moves import NEXT_VERSION, event, log_row, move_params
from payments.commands.open_payment import open_payment
from payments.commands.record_payment_paid import PAY, AmountDiffers, TradeNoDiffers, record_payment_paid
from payments.gateway import PaymentFact
from payments.models import Payment

FULFIL_GRACE = Sql("%(now)s::timestamptz + interval '60 seconds'")
"""The sweeper leaves a paid order to the usual way (the event) for this long."""


def _edge(*beside: Carry) -> Edge:
    return Edge(
        Order,
        "confirm_paid",
        guards={"payable_fen": P("amount_fen")},
        changes={
            "version": NEXT_VERSION,
            "trade_no": P("trade_no"),
            "paid_channel": P("channel"),
            "out_trade_no": P("out_trade_no"),
            "paid_at": P("paid_at"),
            "fulfilment": Order.Fulfilment.WAITING,
            "next_fulfil_at": FULFIL_GRACE,
            "next_check_at": None,
            # Taken for granted here, put right in the same transaction when the coupon says otherwise.
            "coupon_state": Sql("CASE t.coupon_state WHEN 'leased' THEN 'redeemed' ELSE t.coupon_state END"),
        },
        writes=[log_row(OrderStatusLog.Command.CONFIRM_PAID, source=Order.Status.PENDING), *beside, REDEEM_HELD],
        emit=event("order.paid"),
        returning=["version", "order_no", "merchant_id", "coupon_id"],
    )


CONFIRM_PAID = _edge()
CONFIRM_WITH_PAYMENT = _edge(
    Carry(
        PAY[Payment.Status.AWAITING],
        name="paid",
        where="t.id = %(payment_id)s::uuid AND t.order_no = u.order_no",
    )
)
"""The usual case: a payment that was just seen AWAITING. If it is not, the statement breaks and writes nothing."""


@dataclass(frozen=True)
class PaidConfirmed:
    """`coupon_state` `conflict`: paid, but the coupon is gone; it will be refunded, never delivered."""

    order_no: str
    status: int
    version: int
    coupon_state: str
    replayed: bool = False


def confirm_paid(
    *,
    order_id: UUID,
    payment_id: UUID,
    fact: PaymentFact,
    now: datetime,
    actor: Actor = SYSTEM,
    payment_awaits: bool = False,
) -> PaidConfirmed:
    """PENDING → PAID with the payment recorded and the coupon redeemed, all in one transaction; may join.

    `fact` is the channel's own signed word (notify or query) and its state is SUCCESS. The same trade number again →
    `replayed`. `payment_awaits`: the caller has just seen the payment AWAITING, so order and payment are one
    statement. Raises AmountDiffers, TradeNoDiffers (both: nothing moved), IllegalTransition (CLOSED, CANCELLED).
    """
    assert fact.amount_fen is not None
    paid_at = fact.paid_at or now
    params = {
        **move_params(
            actor=actor,
            now=now,
            evidence={"payment_id": str(payment_id), "trade_no": fact.trade_no, "amount_fen": fact.amount_fen},
        ),
        "amount_fen": fact.amount_fen,
        "trade_no": fact.trade_no,
        "channel": fact.channel.value,
        "out_trade_no": fact.out_trade_no,
        "paid_at": paid_at,
        **redeem_params(fact.out_trade_no),
    }
    payer = {"payer_ref": fact.payer_ref, "payer_paid_fen": fact.payer_paid_fen, "payment_id": payment_id}
    with unit_of_work(now=now):
        if payment_awaits:
            moved = advance(CONFIRM_WITH_PAYMENT, pk=order_id, params={**params, **payer})
        else:
            moved = advance(CONFIRM_PAID, pk=order_id, params=params)
        if moved is None:
            return _replay(Order.objects.get(id=order_id), fact)
        if not payment_awaits:
            record_payment_paid(
                payment_id=payment_id,
                trade_no=fact.trade_no,
                amount_fen=fact.amount_fen,
                paid_at=paid_at,
                payer_ref=fact.payer_ref,
                payer_paid_fen=fact.payer_paid_fen,
                now=now,
            )
        state = _settle_coupon(order_id, moved, payment_no=fact.out_trade_no, now=now)
        return PaidConfirmed(moved["order_no"], Order.Status.PAID, moved["version"], state)


def confirm_free(*, order: Order, now: datetime, actor: Actor) -> PaidConfirmed:
    """PENDING → PAID for an order of 0 fen, in the transaction that makes it: a payment of kind `none`, no channel."""
    opened = open_payment(merchant_id=order.merchant_id, order_no=order.order_no, channel="none", amount_fen=0, now=now)
    moved = advance(
        CONFIRM_PAID,
        pk=order.id,
        params={
            **move_params(actor=actor, now=now, reason="nothing to pay"),
            "amount_fen": 0,
            "trade_no": "",
            "channel": "none",
            "out_trade_no": opened.out_trade_no,
            "paid_at": now,
            **redeem_params(opened.out_trade_no),
        },
    )
    if moved is None:
        raise IllegalTransition(order_no=order.order_no)
    state = _settle_coupon(order.id, moved, payment_no=opened.out_trade_no, now=now)
    return PaidConfirmed(order.order_no, Order.Status.PAID, moved["version"], state)


def _settle_coupon(order_id: UUID, moved: dict[str, Any], *, payment_no: str, now: datetime) -> str:
    """Redeem what the order leased; what it no longer holds is the coordinator's to decide."""
    if moved["coupon_id"] is None:
        return CouponState.NONE.value
    if moved["redeemed"]:
        return CouponState.REDEEMED.value
    return redeem_for_order(Order.objects.get(id=order_id), payment_no=payment_no, now=now).coupon_state


def _replay(order: Order, fact: PaymentFact) -> PaidConfirmed:
    """Zero rows are no success: say what the order is now."""
    if order.status in Order.PAID_OR_LATER:
        if order.trade_no != fact.trade_no:
            raise TradeNoDiffers(ours=order.trade_no, theirs=fact.trade_no, order_no=order.order_no)
        return PaidConfirmed(order.order_no, order.status, order.version, order.coupon_state, replayed=True)
    if order.status == Order.Status.PENDING:
        raise AmountDiffers(ours_fen=order.payable_fen, theirs_fen=fact.amount_fen, order_no=order.order_no)
    raise IllegalTransition(order_no=order.order_no, status=order.status)
