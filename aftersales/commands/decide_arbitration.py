"""The platform decides: an amount, who is responsible, and why. The decision drives ordinary commands."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from aftersales.actors import By
from aftersales.commands._award import award
from aftersales.commands._end_claim import end_claim
from aftersales.commands._transition import declare
from aftersales.commands.convert_to_refund import free_replacement, send_supplement_back
from aftersales.drafts import AboveEntitlement, left_of_units
from aftersales.models import FINAL, AfterSalesOrder, ArbitrationCase, ArbitrationUnit, Status, Type
from kernel import idempotency, outbox
from kernel.errors import IllegalTransition, InvalidInput, NotFound, VersionConflict
from kernel.idempotency import BusinessKey
from kernel.statemachine import Edge, Emit, New, P, Sql, advance
from kernel.transactions import unit_of_work
from orders.commands.hold_units import free_units
from orders.models import OrderLine

DECIDE = Edge(
    ArbitrationCase,
    "decide",
    guards={"version": P("expected_version")},
    changes={
        "version": Sql("t.version + 1"),
        "awarded_goods_fen": P("goods_fen"),
        "awarded_freight_fen": P("freight_fen"),
        "responsible": P("responsible"),
        "decision": P("decision"),
        "decided_by": P("decided_by"),
        "closed_at": P("now"),
    },
    emit=Emit(
        "arbitration.decided",
        subject=New("order_no"),
        payload={
            "case_id": New("id"),
            "order_no": New("order_no"),
            "awarded_goods_fen": New("awarded_goods_fen"),
            "awarded_freight_fen": New("awarded_freight_fen"),
            "responsible": New("responsible"),
        },
    ),
    returning=["version"],
)
END = {
    status: declare("end_by_arbitration", source=status, event="after_sales.canceled", during_dispute=True)
    for status in (
        Status.WAIT_AUDIT,
        Status.WAIT_BUYER_RETURN,
        Status.WAIT_MERCHANT_RECEIVE,
        Status.WAIT_BUYER_PAY,
        Status.WAIT_MERCHANT_SHIP,
        Status.WAIT_BUYER_CONFIRM,
    )
}


@dataclass(frozen=True)
class ArbitrationDecided:
    """`after_sales_no` is the linked claim that pays the award; empty when nothing was awarded."""

    case_id: UUID
    state: str
    version: int
    after_sales_no: str
    awarded_fen: int
    replayed: bool = False


def decide_arbitration(
    *,
    case_id: UUID,
    expected_version: int,
    goods_fen: int,
    freight_fen: int,
    responsible: str,
    decision: str,
    by: By,
    key: BusinessKey,
    now: datetime,
) -> ArbitrationDecided:
    """An award (fen, at most what is left of the units) ends a claim that is still open and makes a linked, approved
    one. Without an award the claim goes on with the time it had left, or stays refused. Raises NotFound, InvalidInput,
    VersionConflict, IllegalTransition, AboveEntitlement, RefundExceedsPaid.
    """
    if min(goods_fen, freight_fen) < 0 or not decision.strip() or responsible not in ArbitrationCase.Responsible.values:
        raise InvalidInput(goods_fen=goods_fen, freight_fen=freight_fen, responsible=responsible)
    with unit_of_work(now=now):
        done = idempotency.begin(key, ArbitrationDecided, now=now)
        if done is not None:
            return done
        case = ArbitrationCase.objects.select_related("after_sales__merchant", "after_sales__line").filter(
            pk=case_id
        ).first()  # fmt: skip
        if case is None:
            raise NotFound(case_id=str(case_id))
        OrderLine.objects.select_for_update().get(pk=case.line_id)
        version = _close(
            case,
            expected_version=expected_version,
            goods_fen=goods_fen,
            freight_fen=freight_fen,
            responsible=responsible,
            decision=decision,
            by=by,
            now=now,
        )
        linked = _carry_out(case, goods_fen, freight_fen, responsible=responsible, by=by, now=now)
        result = ArbitrationDecided(
            case_id=case.pk,
            state=str(ArbitrationCase.State.DECIDED),
            version=version,
            after_sales_no=linked.after_sales_no if linked else "",
            awarded_fen=goods_fen + freight_fen,
        )
        idempotency.finish(key, result)
        return result


def _close(
    case: ArbitrationCase,
    *,
    expected_version: int,
    goods_fen: int,
    freight_fen: int,
    responsible: str,
    decision: str,
    by: By,
    now: datetime,
) -> int:
    left = left_of_units(case.line, ordinals_of(case))
    if goods_fen > sum(u.goods_fen for u in left) or freight_fen > sum(u.freight_fen for u in left):
        raise AboveEntitlement(
            goods_fen=goods_fen,
            freight_fen=freight_fen,
            entitled_goods_fen=sum(u.goods_fen for u in left),
            entitled_freight_fen=sum(u.freight_fen for u in left),
        )
    moved = advance(
        DECIDE,
        pk=case.pk,
        params={
            "expected_version": expected_version,
            "goods_fen": goods_fen,
            "freight_fen": freight_fen,
            "responsible": responsible,
            "decision": decision,
            "decided_by": by.id,
            "now": now,
        },
    )
    if moved is None:
        now_is = ArbitrationCase.objects.get(pk=case.pk)
        kind = VersionConflict if now_is.version != expected_version else IllegalTransition
        raise kind(state=now_is.state, version=now_is.version)
    return int(moved["version"])


def ordinals_of(case: ArbitrationCase) -> list[int]:
    return list(case.units.order_by("ordinal").values_list("ordinal", flat=True))


def _carry_out(
    case: ArbitrationCase, goods_fen: int, freight_fen: int, *, responsible: str, by: By, now: datetime
) -> AfterSalesOrder | None:
    """Give the units back to where they were, then pay the award from them, if there is one."""
    let_go(case)
    claim = case.after_sales
    still_open = claim is not None and claim.status not in FINAL
    if goods_fen + freight_fen == 0:
        if claim is not None and still_open:
            resume(claim, now=now)
        return None
    if claim is not None and still_open:
        _end(claim, by=by, reason=case.decision or "arbitration", now=now)
    linked = award(case, goods_fen, freight_fen, responsible=responsible, by=by, now=now)
    ArbitrationCase.objects.filter(pk=case.pk).update(result=linked)
    return linked


def let_go(case: ArbitrationCase) -> None:
    """The case no longer holds its units."""
    ArbitrationUnit.objects.filter(case=case).update(is_open=False)
    if case.holds_line:
        free_units(line_id=case.line_id, ordinals=ordinals_of(case))


def resume(claim: AfterSalesOrder, *, now: datetime) -> None:
    """The claim goes on; its deadline gets the time that was left when the case was opened."""
    left = claim.due_left_seconds
    AfterSalesOrder.objects.filter(pk=claim.pk).update(
        is_disputed=False,
        due_at=now + timedelta(seconds=left) if left is not None else None,
        due_left_seconds=None,
        updated_at=now,
    )
    outbox.append(
        name="after_sales.resumed",
        merchant_id=claim.merchant_id,
        subject=claim.after_sales_no,
        payload={"after_sales_no": claim.after_sales_no, "order_no": claim.order_no},
        now=now,
    )


def _end(claim: AfterSalesOrder, *, by: By, reason: str, now: datetime) -> None:
    edge = END.get(Status(claim.status))
    if edge is None:
        raise IllegalTransition(after_sales_no=claim.after_sales_no, status=claim.status)
    end_claim(edge, claim, expected_version=claim.version, by=by, now=now, reason=reason[:400])
    AfterSalesOrder.objects.filter(pk=claim.pk).update(is_disputed=False)
    if claim.type == Type.EXCHANGE:
        send_supplement_back(claim, now=now)
    if claim.type in (Type.EXCHANGE, Type.RESHIP):
        free_replacement(claim, now=now)
