"""Keep what the channel answered to a prepay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from kernel import errors
from kernel.statemachine import Edge, P, Sql, advance
from kernel.transactions import unit_of_work
from payments.models import Payment

FINISH = Edge(
    Payment,
    "finish_prepay",
    changes={
        "prepay_id": P("prepay_id"),
        "client_params": P("client_params", "jsonb"),
        "payer_ref": P("payer_ref"),
        "version": Sql("t.version + 1"),
    },
    returning=["status"],
)


@dataclass(frozen=True)
class PrepayFinished:
    payment_id: UUID
    status: str
    replayed: bool = False


def finish_prepay(
    *, payment_id: UUID, prepay_id: str, client_params: Mapping[str, Any], payer_ref: str = "", now: datetime
) -> PrepayFinished:
    """PREPAYING → AWAITING, with the parameters the client needs. May join. AWAITING already → replay. PAID or CLOSED
    meanwhile → that status is returned and nothing is written: the caller then closes at the channel (CLOSED) or
    has nothing left to do (PAID). Raises NotFound, IllegalTransition (never begun)."""
    with unit_of_work(now=now):
        moved = advance(
            FINISH,
            pk=payment_id,
            params={"prepay_id": prepay_id, "client_params": dict(client_params), "payer_ref": payer_ref},
        )
        if moved is not None:
            return PrepayFinished(payment_id=payment_id, status=moved["status"])
        payment = Payment.objects.filter(id=payment_id).first()
        if payment is None:
            raise errors.NotFound(payment_id=str(payment_id))
        if payment.status == Payment.Status.CREATED:
            raise errors.IllegalTransition(status=payment.status, out_trade_no=payment.out_trade_no)
        return PrepayFinished(payment_id=payment.id, status=payment.status, replayed=True)
