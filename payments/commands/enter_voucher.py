"""Refund outside the channel, first half: one person says how the money is paid."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from kernel import errors
from kernel.statemachine import Edge, P, Sql, advance
from kernel.transactions import unit_of_work
from payments.commands._dead_request import dead_request
from payments.models import RefundRequest

ENTER = Edge(
    RefundRequest,
    "enter_voucher",
    guards={"version": P("version")},
    changes={
        "route": RefundRequest.Route.OFFLINE,
        "route_reason": Sql("CASE WHEN t.route_reason = '' THEN t.failure_code ELSE t.route_reason END"),
        "voucher": P("voucher"),
        "voucher_by": P("person"),
        "version": Sql("t.version + 1"),
    },
    returning=["version"],
)


@dataclass(frozen=True)
class VoucherEntered:
    refund_request_id: UUID
    voucher: str
    replayed: bool = False


def enter_voucher(
    *, merchant_id: UUID, refund_request_id: UUID, voucher: str, person: str, now: datetime
) -> VoucherEntered:
    """The first person: how the money was (or will be) paid outside the channel. Possible only for a FAILED request
    without an attempt that may still pay. A later voucher replaces the earlier one. Raises NotFound, RefundNotDead."""
    if not voucher.strip() or not person:
        raise errors.InvalidInput(voucher=voucher)
    with unit_of_work(now=now):
        request = dead_request(merchant_id, refund_request_id)
        params: dict[str, Any] = {"version": request.version, "voucher": voucher.strip()[:128], "person": person}
        if advance(ENTER, pk=request.id, params=params) is None:
            raise errors.VersionConflict(refund_request_id=str(request.id))
        return VoucherEntered(request.id, voucher.strip()[:128])
