"""What an application would become: which ordinals, how much, and why not. Preview and apply both read it here."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from django.utils.translation import gettext_lazy as _

from aftersales.algorithms import LIVE
from aftersales.amounts import Entitlement, FrozenLine, UnitAmount, goods_entitlement, lower_to
from aftersales.models import AfterSalesUnit, ArbitrationUnit, GoodsState, Hold, Liability, Status, Type
from aftersales.reasons import REASONS, SYSTEM_REASONS, freight_is_refundable
from kernel.errors import InvalidInput, NotFound, Refusal
from orders.models import Order, OrderLine


class OrderNotPaid(Refusal):
    code = "ORDER_NOT_PAID"
    message = _("Only a paid order has after-sales.")


class NoSuchUnits(Refusal):
    code = "UNITS_NOT_AVAILABLE"
    status = 422
    message = _("The line has not that many units left for this kind of claim.")


class WindowOver(Refusal):
    code = "WINDOW_OVER"
    status = 422
    message = _("The time to apply is over; only arbitration is left.")


class TypeDoesNotFit(Refusal):
    code = "TYPE_DOES_NOT_FIT"
    status = 422
    message = _("This kind of claim does not fit the state of the goods or the reason.")


class AboveEntitlement(Refusal):
    code = "REFUND_EXCEEDS_ENTITLEMENT"
    status = 422
    message = _("The amount is more than what is left of these units.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What an exchange shall give instead; the price per unit in fen."""

    sku: str
    title: str
    unit_price_fen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One wish of one application. ``goods_fen`` only where the buyer asks for less than the units are worth."""

    line_no: int
    type: int
    qty: int
    reason_code: str
    goods_fen: int | None = None
    liability: str = ""
    description: str = ""
    replacement: Replacement | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """What the merchant's settings say about new claims."""

    window_days: int
    algorithm: str = LIVE


