"""WeChat Pay's objects read as facts. What does not fit its documentation is not guessed:
``ChannelUnknown``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from payments.gateway import (
    Channel,
    ChannelUnknown,
    Doubt,
    PaymentFact,
    PaymentState,
    RefundFact,
    RefundState,
)


def payment_fact(answer: Mapping[str, Any]) -> PaymentFact:
    """A transaction, from a query or a notify. Raises ``ChannelUnknown`` when it is not one."""
    try:
        state = PaymentState(text_of(answer, "trade_state"))
    except ValueError as error:
        raise ChannelUnknown(Doubt.MALFORMED, "an unknown trade_state") from error
    amount = answer.get("amount") if isinstance(answer.get("amount"), dict) else {}
    payer = answer.get("payer")
    fact = PaymentFact(
        channel=Channel.WECHAT,
        state=state,
        out_trade_no=text_of(answer, "out_trade_no"),
        trade_no=str(answer.get("transaction_id") or ""),
        amount_fen=fen_of(amount, "total"),
        payer_paid_fen=fen_of(amount, "payer_total"),
        paid_at=moment_of(answer, "success_time"),
        merchant_ref=text_of(answer, "mchid"),
        app_id=str(answer.get("appid") or ""),
        payer_ref=str(payer.get("openid") or "") if isinstance(payer, dict) else "",
        raw=answer,
    )
    if state.is_paid and (fact.amount_fen is None or not fact.trade_no):
        raise ChannelUnknown(Doubt.MALFORMED, "paid, without amount or transaction id")
    return fact


def refund_fact(answer: Mapping[str, Any], *, state_field: str = "status") -> RefundFact:
    """A refund, from an answer (``status``) or a notify (``refund_status``)."""
    try:
        state = RefundState(text_of(answer, state_field))
    except ValueError as error:
        raise ChannelUnknown(Doubt.MALFORMED, f"an unknown {state_field}") from error
    amount = answer.get("amount") if isinstance(answer.get("amount"), dict) else {}
    fact = RefundFact(
        channel=Channel.WECHAT,
        state=state,
        refund_no=text_of(answer, "out_refund_no"),
        refund_id=text_of(answer, "refund_id"),
        out_trade_no=str(answer.get("out_trade_no") or ""),
        trade_no=str(answer.get("transaction_id") or ""),
        amount_fen=fen_of(amount, "refund"),
        payer_refund_fen=fen_of(amount, "payer_refund"),
        total_fen=fen_of(amount, "total"),
        succeeded_at=moment_of(answer, "success_time"),
        raw=answer,
    )
    if fact.amount_fen is None:
        raise ChannelUnknown(Doubt.MALFORMED, "a refund without an amount")
    return fact


def about(refund_no: str, fact: RefundFact) -> RefundFact:
    if fact.refund_no != refund_no:
        raise ChannelUnknown(Doubt.MALFORMED, "an answer about another refund")
    return fact


def object_of(body: bytes) -> dict[str, Any]:
    value = json.loads(body)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def text_of(source: Mapping[str, Any], name: str) -> str:
    value = source.get(name)
    if not isinstance(value, str) or not value:
        raise ChannelUnknown(Doubt.MALFORMED, f"no {name}")
    return value


def fen_of(source: Any, name: str) -> int | None:
    """Integer fen or nothing; a float, a string or a negative number is no amount."""
    value = source.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ChannelUnknown(Doubt.MALFORMED, f"{name} is no amount in fen")
    return value


def moment_of(source: Mapping[str, Any], name: str) -> datetime | None:
    value = source.get(name)
    if not value:
        return None
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise ChannelUnknown(Doubt.MALFORMED, f"{name} is no time") from error
    if moment.tzinfo is None:
        raise ChannelUnknown(Doubt.MALFORMED, f"{name} has no zone")
    return moment
