"""What a payment callback does: order state × what the callback says × what the channel answers when it is asked.

Pure data. Every cell is decided here and nowhere else (`decide`); `commands/settle_charge` carries the decisions
out, the tests walk the whole table, and docs/payment-callbacks.md is printed from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orders.models import Anomaly
from orders.tender import Answer


class Situation(StrEnum):
    """Where an order stands, as far as a callback cares."""

    PENDING = "pending"
    PAID = "paid"
    DELIVERED = "delivered"
    COMPLETED = "completed"
    CLOSED_REOPENABLE = "closed (timeout, enqueue_fail)"
    CLOSED_FOR_GOOD = "closed (superseded, manual)"
    CLOSED_REFUNDED = "closed, refund decided"
    CANCELLED = "cancelled"
    CANCELLED_REFUNDED = "cancelled, a charge known"


class Said(StrEnum):
    """What a callback says. A trade number is *other* when the order has a charge and this is not it."""

    PAID = "paid"
    WRONG_AMOUNT = "paid, wrong amount"
    OTHER_TRADE_NO = "paid, other trade number"
    UNPAID = "unpaid"
    SENSELESS = "signed, but makes no sense"
    FORGED = "forged"
    STALE = "stale"
    MALFORMED = "malformed"
    UNKNOWN_ORDER = "unknown order"
    NOTHING = "nothing (we asked)"


class Action(StrEnum):
    """What is done about it."""

    CONFIRM = "confirm"
    REPLAY = "replay"
    IGNORE = "ignore"
    REFUSE = "refuse, keep as evidence"
    LATER = "ask again later"
    ANOMALY = "anomaly, nothing moves"
    CLOSE = "close"
    CLOSE_AND_REFUND = "close and refund"
    REOPEN_OR_REFUND = "reopen, else refund"
    REFUND = "refund"
    REFUND_SECOND_CHARGE = "refund the second charge"
    REFUND_AFTER_CANCEL = "stay cancelled, refund"


@dataclass(frozen=True)
class Decision:
    """An action, and the kind of anomaly that goes with it, if any."""

    action: Action
    anomaly: str = ""


Rule = Decision | Mapping[Answer, Decision]
"""Decided at once, or by the channel's answer."""

Kind = Anomaly.Kind
CONFIRM, REPLAY, IGNORE = Decision(Action.CONFIRM), Decision(Action.REPLAY), Decision(Action.IGNORE)
REFUSE, LATER = Decision(Action.REFUSE), Decision(Action.LATER)
CLOSE = Decision(Action.CLOSE)
NO_ANSWER = Decision(Action.LATER, Kind.GATEWAY_QUERY_FAILED)
UNEXPECTED = Decision(Action.ANOMALY, Kind.UNEXPECTED_STATUS)
OTHER_AMOUNT = Decision(Action.ANOMALY, Kind.AMOUNT_MISMATCH)

PENDING_ASKED: Mapping[Answer, Decision] = {
    Answer.PAID_EQUAL: CONFIRM,
    Answer.PAID_DIFFERENT: Decision(Action.CLOSE_AND_REFUND, Kind.AMOUNT_MISMATCH),
    Answer.REFUNDED: UNEXPECTED,
    Answer.UNPAID: IGNORE,
    Answer.OVER: CLOSE,
    Answer.NOT_FOUND: LATER,
    Answer.UNKNOWN: NO_ANSWER,
}
PENDING_WRONG_AMOUNT: Mapping[Answer, Decision] = {
    **PENDING_ASKED,
    Answer.PAID_EQUAL: Decision(Action.CONFIRM, Kind.AMOUNT_MISMATCH),
    Answer.UNPAID: OTHER_AMOUNT,
    Answer.OVER: Decision(Action.CLOSE, Kind.AMOUNT_MISMATCH),
    Answer.NOT_FOUND: Decision(Action.LATER, Kind.AMOUNT_MISMATCH),
}


def _after_closing(*, equal: Decision, anomaly: str) -> Mapping[Answer, Decision]:
    return {
        Answer.PAID_EQUAL: equal,
        Answer.PAID_DIFFERENT: Decision(equal_or_refund(equal), Kind.AMOUNT_MISMATCH),
        Answer.REFUNDED: UNEXPECTED,
        Answer.UNPAID: Decision(Action.ANOMALY, anomaly),
        Answer.OVER: Decision(Action.ANOMALY, anomaly),
        Answer.NOT_FOUND: Decision(Action.LATER, anomaly),
        Answer.UNKNOWN: NO_ANSWER,
    }


