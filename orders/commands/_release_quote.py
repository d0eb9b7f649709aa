"""Give up a quote that holds a coupon's lease: replaced by the user's next quote, or its time is over."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from coupons import leases
from coupons.commands.release_coupon import release_coupon
from coupons.models import CouponStatus, UserCoupon
from kernel.idempotency import business_key
from kernel.statemachine import Edge, P, Sql, advance
from kernel.transactions import unit_of_work
from orders.models import Quote

REPLACE = Edge(
    Quote,
    "replace",
    guards={"merchant_id": P("merchant_id")},
    changes={"lease_held": False},
    returning=["coupon_id", "lock_id"],
)
EXPIRE = Edge(
    Quote,
    "expire",
    guards={"merchant_id": P("merchant_id"), "time": Sql("t.expires_at <= %(now)s::timestamptz")},
    changes={"lease_held": False},
    returning=["coupon_id", "lock_id"],
)


@dataclass(frozen=True)
class QuoteGivenUp:
    """`released`: a lease was released with it."""

    quote_id: UUID
    state: str
    released: bool
    replayed: bool = False


def release_open_lease(*, merchant_id: UUID, user_id: str, now: datetime) -> QuoteGivenUp | None:
    """OPEN → REPLACED for the one quote of this user that holds a lease, if any, and the lease is released. Joins the
    caller's transaction, which holds the user (`advisory.lock_user`)."""
    quote = Quote.objects.filter(merchant_id=merchant_id, user_id=user_id, lease_held=True).first()
    if quote is None:
        return None
    with unit_of_work(now=now):
        if advance(REPLACE, pk=quote.id, params={"merchant_id": merchant_id}) is None:
            return None
        return QuoteGivenUp(quote.id, "REPLACED", release_lease(quote, now=now, reason="replaced"))


def expire_quote(*, quote_id: UUID, now: datetime) -> QuoteGivenUp:
    """OPEN → EXPIRED once its time is over, and its lease is released. A quote that is not due, or gone on, is left
    as it is (`replayed`)."""
    with unit_of_work(now=now):
        quote = Quote.objects.get(id=quote_id)
        if advance(EXPIRE, pk=quote_id, params={"merchant_id": quote.merchant_id, "now": now}) is None:
            return QuoteGivenUp(quote_id, quote.state, False, replayed=True)
        return QuoteGivenUp(quote_id, "EXPIRED", release_lease(quote, now=now, reason="expired"))


def release_lease(quote: Quote, *, now: datetime, reason: str) -> bool:
    """Release what a quote leased. False: it has no lease, or the coupon has moved on under another lease (the
    scanner was faster). The coupon's row is held from the look to the release, so it cannot move in between."""
    if not quote.lease_held or quote.coupon_id is None or quote.lock_id is None:
        return False
    coupon = UserCoupon.objects.select_for_update().filter(pk=quote.coupon_id).first()
    if coupon is None or coupon.status != CouponStatus.LOCKED or coupon.lock_id != quote.lock_id:
        return False
    release_coupon(
        merchant_id=quote.merchant_id,
        coupon_id=coupon.pk,
        order_no=quote.order_no,
        lock_token=leases.token_for(quote.lock_id),
        expected_version=coupon.state_version,
        key=business_key(merchant_id=quote.merchant_id, key=f"quote:{quote.order_no}:release"),
        now=now,
        actor="orders.release_quote",
        reason=reason,
    )
    return True
