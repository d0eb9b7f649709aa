"""A linked claim that pays more for units which were given back already: approved as it is made."""

from datetime import datetime

from aftersales.actors import By
from aftersales.amounts import Entitlement, lower_to
from aftersales.claims import get_claim
from aftersales.commands._write_claim import write_claim
from aftersales.commands.approve_after_sales import approve_after_sales
from aftersales.drafts import AboveEntitlement, Draft, Item, left_of_units
from aftersales.models import AfterSalesOrder, Hold, Type
from kernel import numbers
from kernel.idempotency import business_key
from kernel.transactions import unit_of_work


def pay_difference(*, parent: AfterSalesOrder, goods_fen: int, reason_code: str, by: By, now: datetime) -> str:
    """At most what is left of the parent's ordinals (Σ entitlement − paid); returns the number of the linked claim.

    Joins the caller's transaction. Raises AboveEntitlement, RefundExceedsPaid.
    """
    with unit_of_work(now=now):
        ordinals = list(parent.units.filter(live=True).order_by("ordinal").values_list("ordinal", flat=True))
        units = left_of_units(parent.line, ordinals)
        entitlement = Entitlement(units=units, algorithm=parent.algorithm)
        if goods_fen > entitlement.goods_fen:
            raise AboveEntitlement(goods_fen=goods_fen, entitled_fen=entitlement.goods_fen)
        draft = Draft(
            item=Item(
                line_no=parent.line_no,
                type=Type.PRICE_PROTECTION,
                qty=len(ordinals),
                reason_code=reason_code,
                goods_fen=goods_fen,
            ),
            line=parent.line,
            hold=Hold.TOPS_UP,
            goods_state=parent.goods_state,
            liability=parent.liability or parent.liability_proposed,
            entitlement=entitlement,
            units=lower_to(units=units, goods_fen=goods_fen, freight_fen=0),
            protects_price=False,
        )
        linked = write_claim(
            draft,
            order=parent.order,
            merchant=parent.merchant,
            batch_id=numbers.uuid7(),
            origin="exchange",
            parent=parent,
            by=by,
            now=now,
        )
        approve_after_sales(
            merchant_id=parent.merchant_id,
            after_sales_no=linked.after_sales_no,
            expected_version=1,
            by=by,
            key=business_key(merchant_id=parent.merchant_id, key=f"{linked.after_sales_no}:approve"),
            now=now,
        )
        return get_claim(merchant_id=parent.merchant_id, after_sales_no=linked.after_sales_no).after_sales_no