def equal_or_refund(equal: Decision) -> Action:
    """Another amount is never a reason to reopen: what else would be done for the right amount is done for it."""
    return Action.REFUND if equal.action is Action.REOPEN_OR_REFUND else equal.action


REOPENABLE = _after_closing(equal=Decision(Action.REOPEN_OR_REFUND), anomaly=Kind.PAID_ON_CLOSED)
FOR_GOOD = _after_closing(equal=Decision(Action.REFUND, Kind.PAID_ON_CLOSED), anomaly=Kind.PAID_ON_CLOSED)
CANCELLED = _after_closing(
    equal=Decision(Action.REFUND_AFTER_CANCEL, Kind.PAID_ON_CANCELLED), anomaly=Kind.PAID_ON_CANCELLED
)
SECOND_CHARGE: Mapping[Answer, Decision] = {
    Answer.PAID_EQUAL: Decision(Action.REFUND_SECOND_CHARGE, Kind.TRADE_NO_MISMATCH),
    Answer.PAID_DIFFERENT: Decision(Action.REFUND_SECOND_CHARGE, Kind.TRADE_NO_MISMATCH),
    Answer.REFUNDED: Decision(Action.ANOMALY, Kind.TRADE_NO_MISMATCH),
    Answer.UNPAID: Decision(Action.ANOMALY, Kind.TRADE_NO_MISMATCH),
    Answer.OVER: Decision(Action.ANOMALY, Kind.TRADE_NO_MISMATCH),
    Answer.NOT_FOUND: Decision(Action.LATER, Kind.TRADE_NO_MISMATCH),
    Answer.UNKNOWN: NO_ANSWER,
}

SETTLED: Mapping[Said, Rule] = {
    Said.PAID: REPLAY,
    Said.WRONG_AMOUNT: OTHER_AMOUNT,
    Said.OTHER_TRADE_NO: SECOND_CHARGE,
    Said.UNPAID: IGNORE,
    Said.NOTHING: IGNORE,
}
"""An order whose money is accounted for: only a charge that is not its own moves anything."""

AT_THE_DOOR: Mapping[Said, Rule] = {
    Said.SENSELESS: Decision(Action.ANOMALY, Kind.MALFORMED_PAID_NOTIFY),
    Said.FORGED: REFUSE,
    Said.STALE: REFUSE,
    Said.MALFORMED: REFUSE,
    Said.UNKNOWN_ORDER: Decision(Action.LATER, Kind.ORDER_DISAPPEARED),
}
"""Decided whatever the order's state."""


def _asked_about(rule: Mapping[Answer, Decision]) -> Mapping[Said, Rule]:
    return {
        Said.PAID: rule,
        Said.WRONG_AMOUNT: rule,
        Said.OTHER_TRADE_NO: rule,
        Said.UNPAID: IGNORE,
        Said.NOTHING: rule,
    }


TABLE: Mapping[Situation, Mapping[Said, Rule]] = {
    Situation.PENDING: {
        **AT_THE_DOOR,
        Said.PAID: CONFIRM,
        Said.WRONG_AMOUNT: PENDING_WRONG_AMOUNT,
        Said.OTHER_TRADE_NO: PENDING_ASKED,
        Said.UNPAID: PENDING_ASKED,
        Said.NOTHING: PENDING_ASKED,
    },
    Situation.PAID: {**AT_THE_DOOR, **SETTLED},
    Situation.DELIVERED: {**AT_THE_DOOR, **SETTLED},
    Situation.COMPLETED: {**AT_THE_DOOR, **SETTLED},
    Situation.CLOSED_REOPENABLE: {**AT_THE_DOOR, **_asked_about(REOPENABLE)},
    Situation.CLOSED_FOR_GOOD: {**AT_THE_DOOR, **_asked_about(FOR_GOOD)},
    Situation.CLOSED_REFUNDED: {**AT_THE_DOOR, **SETTLED},
    Situation.CANCELLED: {**AT_THE_DOOR, **_asked_about(CANCELLED)},
    Situation.CANCELLED_REFUNDED: {**AT_THE_DOOR, **SETTLED},
}


def asks(situation: Situation, said: Said) -> bool:
    """Whether the channel has to be asked before this is decided."""
    return not isinstance(TABLE[situation][said], Decision)


def decide(situation: Situation, said: Said, answer: Answer | None) -> Decision:
    """The one decision for this cell. `answer` is needed exactly where `asks` says so."""
    rule = TABLE[situation][said]
    if isinstance(rule, Decision):
        return rule
    assert answer is not None
    return rule[answer]
