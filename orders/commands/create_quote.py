"""Quote: a price with every share named, under the number that the order will have; with a coupon, its lease."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from coupons.commands.lock_coupon import Locked, lock_coupon
from kernel import idempotency, numbers, results
from kernel.errors import Refusal, refuse_on_constraint
from kernel.idempotency import BusinessKey, business_key
from kernel.transactions import unit_of_work
from merchants.models import Merchant
from orders.advisory import lock_user
from orders.allocation import Allocation, Discounts, PricedLine, allocate
from orders.commands._release_quote import release_open_lease
from orders.coupon_price import CouponPrice, price_with_coupon
from orders.fingerprints import cart_fingerprint, content_hash
from orders.models import Order, Quote

MOST_LINES = 200


class QuoteRaced(Refusal):
    code = "QUOTE_RACED"
    message = _("Another quote of this user was made at the same moment. Ask again.")


class TooManyLines(Refusal):
    code = "TOO_MANY_LINES"
    status = 422
    message = _("An order has at least 1 and at most 200 lines.")


refuse_on_constraint("quote_lease_is_one_per_user", QuoteRaced)


@dataclass(frozen=True, kw_only=True)
class AskedLine:
    """One line of a cart as the mini-program's backend prices it, in fen."""

    sku: str
    title: str
    kind: str = "physical"
    unit_price_fen: int
    qty: int
    line_discount_fen: int = 0
    freight_share_fen: int | None = None
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class QuotedLine:
    """Every share of one line, in fen. `net_fen` + `freight_share_fen` is what the buyer pays for it."""

    line_no: int
    sku: str
    title: str
    kind: str
    unit_price_fen: int
    qty: int
    subtotal_fen: int
    line_discount_fen: int
    base_fen: int
    coupon_share_fen: int
    subsidy_share_fen: int
    points_share_fen: int
    points_used: int
    net_fen: int
    freight_share_fen: int
    attributes: dict[str, Any]


@dataclass(frozen=True)
class QuotedCoupon:
    """The coupon and its lease. Without a lease (`held_by_order_no`) the user's own pending order for the same cart
    holds the coupon and hands it over when it is replaced."""

    coupon_id: UUID
    discount_fen: int
    eligible_lines: list[int]
    lock_id: UUID | None
    state_version: int | None
    lease_expires_at: datetime | None
    held_by_order_no: str


@dataclass(frozen=True)
class Quoted:
    """The price, standing until `expires_at`. `goods_fen` − discounts + freight = `payable_fen`."""

    quote_id: UUID
    order_no: str
    user_id: str
    lines: list[QuotedLine]
    goods_fen: int
    line_discount_fen: int
    discount_fen: int
    subsidy_fen: int
    points_fen: int
    points_used: int
    freight_fen: int
    payable_fen: int
    coupon: QuotedCoupon | None
    algorithm_version: str
    expires_at: datetime
    replayed: bool = False


def create_quote(
    *,
    merchant_id: UUID,
    user_id: str,
    lines: Sequence[AskedLine],
    key: BusinessKey,
    now: datetime,
    coupon_id: UUID | None = None,
    freight_fen: int = 0,
    subsidy_fen: int = 0,
    points_fen: int = 0,
    points_used: int = 0,
    address: Mapping[str, Any] | None = None,
) -> Quoted:
    """Prices a cart for `merchant.lease_seconds`. A new quote takes the place of the user's own quote that holds a
    lease: that lease is released in the same transaction.

    Raises DiscountExceedsGoods, FreightSharesDoNotAddUp, TooManyLines, CouponNotApplicable, and what the coupon's
    lock raises (NotOwner, CouponExpired, AlreadyRedeemed, IllegalTransition: another order holds it, …).
    """
    if not 1 <= len(lines) <= MOST_LINES:
        raise TooManyLines(lines=len(lines))
    content = {
        "lines": [asdict(line) for line in lines],
        "coupon_id": str(coupon_id) if coupon_id else None,
        "freight_fen": freight_fen,
        "subsidy_fen": subsidy_fen,
        "points_fen": points_fen,
        "points_used": points_used,
        "address": dict(address or {}),
    }
    with unit_of_work(now=now):
        replay = idempotency.begin(key, Quoted, now=now)
        if replay is not None:
            return replay
        lock_user(merchant_id=merchant_id, user_id=user_id)
        merchant = Merchant.objects.get(id=merchant_id)
        release_open_lease(merchant_id=merchant_id, user_id=user_id, now=now)
        coupon = price_with_coupon(merchant_id=merchant_id, coupon_id=coupon_id, lines=lines) if coupon_id else None
        if coupon and coupon.exchange_sku:
            lines = [*lines, _free_line(coupon, lines)]
        allocation = allocate(
            lines=_priced(lines),
            discounts=Discounts(
                coupon_fen=coupon.discount_fen if coupon else 0,
                coupon_lines=coupon.eligible_lines if coupon else None,
                subsidy_fen=subsidy_fen,
                points_fen=points_fen,
                points_used=points_used,
            ),
            freight_fen=freight_fen,
            freight_policy=merchant.freight_policy,  # type: ignore[arg-type]
        )
        quoted = _store(
            merchant=merchant,
            user_id=user_id,
            lines=lines,
            content=content,
            allocation=allocation,
            coupon=coupon,
            now=now,
        )
        idempotency.finish(key, quoted)
        return quoted


