"""One claim as rows: the order with its units, its first log line and its event."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aftersales.actors import By
from aftersales.claims import deadline
from aftersales.drafts import Draft, NoSuchUnits
from aftersales.models import AfterSalesLog, AfterSalesOrder, AfterSalesUnit, Exchange, Hold, Status
from aftersales.rewards import ordered_line
from kernel import numbers, outbox
from kernel.errors import refuse_on_constraint
from ledgers.commands.hold_commission import hold_commission
from merchants.models import Merchant
from orders.commands.hold_units import hold_units
from orders.models import Order

refuse_on_constraint("unit_has_one_live_claim", NoSuchUnits)
refuse_on_constraint("unit_has_one_price_protection", NoSuchUnits)
refuse_on_constraint("unit_is_topped_up_by_one_claim_at_a_time", NoSuchUnits)


@dataclass(frozen=True)
class AppliedItem:
    after_sales_no: str
    line_no: int
    type: int
    qty: int
    ordinals: list[int]
    status: str
    version: int
    liability: str
    goods_fen: int
    freight_fen: int
    due_at: datetime | None


def write_claim(
    draft: Draft,
    *,
    order: Order,
    merchant: Merchant,
    batch_id: UUID,
    origin: str,
    by: By,
    now: datetime,
    parent: AfterSalesOrder | None = None,
    device_hash: str = "",
) -> AfterSalesOrder:
    """One claim with its units, its first log line and its event; the line's row is locked by the caller."""
    ordinals = [unit.ordinal for unit in draft.units]
    if draft.hold == Hold.CONSUMES:
        hold_units(line_id=draft.line.pk, ordinals=ordinals, unshipped=draft.goods_state == "unshipped")
    claim = AfterSalesOrder.objects.create(
        merchant=merchant,
        after_sales_no=numbers.next_number("after_sales"),
        order=order,
        order_no=order.order_no,
        line=draft.line,
        line_no=draft.line.line_no,
        user_id=order.user_id,
        batch_id=batch_id,
        origin=origin,
        parent=parent,
        type=draft.item.type,
        hold=draft.hold,
        goods_state=draft.goods_state,
        qty=draft.item.qty,
        reason_code=draft.item.reason_code,
        description=draft.item.description,
        device_hash=device_hash,
        liability_proposed=draft.liability,
        status=Status.WAIT_AUDIT,
        version=1,
        applied_goods_fen=draft.applied_goods_fen,
        applied_freight_fen=draft.applied_freight_fen,
        entitled_goods_fen=draft.entitlement.goods_fen,
        entitled_freight_fen=draft.entitlement.freight_fen,
        algorithm=draft.algorithm,
        terms_version=order.terms_version,
        due_at=deadline(merchant, Status.WAIT_AUDIT, now=now),
        created_at=now,
        updated_at=now,
    )
    _write_units(claim, draft)
    if draft.item.replacement is not None:
        wanted = draft.item.replacement
        Exchange.objects.create(
            after_sales=claim, sku=wanted.sku, title=wanted.title, unit_price_fen=wanted.unit_price_fen
        )
    _leave_traces(claim, draft, by=by, now=now)
    if draft.applied_goods_fen:
        hold_commission(
            merchant_id=merchant.pk,
            order_no=order.order_no,
            line_no=ordered_line(draft.line).line_no,
            after_sales_no=claim.after_sales_no,
            goods_fen=draft.applied_goods_fen,
            now=now,
        )
    return claim


def _write_units(claim: AfterSalesOrder, draft: Draft) -> None:
    AfterSalesUnit.objects.bulk_create(
        AfterSalesUnit(
            merchant_id=claim.merchant_id,
            after_sales=claim,
            line=draft.line,
            ordinal=unit.ordinal,
            hold=draft.hold,
            protects_price=draft.protects_price,
            worth_fen=unit.worth_fen,
            earlier_fen=unit.earlier_fen,
            goods_fen=unit.goods_fen,
            freight_fen=unit.freight_fen,
        )
        for unit in draft.units
    )


def _leave_traces(claim: AfterSalesOrder, draft: Draft, *, by: By, now: datetime) -> None:
    AfterSalesLog.objects.create(
        after_sales=claim,
        type=claim.type,
        command="apply",
        to_version=1,
        to_status=Status.WAIT_AUDIT,
        actor_kind=by.kind,
        actor_id=by.id,
        reason=claim.reason_code,
        evidence={
            "ordinals": [unit.ordinal for unit in draft.units],
            "goods_fen": draft.applied_goods_fen,
            "freight_fen": draft.applied_freight_fen,
        },
        created_at=now,
    )
    outbox.append(
        name="after_sales.applied",
        merchant_id=claim.merchant_id,
        subject=claim.after_sales_no,
        payload={"after_sales_no": claim.after_sales_no, "order_no": claim.order_no, "type": int(claim.type)},
        now=now,
    )


def told(claim: AfterSalesOrder) -> AppliedItem:
    """A claim as its applicant is told of it."""
    return AppliedItem(
        after_sales_no=claim.after_sales_no,
        line_no=claim.line_no,
        type=int(claim.type),
        qty=claim.qty,
        ordinals=list(claim.units.order_by("ordinal").values_list("ordinal", flat=True)),
        status=str(claim.status),
        version=claim.version,
        liability=str(claim.liability_proposed),
        goods_fen=claim.applied_goods_fen,
        freight_fen=claim.applied_freight_fen,
        due_at=claim.due_at,
    )
