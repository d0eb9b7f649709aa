"""Create: a quote becomes an order that waits for its payment; an order of 0 fen is paid at once."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from coupons import leases
from coupons.commands.lock_coupon import lock_coupon
from coupons.commands.renew_coupon import renew_coupon
from kernel import idempotency, numbers, outbox
from kernel.errors import NotFound, Refusal, refuse_on_constraint
from kernel.idempotency import BusinessKey, business_key
from kernel.statemachine import Edge, P, Sql, advance
from kernel.transactions import unit_of_work
from merchants.models import Merchant
from orders import tokens
from orders.actors import Actor, user
from orders.advisory import lock_user
from orders.commands._hold_points import spend_points_for
from orders.commands._hold_stock import reserve_stock_for
from orders.commands._release_quote import release_lease
from orders.commands.close_order import Ending, close_order
from orders.commands.confirm_paid import confirm_free
from orders.commands.open_anomaly import open_anomaly
from orders.models import (
    Anomaly,
    CouponState,
    Order,
    OrderCoupon,
    OrderLine,
    OrderStatusLog,
    PayMethod,
    Quote,
)

TRIES = 3
ASK_BEFORE_EXPIRY = timedelta(minutes=2)
"""A pending order is asked about at the channel this long before its time is over, and again when it is."""

USE_QUOTE = {
    name: Edge(
        Quote,
        name,
        guards={"merchant_id": P("merchant_id"), "time": Sql("t.expires_at > %(now)s::timestamptz")},
        changes={"lease_held": False},
        returning=["state"],
    )
    for name in ("order", "reuse")
}


class QuoteExpired(Refusal):
    code = "QUOTE_EXPIRED"
    message = _("The quote is no longer valid. Ask for a new one.")


class QuoteReplaced(Refusal):
    code = "QUOTE_REPLACED"
    message = _("The quote was replaced by a newer one of the same user. Use the newer one.")


class QuoteUsed(Refusal):
    code = "QUOTE_USED"
    message = _("An order was made from this quote already.")


class OrderAlreadyPaid(Refusal):
    code = "ORDER_ALREADY_PAID"
    message = _("The order for this was already paid.")


class PreviousOrderUndecided(Refusal):
    code = "PREVIOUS_ORDER_UNDECIDED"
    status = 503
    message = _("The previous order for this cart cannot be closed yet. Try again shortly.")


class OrderRaced(Refusal):
    code = "ORDER_RACED"
    message = _("Another order for the same cart was made at this moment. Look at it first.")


class PayMethodInvalid(Refusal):
    code = "PAY_METHOD_INVALID"
    status = 422
    message = _("This pay method does not fit the order.")


refuse_on_constraint("order_pending_is_one_per_cart", OrderRaced)


@dataclass(frozen=True)
class Ordered:
    """The order and its status token. The token is given out here and never stored: a replay makes it again.

    `reused`: the user already had a pending order for exactly this; it is the one that is told here.
    """

    order_no: str
    order_id: UUID
    user_id: str
    status: int
    version: int
    payable_fen: int
    pay_method: str
    pay_expires_at: datetime
    coupon_state: str
    reused: bool
    order_token: str = field(default="", metadata={"stored": False})
    replayed: bool = False


class _Standing(Exception):
    """Another pending order stands in the way: it has to go first, outside this transaction."""

    def __init__(self, order: Order) -> None:
        self.order = order


def create_order(*, merchant_id: UUID, quote_id: UUID, pay_method: str, key: BusinessKey, now: datetime) -> Ordered:
    """Quote → PENDING order (PAID for 0 fen) with its lines, coupon evidence, lease until the payment window's end
    and points and stock taken, in one transaction.

    A pending order of the same user and cart: same content and pay method → that one again (`reused`); otherwise it
    is closed as superseded first, which asks the channel. Raises NotFound, QuoteExpired, QuoteReplaced, QuoteUsed,
    OrderAlreadyPaid (the old one turned out to be paid), PreviousOrderUndecided, NotEnoughPoints, OutOfStock,
    PayMethodInvalid, and what the coupon's commands raise.
    """
    for _try in range(TRIES):
        try:
            return _create(merchant_id=merchant_id, quote_id=quote_id, pay_method=pay_method, key=key, now=now)
        except _Standing as standing:
            _clear_the_way(standing.order, now=now)
    raise OrderRaced(quote_id=str(quote_id))


def _create(*, merchant_id: UUID, quote_id: UUID, pay_method: str, key: BusinessKey, now: datetime) -> Ordered:
    with unit_of_work(now=now):
        replay = idempotency.begin(key, Ordered, now=now)
        if replay is not None:
            return with_token(replay)
        quote = Quote.objects.filter(id=quote_id, merchant_id=merchant_id).first()
        if quote is None:
            raise NotFound(quote_id=str(quote_id))
        pay_method = _pay_method(quote, pay_method)
        lock_user(merchant_id=merchant_id, user_id=quote.user_id)
        standing = Order.objects.select_for_update().filter(
            merchant_id=merchant_id,
            user_id=quote.user_id,
            fingerprint=quote.fingerprint,
            status=Order.Status.PENDING,
        )
        pending = standing.first()
        if pending is None:
            ordered = _make(quote, pay_method=pay_method, now=now)
        elif _same(pending, quote, pay_method) and pending.pay_expires_at > now:
            _use(quote, "reuse", now=now)
            release_lease(quote, now=now, reason="reused")
            ordered = _told(pending, reused=True)
        else:
            _require_open(quote, now=now)
            raise _Standing(pending)
        idempotency.finish(key, ordered)
        return ordered


def _clear_the_way(old: Order, *, now: datetime) -> None:
    """Close the pending order that stands in the way. Paid at the channel after all → it stays, and is told."""
    reason = Order.ClosedReason.SUPERSEDED if old.pay_expires_at > now else Order.ClosedReason.TIMEOUT
    ended = close_order(order_id=old.id, reason=reason, now=now, actor=user(old.user_id))
    if ended.status in Order.PAID_OR_LATER:
        raise OrderAlreadyPaid(order_no=old.order_no)
    if ended.ending == Ending.UNDECIDED:
        with unit_of_work(now=now):
            open_anomaly(
                merchant_id=old.merchant_id,
                kind=Anomaly.Kind.SUPERSEDED_GATEWAY_CLOSE_FAILED,
                order=old,
                facts={"while": "superseding"},
                evidence={"detail": ended.detail},
                outcome="stays_pending",
                now=now,
            )
        raise PreviousOrderUndecided(order_no=old.order_no, retry_after_seconds=10)


def _pay_method(quote: Quote, asked: str) -> str:
    if quote.payable_fen == 0:
        return PayMethod.NONE.value
    if asked not in PayMethod.values or asked == PayMethod.NONE:
        raise PayMethodInvalid(pay_method=asked)
    return asked


def _same(order: Order, quote: Quote, pay_method: str) -> bool:
    return (order.content_hash, order.pay_method, order.payable_fen) == (
        quote.content_hash,
        pay_method,
        quote.payable_fen,
    )


def _use(quote: Quote, method: str, *, now: datetime) -> None:
    if advance(USE_QUOTE[method], pk=quote.id, params={"merchant_id": quote.merchant_id, "now": now}) is None:
        _require_open(Quote.objects.get(id=quote.id), now=now)
        raise QuoteUsed(quote_id=str(quote.id))


def _require_open(quote: Quote, *, now: datetime) -> None:
    if quote.state == Quote.State.REPLACED:
        raise QuoteReplaced(quote_id=str(quote.id))
    if quote.state in (Quote.State.ORDERED, Quote.State.REUSED):
        raise QuoteUsed(quote_id=str(quote.id), order_no=quote.order_no)
    if quote.state == Quote.State.EXPIRED or quote.expires_at <= now:
        raise QuoteExpired(quote_id=str(quote.id), expired_at=quote.expires_at.isoformat())


def _make(quote: Quote, *, pay_method: str, now: datetime) -> Ordered:
    """The rows, in lock order: quote, order, coupon, stock."""
    _use(quote, "order", now=now)
    merchant = Merchant.objects.get(id=quote.merchant_id)
    expires_at = now + timedelta(seconds=merchant.payment_window_seconds)
    order = _insert_order(quote, pay_method=pay_method, expires_at=expires_at, now=now)
    actor = user(quote.user_id)
    _log_creation(order, actor=actor, now=now)
    _insert_lines(order, quote)
    if quote.coupon_id is not None:
        _bind_coupon(order, quote, expires_at=expires_at, now=now)
    outbox.append(
        name="order.created",
        merchant_id=order.merchant_id,
        subject=order.order_no,
        payload={"order_no": order.order_no, "order_id": str(order.id), "status": 0, "version": 1},
        now=now,
    )
    if order.payable_fen == 0:
        confirm_free(order=order, now=now, actor=actor)
    spend_points_for(order, now=now)
    reserve_stock_for(order, now=now)
    return _told(Order.objects.get(id=order.id), reused=False)


def _insert_order(quote: Quote, *, pay_method: str, expires_at: datetime, now: datetime) -> Order:
    order_id, key_version = numbers.uuid7(), tokens.current_key_version()
    token = tokens.make_token(order_id=order_id, token_version=1, key_version=key_version)
    price = quote.breakdown
    return Order.objects.create(
        id=order_id,
        merchant_id=quote.merchant_id,
        order_no=quote.order_no,
        user_id=quote.user_id,
        quote=quote,
        goods_fen=price["goods_fen"],
        discount_fen=price["discount_fen"],
        subsidy_fen=price["subsidy_fen"],
        points_fen=price["points_fen"],
        points_used=price["points_used"],
        freight_fen=price["freight_fen"],
        payable_fen=price["payable_fen"],
        pay_method=pay_method,
        pay_expires_at=expires_at,
        fingerprint=quote.fingerprint,
        content_hash=quote.content_hash,
        address=quote.content.get("address") or {},
        token_version=1,
        token_key_version=key_version,
        order_token_hash=numbers.sha256(token),
        coupon_id=quote.coupon_id,
        coupon_state=CouponState.LEASED if quote.coupon_id else CouponState.NONE,
        next_check_at=max(now, expires_at - ASK_BEFORE_EXPIRY),
        created_at=now,
    )


def _log_creation(order: Order, *, actor: Actor, now: datetime) -> None:
    OrderStatusLog.objects.create(
        order=order,
        command=OrderStatusLog.Command.CREATE,
        to_status=Order.Status.PENDING,
        to_version=1,
        actor_kind=actor.kind,
        actor=actor.name,
        evidence={"quote_id": str(order.quote_id), "payable_fen": order.payable_fen},
        at=now,
    )


def _insert_lines(order: Order, quote: Quote) -> None:
    OrderLine.objects.bulk_create(
        OrderLine(
            merchant_id=order.merchant_id,
            order=order,
            algorithm_version=quote.breakdown["algorithm_version"],
            **{name: line[name] for name in LINE_COLUMNS},
        )
        for line in quote.breakdown["lines"]
    )


LINE_COLUMNS = (
    "line_no",
    "sku",
    "title",
    "kind",
    "attributes",
    "unit_price_fen",
    "qty",
    "line_discount_fen",
    "base_fen",
    "coupon_share_fen",
    "subsidy_share_fen",
    "points_share_fen",
    "points_used",
    "net_fen",
    "freight_share_fen",
)


def _bind_coupon(order: Order, quote: Quote, *, expires_at: datetime, now: datetime) -> None:
    """Lengthen the quote's lease to the payment window, or take the coupon that the superseded order gave up."""
    assert quote.coupon_id is not None
    said: dict[str, Any] = quote.breakdown["coupon"]
    if quote.lock_id is not None and quote.coupon_version is not None:
        token = leases.token_for(quote.lock_id)
        lock_id = quote.lock_id
        version = renew_coupon(
            merchant_id=order.merchant_id,
            coupon_id=quote.coupon_id,
            order_no=order.order_no,
            lock_token=token,
            expected_version=quote.coupon_version,
            expires_at=expires_at,
            key=business_key(merchant_id=order.merchant_id, key=f"order:{order.order_no}:renew"),
            now=now,
            actor="orders.create_order",
        ).state_version
    else:
        locked = lock_coupon(
            merchant_id=order.merchant_id,
            coupon_id=quote.coupon_id,
            user_id=order.user_id,
            order_no=order.order_no,
            lease_seconds=int((expires_at - now).total_seconds()),
            key=business_key(merchant_id=order.merchant_id, key=f"order:{order.order_no}:lock"),
            now=now,
            actor="orders.create_order",
        )
        token, lock_id, version = locked.lock_token, locked.lock_id, locked.state_version
    OrderCoupon.objects.create(
        merchant_id=order.merchant_id,
        order=order,
        quote=quote,
        coupon_id=quote.coupon_id,
        lock_id=lock_id,
        lock_token_hash=leases.hash_token(token),
        coupon_version=version,
        discount_fen=said["discount_fen"],
        eligible_lines=said["eligible_lines"],
        lease_expires_at=expires_at,
        created_at=now,
    )


def _told(order: Order, *, reused: bool) -> Ordered:
    return with_token(
        Ordered(
            order_no=order.order_no,
            order_id=order.id,
            user_id=order.user_id,
            status=order.status,
            version=order.version,
            payable_fen=order.payable_fen,
            pay_method=order.pay_method,
            pay_expires_at=order.pay_expires_at,
            coupon_state=order.coupon_state,
            reused=reused,
        )
    )


def with_token(ordered: Ordered) -> Ordered:
    """The same result with its token made again from the server's key."""
    order = Order.objects.only("id", "token_version", "token_key_version").get(id=ordered.order_id)
    token = tokens.make_token(order_id=order.id, token_version=order.token_version, key_version=order.token_key_version)
    return replace(ordered, order_token=token)