def _free_line(coupon: CouponPrice, lines: Sequence[AskedLine]) -> AskedLine:
    """The line that an exchange coupon adds: one unit that costs nothing and takes no share the caller gave out."""
    given = any(line.freight_share_fen is not None for line in lines)
    return AskedLine(
        sku=coupon.exchange_sku,
        title=coupon.exchange_title or coupon.exchange_sku,
        unit_price_fen=0,
        qty=1,
        freight_share_fen=0 if given else None,
    )


def _priced(lines: Sequence[AskedLine]) -> list[PricedLine]:
    return [
        PricedLine(
            line_no=number,
            unit_price_fen=line.unit_price_fen,
            qty=line.qty,
            line_discount_fen=line.line_discount_fen,
            freight_share_fen=line.freight_share_fen,
        )
        for number, line in enumerate(lines, start=1)
    ]


def _store(
    *,
    merchant: Merchant,
    user_id: str,
    lines: Sequence[AskedLine],
    content: dict[str, Any],
    allocation: Allocation,
    coupon: CouponPrice | None,
    now: datetime,
) -> Quoted:
    """Number, lease, row. The lease comes before the row, so that a coupon that cannot be had leaves no quote."""
    quote_id, order_no = numbers.uuid7(), numbers.next_number("order")
    expires_at = now + timedelta(seconds=merchant.lease_seconds)
    fingerprint = cart_fingerprint(
        merchant_id=merchant.id,
        user_id=user_id,
        units=[(line.sku, line.qty) for line in lines],
        address=content["address"],
    )
    lease, held_by = None, ""
    if coupon is not None:
        held_by = _own_pending_order_with(coupon.coupon_id, merchant.id, user_id, fingerprint)
        if not held_by:
            lease = _lease(merchant, coupon, user_id=user_id, order_no=order_no, now=now)
    quoted = Quoted(
        quote_id=quote_id,
        order_no=order_no,
        user_id=user_id,
        lines=_quoted_lines(lines, allocation),
        goods_fen=allocation.goods_fen,
        line_discount_fen=allocation.line_discount_fen,
        discount_fen=allocation.coupon_fen,
        subsidy_fen=allocation.subsidy_fen,
        points_fen=allocation.points_fen,
        points_used=allocation.points_used,
        freight_fen=allocation.freight_fen,
        payable_fen=allocation.payable_fen,
        coupon=_quoted_coupon(coupon, lease, held_by),
        algorithm_version=allocation.algorithm_version,
        expires_at=expires_at,
    )
    Quote.objects.create(
        id=quote_id,
        merchant=merchant,
        order_no=order_no,
        user_id=user_id,
        content=content,
        content_hash=content_hash(content),
        fingerprint=fingerprint,
        breakdown=results.to_data(quoted),
        payable_fen=allocation.payable_fen,
        coupon_id=coupon.coupon_id if coupon else None,
        held_by_order_no=held_by,
        lock_id=lease.lock_id if lease else None,
        coupon_version=lease.state_version if lease else None,
        lease_held=lease is not None,
        expires_at=expires_at,
        created_at=now,
    )
    return quoted


def _own_pending_order_with(coupon_id: UUID, merchant_id: UUID, user_id: str, fingerprint: str) -> str:
    """The number of the user's pending order for the same cart that holds this coupon; "" when there is none."""
    found = Order.objects.filter(
        merchant_id=merchant_id,
        user_id=user_id,
        fingerprint=fingerprint,
        status=Order.Status.PENDING,
        coupon_id=coupon_id,
        coupon_state="leased",
    )
    return found.values_list("order_no", flat=True).first() or ""


def _lease(merchant: Merchant, coupon: CouponPrice, *, user_id: str, order_no: str, now: datetime) -> Locked:
    return lock_coupon(
        merchant_id=merchant.id,
        coupon_id=coupon.coupon_id,
        user_id=user_id,
        order_no=order_no,
        lease_seconds=merchant.lease_seconds,
        key=business_key(merchant_id=merchant.id, key=f"quote:{order_no}:lock", coupon_id=coupon.coupon_id),
        now=now,
        actor="orders.create_quote",
    )


def _quoted_lines(lines: Sequence[AskedLine], allocation: Allocation) -> list[QuotedLine]:
    return [
        QuotedLine(
            line_no=share.line_no,
            sku=line.sku,
            title=line.title,
            kind=line.kind,
            unit_price_fen=share.unit_price_fen,
            qty=share.qty,
            subtotal_fen=share.subtotal_fen,
            line_discount_fen=share.line_discount_fen,
            base_fen=share.base_fen,
            coupon_share_fen=share.coupon_share_fen,
            subsidy_share_fen=share.subsidy_share_fen,
            points_share_fen=share.points_share_fen,
            points_used=share.points_used,
            net_fen=share.net_fen,
            freight_share_fen=share.freight_share_fen,
            attributes=line.attributes,
        )
        for line, share in zip(lines, allocation.lines, strict=True)
    ]


def _quoted_coupon(coupon: CouponPrice | None, lease: Locked | None, held_by: str) -> QuotedCoupon | None:
    if coupon is None:
        return None
    return QuotedCoupon(
        coupon_id=coupon.coupon_id,
        discount_fen=coupon.discount_fen,
        eligible_lines=list(coupon.eligible_lines),
        lock_id=lease.lock_id if lease else None,
        state_version=lease.state_version if lease else None,
        lease_expires_at=lease.expires_at if lease else None,
        held_by_order_no=held_by,
    )
