"""A buyer applies for one or several lines: one after-sales order each, all or none."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from aftersales.actors import SYSTEM, By
from aftersales.claims import settings_of
from aftersales.commands._check_risk import check_risk
from aftersales.commands._write_claim import AppliedItem, told, write_claim
from aftersales.commands.approve_after_sales import approve_after_sales
from aftersales.commands.compare_shadow import compare_shadow
from aftersales.drafts import Item, Terms, draft_claims, facts_of
from aftersales.models import Actor, AfterSalesOrder, AfterSalesSettings, GoodsState, Type
from aftersales.risk import Application
from kernel import idempotency, numbers
from kernel.errors import NotFound
from kernel.idempotency import BusinessKey, business_key
from kernel.transactions import unit_of_work
from orders.models import Order, OrderLine


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
    application: Application = Application(),  # noqa: B008 (frozen, and it means: nothing was told)
) -> Applied:
    """Write the claims, put their units under hold, start the audit's clock, let the risk rules look.

    A small unshipped refund that hits no rule is approved in the same transaction, if the merchant set it so. Raises
    NotFound (order, line), and every refusal of aftersales.drafts: OrderNotPaid, NoSuchUnits, WindowOver,
    TypeDoesNotFit, AboveEntitlement, InvalidInput.
    """
    by = by or By(Actor.BUYER, user_id)
    with unit_of_work(now=now):
        done = idempotency.begin(key, Applied, now=now)
        if done is not None:
            return done
        order = (
            Order.objects.select_related("merchant")
            .filter(merchant_id=merchant_id, order_no=order_no, user_id=user_id)
            .first()
        )
        if order is None:
            raise NotFound(order_no=order_no)
        settings = settings_of(order.merchant)
        line_nos = {item.line_no for item in items}
        lines = OrderLine.objects.select_for_update().filter(order=order, line_no__in=line_nos).order_by("line_no")
        drafts = draft_claims(
            order=order,
            facts=facts_of(lines),
            items=items,
            terms=Terms(order.merchant.return_window_days, settings.algorithm),
            by_system=origin != "buyer",
            now=now,
        )
        batch_id = numbers.uuid7()
        claims = [
            write_claim(
                draft,
                order=order,
                merchant=order.merchant,
                batch_id=batch_id,
                origin=origin,
                by=by,
                device_hash=application.device_hash,
                now=now,
            )
            for draft in drafts
        ]
        compare_shadow(settings=settings, order_no=order_no, drafts=drafts, step="apply", now=now)
        if origin == "buyer":
            claims = [_first_look(claim, settings, application, now=now) for claim in claims]
        result = Applied(
            order_no=order_no,
            user_id=user_id,
            refund_fen=sum(claim.applied_total_fen for claim in claims),
            after_sales=[told(claim) for claim in claims],
        )
        idempotency.finish(key, result)
        return result


def _first_look(
    claim: AfterSalesOrder, settings: AfterSalesSettings, application: Application, *, now: datetime
) -> AfterSalesOrder:
    """Held for the risk desk, or approved in seconds where the merchant allows that much for unshipped goods."""
    held = check_risk(claim, application, now=now)
    limit = settings.instant_refund_up_to_fen
    unshipped = claim.type == Type.REFUND_ONLY and claim.goods_state == GoodsState.UNSHIPPED
    if not held and unshipped and limit is not None and claim.applied_total_fen <= limit:
        approve_after_sales(
            merchant_id=claim.merchant_id,
            after_sales_no=claim.after_sales_no,
            expected_version=claim.version,
            by=SYSTEM,
            key=business_key(merchant_id=claim.merchant_id, key=f"instant:{claim.after_sales_no}"),
            now=now,
        )
        return AfterSalesOrder.objects.get(pk=claim.pk)
    return claim
