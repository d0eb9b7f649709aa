"""The linked claim that pays what arbitration awarded, approved as it is made."""

from dataclasses import replace
from datetime import datetime

from django.utils.translation import gettext_lazy as _

from aftersales.actors import By
from aftersales.algorithms import LIVE
from aftersales.amounts import Entitlement, lower_to
from aftersales.commands._write_claim import write_claim
from aftersales.commands.approve_after_sales import approve_after_sales
from aftersales.drafts import Draft, Item, left_of_units
from aftersales.models import AfterSalesOrder, ArbitrationCase, GoodsState, Hold, Liability, Status, Type
from aftersales.settlement import Ask
from kernel import numbers
from kernel.errors import InvalidInput
from kernel.idempotency import business_key
from orders.models import Order


def award(
    case: ArbitrationCase, goods_fen: int, freight_fen: int, *, responsible: str, by: By, now: datetime
) -> AfterSalesOrder:
    """Joins decide_arbitration. Raises InvalidInput (freight for goods that stay with the buyer), RefundExceedsPaid."""
    order = Order.objects.select_related("merchant").get(pk=case.order_id)
    ordinals = list(case.units.order_by("ordinal").values_list("ordinal", flat=True))
    left = left_of_units(case.line, ordinals)
    shipped = set(ordinals) <= set(case.line.shipped_ordinals)
    hold = _hold(case, whole=goods_fen == sum(unit.goods_fen for unit in left), shipped=shipped)
    if freight_fen and hold == Hold.DEDUCTS:
        kept = _("No freight here: the buyer keeps the goods and gets a part of their worth.")
        raise InvalidInput(fields={"freight_fen": [kept]})
    if hold == Hold.DEDUCTS:
        left = tuple(replace(unit, freight_fen=0) for unit in left)
    here = GoodsState.SIGNED if case.line.signed_at else GoodsState.IN_TRANSIT
    draft = Draft(
        item=Item(line_no=case.line_no, type=Type.REFUND_ONLY, qty=len(ordinals), reason_code="arbitration"),
        line=case.line,
        hold=hold,
        goods_state=here if shipped else GoodsState.UNSHIPPED,
        liability=Liability.BUYER if responsible == Liability.BUYER and not freight_fen else Liability.MERCHANT,
        entitlement=Entitlement(units=left, algorithm=_algorithm_of(case)),
        units=lower_to(units=left, goods_fen=goods_fen, freight_fen=freight_fen),
        protects_price=False,
    )
    linked = write_claim(
        draft,
        order=order,
        merchant=order.merchant,
        batch_id=numbers.uuid7(),
        origin="arbitration",
        parent=case.after_sales,
        by=by,
        now=now,
    )
    approve_after_sales(
        merchant_id=order.merchant_id,
        after_sales_no=linked.after_sales_no,
        expected_version=1,
        ask=Ask(goods_fen=goods_fen, freight_fen=freight_fen, reduction_reason="arbitration"),
        by=by,
        key=business_key(merchant_id=order.merchant_id, key=f"{linked.after_sales_no}:approve"),
        now=now,
    )
    return AfterSalesOrder.objects.get(merchant_id=order.merchant_id, after_sales_no=linked.after_sales_no)


def _algorithm_of(case: ArbitrationCase) -> str:
    return case.after_sales.algorithm if case.after_sales else LIVE


def _hold(case: ArbitrationCase, *, whole: bool, shipped: bool) -> Hold:
    """Units that were refunded before are topped up; goods that are here, never left, or are paid in full are given
    back; what the buyer keeps at a part of its worth is compensation."""
    claim = case.after_sales
    if claim is not None and claim.status == Status.REFUND_SUCCESS and claim.hold != Hold.DEDUCTS:
        return Hold.TOPS_UP
    goods_are_here = claim is not None and hasattr(claim, "inspection")
    if whole or goods_are_here or not shipped:
        return Hold.CONSUMES
    return Hold.DEDUCTS
