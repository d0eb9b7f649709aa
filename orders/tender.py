"""Asking the channel about the payments of an order. HTTP: never inside a transaction."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from payments.gateway import ChannelRefused, ChannelUnknown, Gateway, PaymentFact, PaymentState
from payments.models import Payment
from payments.registry import gateway_for

TRIES = 3
PREPAY_GRACE = timedelta(seconds=60)
"""A prepay call that began less than this ago may still be on its way: "not found" then proves nothing."""

OVER = (PaymentState.CLOSED, PaymentState.REVOKED)
OPEN = (Payment.Status.CREATED, Payment.Status.PREPAYING, Payment.Status.AWAITING)


class Answer(StrEnum):
    """What the channel says about a charge, as far as it decides anything."""

    PAID_EQUAL = "paid_equal"
    PAID_DIFFERENT = "paid_different"
    REFUNDED = "refunded"
    UNPAID = "unpaid"
    OVER = "over"
    NOT_FOUND = "not_found"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Heard:
    """The channel's answer with the fact behind it. `fact` is None when it gave none."""

    answer: Answer
    fact: PaymentFact | None = None
    detail: str = ""


def read_answer(fact: PaymentFact, *, amount_fen: int) -> Answer:
    """Sort a fact by what it decides for a charge of `amount_fen`. REFUND is no SUCCESS: nothing is confirmed by it."""
    if fact.state is PaymentState.REFUND:
        return Answer.REFUNDED
    if fact.state is PaymentState.SUCCESS:
        return Answer.PAID_EQUAL if fact.amount_fen == amount_fen else Answer.PAID_DIFFERENT
    if fact.state is PaymentState.NOT_FOUND:
        return Answer.NOT_FOUND
    return Answer.OVER if fact.state in OVER else Answer.UNPAID


def ask(payment: Payment, *, now: datetime, trade_no: str = "") -> Heard:
    """Query a payment, or one charge of it by its trade number; up to three tries, then UNKNOWN."""
    assert payment.account is not None
    doubt = ""
    try:
        gateway = gateway_for(payment.account)
    except ValueError as incomplete:  # an account that lost its keys: nothing can be known through it
        return Heard(answer=Answer.UNKNOWN, detail=str(incomplete))
    for _try in range(TRIES):
        try:
            if trade_no:
                fact = gateway.query_payment_by_trade_no(trade_no=trade_no, out_trade_no=payment.out_trade_no, now=now)
            else:
                fact = gateway.query_payment(out_trade_no=payment.out_trade_no, now=now)
        except ChannelUnknown as error:
            doubt = str(error)
            continue
        except ChannelRefused as error:
            return Heard(answer=Answer.UNKNOWN, detail=str(error))
        return Heard(answer=read_answer(fact, amount_fen=payment.amount_fen), fact=fact)
    return Heard(answer=Answer.UNKNOWN, detail=doubt)


def ask_and_close(payment: Payment, *, now: datetime, answered: bool = False) -> Heard:
    """Query; unless it was paid, close it at the channel and query again: whoever refuses to close is asked why.

    What comes back: paid in some way, OVER (no one can pay it any more), or UNKNOWN. Never sent → OVER. `answered`:
    the answer to its prepay is known, so nothing is on its way and "not found" can be believed.
    """
    if payment.status == Payment.Status.CREATED or payment.account is None:
        return Heard(answer=Answer.OVER, detail="never sent")
    answered = answered or _launched_long_ago(payment, now=now)
    if payment.status == Payment.Status.PREPAYING and not answered:
        return Heard(answer=Answer.UNKNOWN, detail="prepay in flight")
    heard = ask(payment, now=now)
    if heard.answer in (Answer.UNPAID, Answer.NOT_FOUND):
        closed = close_at_channel(gateway_for(payment.account), payment.out_trade_no, now=now)
        heard = ask(payment, now=now)
        if heard.answer is Answer.NOT_FOUND and closed and answered:
            return Heard(answer=Answer.OVER, fact=heard.fact, detail="never arrived")
    if heard.answer in (Answer.UNPAID, Answer.NOT_FOUND):
        return Heard(answer=Answer.UNKNOWN, fact=heard.fact, detail=f"still {heard.answer} after closing")
    return heard


def close_at_channel(gateway: Gateway, out_trade_no: str, *, now: datetime) -> bool:
    """Ask the channel to take no more payment. A refusal is no answer: the caller queries in any case."""
    try:
        gateway.close_payment(out_trade_no=out_trade_no, now=now)
    except (ChannelUnknown, ChannelRefused):
        return False
    return True


def _launched_long_ago(payment: Payment, *, now: datetime) -> bool:
    return payment.prepay_started_at is not None and payment.prepay_started_at < now - PREPAY_GRACE
