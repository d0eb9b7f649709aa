"""The merchant agrees: money at once (refund only, price protection), or the buyer sends the goods, or a reship."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aftersales.actors import By
from aftersales.claims import deadline, get_claim
from aftersales.commands._approve_as_applied import approve_as_applied
from aftersales.commands._start_refund import AMOUNTS, start_refund
from aftersales.commands._transition import declare, move
from aftersales.models import AfterSalesOrder, Status, Type
from aftersales.settlement import Ask, settle
from kernel import idempotency
from kernel.idempotency import BusinessKey
from kernel.statemachine import P
from kernel.transactions import unit_of_work
from ledgers.commands.reserve_stock import reserve_stock

APPROVE_REFUND = declare("approve_refund", event="after_sales.approved", changes=AMOUNTS)

CONFIRMED = {
    "liability": P("liability"),
    "liability_reason": P("liability_reason"),
    "decided_at": P("now"),
}
APPROVE_RETURN = declare("approve_return", event="after_sales.approved", changes=CONFIRMED)
APPROVE_RESHIP = declare("approve_reship", event="after_sales.approved", changes=CONFIRMED)


@dataclass(frozen=True)
class Approved:
    after_sales_no: str
    status: str
    version: int
    goods_fen: int | None
    freight_fen: int | None
    replayed: bool = False


def approve_after_sales(
    *,
    merchant_id: UUID,
    after_sales_no: str,
    expected_version: int,
    ask: Ask = Ask(),  # noqa: B008 (frozen, and it means: what the rules give)
    by: By,
    key: BusinessKey,
    now: datetime,
) -> Approved:
    """Approve at the version the merchant saw. The amount (fen) is decided here for types 1 and 5, at inspection for 2.

    A reship sets its pieces aside. Raises NotFound, VersionConflict, IllegalTransition, InArbitration,
    AboveEntitlement, ReasonNeeded, RefundExceedsPaid, OutOfStock.
    """
    if ask.goods_fen is None and ask.freight_fen is None:
        approved: Approved | None = approve_as_applied(
            Approved,
            merchant_id=merchant_id,
            after_sales_no=after_sales_no,
            expected_version=expected_version,
            liability=ask.liability,
            liability_reason=ask.liability_reason,
            by=by,
            key=key,
            now=now,
        )
        if approved is not None:
            return approved
    with unit_of_work(now=now):
        done = idempotency.begin(key, Approved, now=now)
        if done is not None:
            return done
        claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no)
        if claim.type in (Type.REFUND_ONLY, Type.PRICE_PROTECTION):
            settled = settle(claim, ask)
            start_refund(
                APPROVE_REFUND,
                claim,
                settled,
                expected_version=expected_version,
                by=by,
                now=now,
                reason=ask.reduction_reason,
                liability_reason=ask.liability_reason,
                reduction_reason=ask.reduction_reason,
            )
        else:
            _approve_goods(claim, ask, expected_version=expected_version, by=by, now=now)
        result = _approved(claim)
        idempotency.finish(key, result)
        return result


def _approve_goods(claim: AfterSalesOrder, ask: Ask, *, expected_version: int, by: By, now: datetime) -> None:
    edge, status = (
        (APPROVE_RESHIP, Status.WAIT_MERCHANT_SHIP)
        if claim.type == Type.RESHIP
        else (APPROVE_RETURN, Status.WAIT_BUYER_RETURN)
    )
    move(
        edge,
        claim,
        expected_version=expected_version,
        by=by,
        now=now,
        due_at=deadline(claim.merchant, status, now=now),
        reason=ask.liability_reason,
        liability=ask.liability,
        liability_reason=ask.liability_reason,
    )
    if claim.type == Type.RESHIP:
        reserve_stock(
            merchant_id=claim.merchant_id,
            sku=claim.line.sku,
            qty=claim.qty,
            business_key=f"{claim.after_sales_no}:replacement",
            reference=claim.after_sales_no,
            now=now,
        )


def _approved(claim: AfterSalesOrder) -> Approved:
    now_is = AfterSalesOrder.objects.get(pk=claim.pk)
    return Approved(
        after_sales_no=now_is.after_sales_no,
        status=str(now_is.status),
        version=now_is.version,
        goods_fen=now_is.approved_goods_fen,
        freight_fen=now_is.approved_freight_fen,
    )
