"""Lock: an order takes a coupon under a lease of its own."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from coupons import leases
from coupons.commands.move import move
from coupons.ledger import NEXT_VERSION, NOW, operation
from coupons.models import CouponCommand, CouponLock, CouponStatus, UserCoupon
from coupons.refusals import (
    AlreadyRedeemed,
    Attempt,
    CouponExpired,
    CouponRefused,
    IllegalTransition,
    NotOwner,
    NotYetValid,
    VersionConflict,
)
from kernel.errors import InvalidInput
from kernel.idempotency import BusinessKey
from kernel.statemachine import Edge, Emit, Insert, New, P, Sql, key_row

LONGEST_LEASE_SECONDS = 30 * 86400


@dataclass(frozen=True)
class Locked:
    """The lease. The token is given out here and never stored: a replay makes it again."""

    coupon_id: UUID
    order_no: str
    lock_id: UUID
    status: str
    state_version: int
    expires_at: datetime
    lock_token: str = ""
    replayed: bool = False


class LeaseTimeInvalid(InvalidInput):
    """A lease of no length (a blank or zero setting) would never hold anything, so it is refused up front."""

    code = "LEASE_TIME_INVALID"
    message = _("A lease lasts at least one second and at most 30 days.")


def _edge(*, knows_version: bool) -> Edge:
    guards = {
        "merchant_id": P("key_merchant_id"),
        "user_id": P("user_id"),
        "validity": Sql(f"t.valid_from <= {NOW} AND t.valid_until > {NOW}"),
    }
    if knows_version:
        guards["state_version"] = P("expected_version")
    else:
        # Without a version the coupon may be free again when a replay arrives: the key itself has to stop it.
        guards["not a replay"] = Sql(
            "NOT EXISTS (SELECT 1 FROM idempotency_key k"
            " WHERE k.merchant_id = %(key_merchant_id)s::uuid AND k.key = %(key)s::text)"
        )
    return Edge(
        UserCoupon,
        "lock",
        guards=guards,
        changes={
            "state_version": NEXT_VERSION,
            "locked_order_no": P("order_no"),
            "lock_id": P("lock_id"),
            "lock_token_hash": P("token_hash"),
            "lease_expires_at": P("expires_at"),
            "updated_at": P("now"),
        },
        writes=[
            Insert(
                CouponLock,
                {
                    "id": New("lock_id"),
                    "merchant_id": New("merchant_id"),
                    "coupon": New("id"),
                    "order_no": New("locked_order_no"),
                    "acquired_version": New("state_version"),
                    "token_hash": New("lock_token_hash"),
                    "key_version": P("key_version"),
                    "locked_at": P("now"),
                    "expires_at": New("lease_expires_at"),
                },
            ),
            operation(
                CouponCommand.LOCK,
                source="AVAILABLE",
                order_no=New("locked_order_no"),
                lock_id=New("lock_id"),
                lease_expires_at=New("lease_expires_at"),
            ),
            key_row(
                coupon_id=New("id"),
                order_no=New("locked_order_no"),
                lock_id=New("lock_id"),
                status=New("status"),
                state_version=New("state_version"),
                expires_at=New("lease_expires_at"),
                lock_token="",
            ),
        ],
        emit=Emit(
            "coupon.locked",
            subject=New("id"),
            payload={
                "coupon_id": New("id"),
                "order_no": New("locked_order_no"),
                "lock_id": New("lock_id"),
                "state_version": New("state_version"),
            },
        ),
        returning=["state_version"],
    )


LOCK = _edge(knows_version=False)
LOCK_AT_VERSION = _edge(knows_version=True)


def lock_coupon(
    *,
    merchant_id: UUID,
    coupon_id: UUID,
    user_id: str,
    order_no: str,
    lease_seconds: int,
    key: BusinessKey,
    now: datetime,
    expected_version: int | None = None,
    actor: str = "system",
) -> Locked:
    """AVAILABLE → LOCKED for `order_no`, for `lease_seconds` seconds; joins the caller's transaction, if any.

    The lease stays the order's until an operation ends it: after its time it *may* be released, no more. Raises
    NOT_FOUND, NOT_OWNER, VERSION_CONFLICT, NOT_YET_VALID, COUPON_EXPIRED, ALREADY_REDEEMED, ILLEGAL_TRANSITION,
    IDEMPOTENCY_KEY_REUSED, each leaving evidence, and LeaseTimeInvalid.
    """
    if not 1 <= lease_seconds <= LONGEST_LEASE_SECONDS:
        raise LeaseTimeInvalid(lease_seconds=lease_seconds)
    attempt = Attempt(CouponCommand.LOCK, key, coupon_id, actor, order_no, expected_version)
    lock_id, key_version, token = leases.new_lease()
    expires_at = now + timedelta(seconds=lease_seconds)
    moved = move(
        edge=LOCK if expected_version is None else LOCK_AT_VERSION,
        merchant_id=merchant_id,
        attempt=attempt,
        params={
            "user_id": user_id,
            "lock_id": lock_id,
            "token_hash": leases.hash_token(token),
            "key_version": key_version,
            "expires_at": expires_at,
        },
        result=Locked,
        refusal=lambda coupon: _refusal(attempt, coupon, user_id=user_id, now=now),
        now=now,
    )
    if isinstance(moved, Locked):
        return replace(moved, lock_token=leases.token_for(moved.lock_id))
    return Locked(coupon_id, order_no, lock_id, "LOCKED", moved["state_version"], expires_at, token)


def _refusal(attempt: Attempt, coupon: UserCoupon, *, user_id: str, now: datetime) -> CouponRefused | None:
    """Why the lock did not take; None when nothing stands against it any more."""
    if coupon.user_id != user_id:
        return NotOwner(attempt, coupon)
    if attempt.expected_version is not None and attempt.expected_version != coupon.state_version:
        return VersionConflict(attempt, coupon)
    if coupon.status == CouponStatus.USED:
        return AlreadyRedeemed(attempt, coupon)
    if coupon.status == CouponStatus.EXPIRED or coupon.valid_until <= now:
        return CouponExpired(attempt, coupon, valid_until=coupon.valid_until.isoformat())
    if coupon.status != CouponStatus.AVAILABLE:
        return IllegalTransition(attempt, coupon)
    if coupon.valid_from > now:
        return NotYetValid(attempt, coupon, valid_from=coupon.valid_from.isoformat())
    return None
