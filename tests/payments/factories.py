"""Payments and refunds made by the real commands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from kernel import numbers
from kernel.models import OutboxEvent
from merchants.models import Merchant
from payments.commands.open_payment import open_payment
from payments.commands.record_payment_paid import record_payment_paid
from payments.commands.request_refund import RefundRequested, request_refund
from payments.commands.save_account import save_account
from payments.gateway import Channel, RefundFact, RefundState
from payments.models import Payment, RefundAttempt, RefundRequest
from tests.merchants.factories import a_merchant


@dataclass(frozen=True)
class Shop:
    """A merchant with one WeChat account."""

    merchant: Merchant
    account_id: UUID
    now: datetime

    @property
    def id(self) -> UUID:
        return self.merchant.pk


def a_shop(now: datetime, *, code: str = "tea-house", **settings) -> Shop:
    merchant = a_merchant(now=now, code=code)
    saved = save_account(
        merchant_id=merchant.pk,
        channel="wechat",
        mchid="1900000001",
        app_id="wx0000000000000001",
        settings=settings,
        secret_values={"private_key": "-", "api_v3_key": "-"},
        now=now,
    )
    return Shop(merchant, saved.account_id, now)


def a_paid_payment(
    shop: Shop, amount_fen: int = 10000, *, order_no: str = "", paid_at: datetime | None = None, channel: str = "wechat"
) -> Payment:
    opened = open_payment(
        merchant_id=shop.id,
        order_no=order_no or numbers.next_number("order"),
        channel=channel,
        amount_fen=amount_fen,
        now=shop.now,
    )
    record_payment_paid(
        payment_id=opened.payment_id,
        trade_no=f"42000{opened.out_trade_no}",
        amount_fen=amount_fen,
        paid_at=paid_at or shop.now - timedelta(minutes=5),
        now=shop.now,
    )
    return Payment.objects.get(id=opened.payment_id)


def a_refund(
    shop: Shop, payment: Payment, amount_fen: int, *, owner_no: str = "", reason: str = "goods returned"
) -> RefundRequested:
    return request_refund(
        merchant_id=shop.id,
        payment_id=payment.id,
        owner_kind="after_sales",
        owner_no=owner_no or numbers.next_number("after_sales"),
        amount_fen=amount_fen,
        reason=reason,
        now=shop.now,
    )


def attempt_of(refund: RefundRequested, seq: int = 0) -> RefundAttempt:
    return RefundAttempt.objects.get(request_id=refund.refund_request_id, seq=seq)


def request_of(refund: RefundRequested) -> RefundRequest:
    return RefundRequest.objects.get(id=refund.refund_request_id)


def said(
    attempt: RefundAttempt, state: RefundState, *, amount_fen: int | None = -1, now: datetime, **other
) -> RefundFact:
    """What the channel says about an attempt; the right amount unless another is given."""
    return RefundFact(
        channel=Channel.WECHAT,
        state=state,
        refund_no=attempt.number,
        refund_id=other.pop("refund_id", f"50300{attempt.number}"),
        out_trade_no=other.pop("out_trade_no", attempt.payment.out_trade_no),
        amount_fen=attempt.amount_fen if amount_fen == -1 else amount_fen,
        total_fen=other.pop("total_fen", attempt.payment.amount_fen),
        succeeded_at=now if state is RefundState.SUCCESS else None,
        **other,
    )


def events(name: str) -> list[dict]:
    return [event.payload for event in OutboxEvent.objects.filter(name=name).order_by("id")]


def everything() -> dict[str, int]:
    """How many rows there are of everything a payment command may write."""
    from kernel.models import IdempotencyKey
    from payments.models import ChannelNotify, RefundFact

    kinds = [Payment, RefundRequest, RefundAttempt, RefundFact, ChannelNotify, OutboxEvent, IdempotencyKey]
    return {kind.__name__: kind.objects.count() for kind in kinds}


def snapshot() -> dict[str, list]:
    """Every column of payments, requests and attempts: equal before and after means that nothing was written."""
    return {
        kind.__name__: list(kind.objects.order_by("pk").values()) for kind in (Payment, RefundRequest, RefundAttempt)
    } | {"counts": [everything()]}
