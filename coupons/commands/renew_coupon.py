"""Renew: the order that holds a coupon gets more time for it, as a new version with evidence of its own."""

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from coupons import leases
from coupons.commands.move import move
from coupons.ledger import LEASE_PROOF, NEXT_VERSION, operation
from coupons.models import CouponCommand, CouponLock, UserCoupon
from coupons.refusals import Attempt, refusal_of_lease
from kernel.errors import InvalidInput
from kernel.idempotency import BusinessKey
from kernel.statemachine import Edge, Emit, New, P, Touch, key_row


@dataclass(frozen=True)
class Renewed:
    """The same lease, now releasable from `expires_at` on."""

    coupon_id: UUID
    order_no: str
    lock_id: UUID
    status: str
    state_version: int
    expires_at: datetime
    replayed: bool = False


RENEW = Edge(
    UserCoupon,
    "renew",
    guards=LEASE_PROOF,
    changes={"state_version": NEXT_VERSION, "lease_expires_at": P("expires_at"), "updated_at": P("now")},
    writes=[
        operation(
            CouponCommand.RENEW,
            source="LOCKED",
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
        ),
        Touch(CouponLock, where={"id": New("lock_id"), "ended_by": None}, changes={"expires_at": P("expires_at")}),
    ],
    emit=Emit(
        "coupon.renewed",
        subject=New("id"),
        payload={
            "coupon_id": New("id"),
            "order_no": New("locked_order_no"),
            "lock_id": New("lock_id"),
            "state_version": New("state_version"),
        },
    ),
    returning=["state_version", "lock_id"],
)


def renew_coupon(
    *,
    merchant_id: UUID,
    coupon_id: UUID,
    order_no: str,
    lock_token: str,
    expected_version: int,
    expires_at: datetime,
    key: BusinessKey,
    now: datetime,
    actor: str = "system",
) -> Renewed:
    """LOCKED → LOCKED with a new `expires_at`; joins the caller's transaction, if any.

    Also after the old `expires_at`, as long as nobody released the lease. Raises NOT_FOUND, TOKEN_MISMATCH,
    NOT_OWNER, VERSION_CONFLICT, ALREADY_REDEEMED, ILLEGAL_TRANSITION, IDEMPOTENCY_KEY_REUSED, each leaving
    evidence, and InvalidInput when `expires_at` is not ahead.
    """
    if expires_at <= now:
        raise InvalidInput(expires_at="must be later than now")
    expires_at = expires_at.astimezone(UTC)
    attempt = Attempt(CouponCommand.RENEW, key, coupon_id, actor, order_no, expected_version)
    token_hash = leases.hash_token(lock_token)
    moved = move(
        edge=RENEW,
        merchant_id=merchant_id,
        attempt=attempt,
        params={"token_hash": token_hash, "expires_at": expires_at},
        result=Renewed,
        refusal=lambda coupon: refusal_of_lease(attempt, coupon, token_hash=token_hash),
        now=now,
    )
    if isinstance(moved, Renewed):
        return moved
    return Renewed(coupon_id, order_no, moved["lock_id"], "LOCKED", moved["state_version"], expires_at)
