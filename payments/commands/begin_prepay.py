"""Say that a payment is about to be placed at the channel, before the call is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from kernel import errors
from kernel.statemachine import Edge, P, Sql, advance
from kernel.transactions import unit_of_work
from payments.models import Payment

BEGIN = {
    source: Edge(
        Payment,
        "begin_prepay",
        source=source,
        guards={"expiry": Sql("t.expires_at IS NULL OR t.expires_at > %(now)s")},
        changes={"prepay_started_at": P("now"), "version": Sql("t.version + 1")},
        returning=["version"],
    )
    for source in (Payment.Status.CREATED, Payment.Status.PREPAYING)
}


@dataclass(frozen=True)
class PrepayBegun:
    """What the caller needs for the call. `awaiting`: it was placed before, `client_params` are the answer."""

    payment_id: UUID
    account_id: UUID
    out_trade_no: str
    amount_fen: int
    expires_at: datetime | None
    awaiting: bool
    client_params: dict[str, Any] = field(default_factory=dict)
    replayed: bool = False


def begin_prepay(*, payment_id: UUID, now: datetime) -> PrepayBegun:
    """CREATED or PREPAYING → PREPAYING. Its own transaction: once it returns, no one closes the payment without asking
    the channel. Placing twice with the same fields is safe at the channel, so a call that was lost is made again.
    Raises NotFound, IllegalTransition (PAID, CLOSED or expired)."""
    with unit_of_work(now=now):
        payment = Payment.objects.select_for_update().filter(id=payment_id).first()
        if payment is None or payment.account_id is None:
            raise errors.NotFound(payment_id=str(payment_id))
        awaiting = payment.status == Payment.Status.AWAITING
        if not awaiting:
            edge = BEGIN.get(Payment.Status(payment.status))
            if edge is None or advance(edge, pk=payment.id, params={"now": now}) is None:
                raise errors.IllegalTransition(status=payment.status, out_trade_no=payment.out_trade_no)
        return PrepayBegun(
            payment_id=payment.id,
            account_id=payment.account_id,
            out_trade_no=payment.out_trade_no,
            amount_fen=payment.amount_fen,
            expires_at=payment.expires_at,
            awaiting=awaiting,
            client_params=payment.client_params if awaiting else {},
            replayed=awaiting,
        )
