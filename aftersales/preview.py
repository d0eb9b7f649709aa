"""What an application would pay, with every share named, by the rules of the application; it moves nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from aftersales.claims import settings_of
from aftersales.commands.compare_shadow import compare_shadow
from aftersales.drafts import Draft, Item, Terms, draft_claims, facts_of, shares_of, window_end
from aftersales.models import GoodsState, Hold, Liability
from aftersales.reasons import freight_is_refundable
from kernel.errors import NotFound
from ledgers.shares import points_of_units
from orders.models import Order


@dataclass(frozen=True)
class PreviewUnit:
    ordinal: int
    worth_fen: int
    earlier_fen: int
    goods_fen: int
    freight_fen: int


@dataclass(frozen=True)
class PreviewItem:
    """One line of the answer. `line` holds the shares as the order froze them, for all its units."""

    line_no: int
    type: int
    qty: int
    goods_state: str
    keeps_units: bool
    liability: str
    freight_refundable: bool
    goods_fen: int
    freight_fen: int
    refund_fen: int
    refund_if_merchant_liable_fen: int
    refund_if_buyer_liable_fen: int
    points_back: int
    apply_until: datetime | None
    algorithm: str
    line: dict[str, int]
    units: list[PreviewUnit] = field(default_factory=list)


@dataclass(frozen=True)
class Preview:
    order_no: str
    user_id: str
    terms_version: str
    refund_fen: int
    items: list[PreviewItem] = field(default_factory=list)


def preview_refund(*, merchant_id: UUID, order_no: str, user_id: str, items: Sequence[Item], now: datetime) -> Preview:
    """The breakdown both sides see, in fen. Raises what an application would raise."""
    order = (
        Order.objects.select_related("merchant")
        .filter(merchant_id=merchant_id, order_no=order_no, user_id=user_id)
        .first()
    )
    if order is None:
        raise NotFound(order_no=order_no)
    window_days = order.merchant.return_window_days
    settings = settings_of(order.merchant)
    drafts = draft_claims(
        order=order,
        facts=facts_of(order.lines.order_by("line_no")),
        items=items,
        terms=Terms(window_days, settings.algorithm),
        by_system=False,
        now=now,
    )
    compare_shadow(settings=settings, order_no=order_no, drafts=drafts, step="preview", now=now)
    shown = [_item(draft, window_days=window_days) for draft in drafts]
    return Preview(
        order_no=order_no,
        user_id=user_id,
        terms_version=order.terms_version,
        refund_fen=sum(item.refund_fen for item in shown),
        items=shown,
    )


def _item(draft: Draft, *, window_days: int) -> PreviewItem:
    line, goods_fen = draft.line, draft.applied_goods_fen
    unshipped = draft.goods_state == GoodsState.UNSHIPPED

    def total_if(liability: str) -> int:
        refundable = draft.hold == Hold.CONSUMES and freight_is_refundable(unshipped=unshipped, liability=liability)
        return goods_fen + (draft.entitlement.freight_fen if refundable else 0)

    consumes = draft.hold == Hold.CONSUMES
    return PreviewItem(
        line_no=line.line_no,
        type=draft.item.type,
        qty=draft.item.qty,
        goods_state=str(draft.goods_state),
        keeps_units=not consumes,
        liability=str(draft.liability),
        freight_refundable=consumes and freight_is_refundable(unshipped=unshipped, liability=draft.liability),
        goods_fen=goods_fen,
        freight_fen=draft.applied_freight_fen,
        refund_fen=goods_fen + draft.applied_freight_fen,
        refund_if_merchant_liable_fen=total_if(Liability.MERCHANT),
        refund_if_buyer_liable_fen=total_if(Liability.BUYER),
        points_back=points_of_units(line.points_used, line.qty, [unit.ordinal for unit in draft.units])
        if consumes
        else 0,
        apply_until=window_end(line, window_days=window_days),
        algorithm=draft.algorithm,
        line=shares_of(line),
        units=[
            PreviewUnit(
                ordinal=unit.ordinal,
                worth_fen=unit.worth_fen,
                earlier_fen=unit.earlier_fen,
                goods_fen=unit.goods_fen,
                freight_fen=unit.freight_fen,
            )
            for unit in draft.units
        ],
    )