@dataclass(slots=True)
class LineFacts:
    """One line and what live claims have already done to its units."""

    line: OrderLine
    taken: set[int] = field(default_factory=set)
    protected: set[int] = field(default_factory=set)
    earlier_fen: dict[int, int] = field(default_factory=dict)
    algorithm: str = ""

    def frozen(self, algorithm: str) -> FrozenLine:
        """The line under the algorithm of its live claims, or under the merchant's when there is none."""
        return frozen_line(self.line, self.algorithm or algorithm)

    def free(self, *, shipped: bool) -> list[int]:
        """Ordinals no live claim holds, lowest first, among the shipped or the unshipped ones."""
        gone = set(self.line.shipped_ordinals)
        return [
            ordinal
            for ordinal in range(1, self.line.qty + 1)
            if ordinal not in self.taken and (ordinal in gone) == shipped
        ]

    def note(self, draft: "Draft") -> None:
        """Let the next item of the same application see this one."""
        self.taken.update(unit.ordinal for unit in draft.units)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A claim that passed every rule but is not written yet. All amounts in fen."""

    item: Item
    line: OrderLine
    hold: str
    goods_state: str
    liability: str
    entitlement: Entitlement
    units: tuple[UnitAmount, ...]
    protects_price: bool

    @property
    def applied_goods_fen(self) -> int:
        return sum(unit.goods_fen for unit in self.units)

    @property
    def applied_freight_fen(self) -> int:
        return sum(unit.freight_fen for unit in self.units)

    @property
    def algorithm(self) -> str:
        return self.entitlement.algorithm


def frozen_line(line: OrderLine, algorithm: str = LIVE) -> FrozenLine:
    return FrozenLine(
        line_no=line.line_no,
        qty=line.qty,
        net_fen=line.net_fen,
        freight_share_fen=line.freight_share_fen,
        points_used=line.points_used,
        algorithm=algorithm,
    )


def facts_of(lines: Iterable[OrderLine]) -> dict[int, LineFacts]:
    """The lines by number with what live claims did to them; two queries whatever the number of lines."""
    by_line = {line.pk: LineFacts(line) for line in lines}
    for unit in AfterSalesUnit.objects.filter(line_id__in=by_line, live=True).select_related("after_sales"):
        facts = by_line[unit.line_id]
        facts.algorithm = unit.after_sales.algorithm
        if unit.hold == Hold.CONSUMES or unit.is_open:
            facts.taken.add(unit.ordinal)
        if unit.hold == Hold.DEDUCTS:
            facts.earlier_fen[unit.ordinal] = facts.earlier_fen.get(unit.ordinal, 0) + unit.goods_fen
        if unit.protects_price:
            facts.protected.add(unit.ordinal)
    for held in ArbitrationUnit.objects.filter(line_id__in=by_line, is_open=True):
        by_line[held.line_id].taken.add(held.ordinal)
    return {facts.line.line_no: facts for facts in by_line.values()}


def draft_claims(
    *,
    order: Order,
    facts: dict[int, LineFacts],
    items: Iterable[Item],
    terms: Terms,
    by_system: bool,
    now: datetime,
) -> list[Draft]:
    """Judge every item of an application, each seeing what the ones before it take.

    Raises InvalidInput, NotFound (line), OrderNotPaid, NoSuchUnits, WindowOver, TypeDoesNotFit, AboveEntitlement.
    """
    if order.status not in Order.PAID_OR_LATER:
        raise OrderNotPaid(order_no=order.order_no, status=order.status)
    drafts = []
    for item in items:
        if item.line_no not in facts:
            raise NotFound(order_no=order.order_no, line_no=item.line_no)
        draft = draft_claim(facts=facts[item.line_no], item=item, terms=terms, by_system=by_system, now=now)
        facts[item.line_no].note(draft)
        drafts.append(draft)
    if not drafts:
        raise InvalidInput(items="empty")
    return drafts


def draft_claim(*, facts: LineFacts, item: Item, terms: Terms, by_system: bool, now: datetime) -> Draft:
    """Judge one item. The window and the buyers' list of reasons do not bind the system's own claims."""
    line = facts.line
    liability = _proposed_liability(item, by_system=by_system)
    if item.qty < 1 or item.type not in Type.values or (item.goods_fen is not None and item.goods_fen < 0):
        raise InvalidInput(line_no=item.line_no, qty=item.qty, type=item.type)
    goods_state, ordinals = _choose_units(facts, item)
    if not by_system:
        _check_window(line, goods_state, window_days=terms.window_days, now=now)
    if (item.replacement is not None) != (item.type == Type.EXCHANGE):
        raise InvalidInput(line_no=item.line_no, replacement="needed for an exchange, and only there")
    protects = item.type == Type.PRICE_PROTECTION
    if protects and item.goods_fen is None:
        raise InvalidInput(line_no=item.line_no, goods_fen="needed")
    moves_goods = item.type in (Type.REFUND_ONLY, Type.RETURN, Type.EXCHANGE)
    entitlement = goods_entitlement(
        line=facts.frozen(terms.algorithm),
        ordinals=ordinals,
        freight_refundable=moves_goods,
        earlier_fen=facts.earlier_fen,
    )
    goods_fen = entitlement.goods_fen if item.goods_fen is None else item.goods_fen
    if item.type == Type.RESHIP:
        goods_fen = 0
    if goods_fen > entitlement.goods_fen:
        raise AboveEntitlement(line_no=item.line_no, goods_fen=goods_fen, entitled_fen=entitlement.goods_fen)
    unshipped = goods_state == GoodsState.UNSHIPPED
    hold = hold_of(item.type, unshipped=unshipped, whole=goods_fen == entitlement.goods_fen)
    refundable = hold == Hold.CONSUMES and freight_is_refundable(unshipped=unshipped, liability=liability)
    return Draft(
        item=item,
        line=line,
        hold=hold,
        goods_state=goods_state,
        liability=liability,
        entitlement=entitlement,
        units=lower_to(
            units=entitlement.units,
            goods_fen=goods_fen,
            freight_fen=entitlement.freight_fen if refundable else 0,
        ),
        protects_price=protects,
    )


def hold_of(kind: int, *, unshipped: bool, whole: bool) -> Hold:
    """What a claim does to its units. Goods that stay with the buyer at a part of their worth are compensation."""
    if kind == Type.RESHIP:
        return Hold.BORROWS
    if kind == Type.PRICE_PROTECTION or (kind == Type.REFUND_ONLY and not unshipped and not whole):
        return Hold.DEDUCTS
    return Hold.CONSUMES


def _proposed_liability(item: Item, *, by_system: bool) -> str:
    reason = REASONS.get(item.reason_code)
    if reason is None or (item.reason_code in SYSTEM_REASONS and not by_system):
        raise InvalidInput(line_no=item.line_no, reason_code=item.reason_code)
    if item.type not in reason.types:
        raise TypeDoesNotFit(line_no=item.line_no, type=item.type, reason_code=item.reason_code)
    if item.liability and item.liability not in Liability.values:
        raise InvalidInput(line_no=item.line_no, liability=item.liability)
    return item.liability or reason.liability


def _choose_units(facts: LineFacts, item: Item) -> tuple[GoodsState, list[int]]:
    """Where the goods are decides which ordinals a claim can take, always the lowest free ones."""
    unshipped, shipped = facts.free(shipped=False), facts.free(shipped=True)
    here = GoodsState.SIGNED if facts.line.signed_at else GoodsState.IN_TRANSIT
    if item.type == Type.REFUND_ONLY:
        state, pool = (GoodsState.UNSHIPPED, unshipped) if unshipped else (here, shipped)
    elif item.type == Type.PRICE_PROTECTION:
        pool = sorted(set(unshipped + shipped) - facts.protected)
        state = here if shipped else GoodsState.UNSHIPPED
    else:
        state, pool = here, shipped
        if not facts.line.shipped_ordinals:
            raise TypeDoesNotFit(line_no=item.line_no, type=item.type, goods=GoodsState.UNSHIPPED)
    if len(pool) < item.qty:
        raise NoSuchUnits(line_no=item.line_no, qty=item.qty, unshipped=len(unshipped), shipped=len(shipped))
    return state, pool[: item.qty]


def _check_window(line: OrderLine, state: GoodsState, *, window_days: int, now: datetime) -> None:
    ends_at = window_end(line, window_days=window_days)
    if state == GoodsState.SIGNED and ends_at is not None and now > ends_at:
        raise WindowOver(line_no=line.line_no, ended_at=ends_at.isoformat())


def window_end(line: OrderLine, *, window_days: int) -> datetime | None:
    """Until when the buyer may apply for what was signed for; open while the goods are under way."""
    return line.signed_at + timedelta(days=window_days) if line.signed_at else None


def left_of_units(line: OrderLine, ordinals: Sequence[int]) -> tuple[UnitAmount, ...]:
    """Σ entitlement − paid, per ordinal: what a top-up may still pay for units, given back or not. In fen.

    Paid is every refund that is not known dead; a completed exchange paid nothing.
    """
    goods: dict[int, int] = {}
    freight: dict[int, int] = {}
    algorithm = LIVE
    for unit in (
        AfterSalesUnit.objects.filter(
            line=line, live=True, ordinal__in=ordinals, after_sales__refunding_at__isnull=False
        )
        .exclude(after_sales__status__in=(Status.REJECTED, Status.CANCELED))
        .select_related("after_sales")
    ):
        algorithm = unit.after_sales.algorithm
        goods[unit.ordinal] = goods.get(unit.ordinal, 0) + unit.goods_fen
        freight[unit.ordinal] = freight.get(unit.ordinal, 0) + unit.freight_fen
    full = goods_entitlement(
        line=frozen_line(line, algorithm), ordinals=ordinals, freight_refundable=True, earlier_fen=goods
    )
    return tuple(replace(unit, freight_fen=unit.freight_fen - freight.get(unit.ordinal, 0)) for unit in full.units)


def is_wholly_refunded(lines: Collection[OrderLine]) -> bool:
    """By quantity, over any number of claims: every ordinal of every line was given back."""
    return all(len(set(line.refunded_ordinals)) == line.qty for line in lines)


def shares_of(line: OrderLine) -> dict[str, int]:
    """Every share the order froze on a line, in fen, from the list price down to what was paid."""
    return {
        "unit_price_fen": line.unit_price_fen,
        "qty": line.qty,
        "line_discount_fen": line.line_discount_fen,
        "base_fen": line.base_fen,
        "coupon_share_fen": line.coupon_share_fen,
        "subsidy_share_fen": line.subsidy_share_fen,
        "points_share_fen": line.points_share_fen,
        "net_fen": line.net_fen,
        "freight_share_fen": line.freight_share_fen,
    }
