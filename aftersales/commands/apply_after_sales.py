"""A buyer applies for one or several lines: one after-sales order each, all or none."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from aftersales.actors import By
from aftersales.claims import deadline
from aftersales.drafts import Draft, Item, NoSuchUnits, draft_claims, facts_of
from aftersales.models import Actor, AfterSalesLog, AfterSalesOrder, AfterSalesUnit, Hold, Status
from kernel import idempotency, numbers, outbox
from kernel.errors import NotFound, refuse_on_constraint
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work
from ledgers.commands.hold_commission import hold_commission
from merchants.models import Merchant
from orders.commands.hold_units import hold_units
from orders.models import Order, OrderLine

refuse_on_constraint("unit_has_one_live_claim", NoSuchUnits)
refuse_on_constraint("unit_has_one_price_protection", NoSuchUnits)


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


@dataclass(frozen=True)
class Applied:
    order_no: str
    user_id: str
    refund_fen: int
    after_sales: list[AppliedItem] = field(default_factory=list)
    replayed: bool = False


def apply_after_sales(
    *,
    merchant_id: UUID,
    order_no: str,
    user_id: str,
    items: Sequence[Item],
    key: BusinessKey,
    now: datetime,
    by: By | None = None,
    origin: str = "buyer",
) -> Applied:
    """Write the claims, put their units under hold, start the audit's clock.

    Raises NotFound (order, line), and every refusal of aftersales.drafts: OrderNotPaid, NoSuchUnits, WindowOver,
    TypeDoesNotFit, AboveEntitlement, InvalidInput.
    """
    by = by or By(Actor.BUYER, user_id)
    with unit_of_work(now=now):
        done = idempotency.begin(key, Applied, now=now)
        if done is not None:
            return done
        order = Order.objects.select_related("merchant").filter(
            merchant_id=merchant_id, order_no=order_no, user_id=user_id
        ).first()  # fmt: skip
        if order is None:
            raise NotFound(order_no=order_no)
        numbers_of_lines = {item.line_no for item in items}
        lines = OrderLine.objects.select_for_update().filter(order=order, line_no__in=numbers_of_lines)
        drafts = draft_claims(
            order=order,
            facts=facts_of(lines.order_by("line_no")),
            items=items,
            window_days=order.merchant.return_window_days,
            by_system=origin != "buyer",
            now=now,
        )
        batch_id = numbers.uuid7()
        applied = [
            write_claim(draft, order=order, merchant=order.merchant, batch_id=batch_id, origin=origin, by=by, now=now)
            for draft in drafts
        ]
        result = Applied(
            order_no=order_no,
            user_id=user_id,
            refund_fen=sum(item.goods_fen + item.freight_fen for item in applied),
            after_sales=applied,
        )
        idempotency.finish(key, result)
        return result


def write_claim(
    draft: Draft, *, order: Order, merchant: Merchant, batch_id: UUID, origin: str, by: By, now: datetime
) -> AppliedItem:
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
        type=draft.item.type,
        hold=draft.hold,
        goods_state=draft.goods_state,
        qty=draft.item.qty,
        reason_code=draft.item.reason_code,
        description=draft.item.description,
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
    AfterSalesLog.objects.create(
        after_sales=claim,
        type=claim.type,
        command="apply",
        to_version=1,
        to_status=Status.WAIT_AUDIT,
        actor_kind=by.kind,
        actor_id=by.id,
        reason=claim.reason_code,
        evidence={"ordinals": ordinals, "goods_fen": draft.applied_goods_fen, "freight_fen": draft.applied_freight_fen},
        created_at=now,
    )
    if draft.applied_goods_fen:
        hold_commission(
            merchant_id=merchant.pk,
            order_no=order.order_no,
            line_no=claim.line_no,
            after_sales_no=claim.after_sales_no,
            goods_fen=draft.applied_goods_fen,
            now=now,
        )
    outbox.append(
        name="after_sales.applied",
        merchant_id=merchant.pk,
        subject=claim.after_sales_no,
        payload={"after_sales_no": claim.after_sales_no, "order_no": order.order_no, "type": int(claim.type)},
        now=now,
    )
    return AppliedItem(
        after_sales_no=claim.after_sales_no,
        line_no=claim.line_no,
        type=int(claim.type),
        qty=claim.qty,
        ordinals=ordinals,
        status=str(claim.status),
        version=1,
        liability=str(draft.liability),
        goods_fen=draft.applied_goods_fen,
        freight_fen=draft.applied_freight_fen,
        due_at=claim.due_at,
    )


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
