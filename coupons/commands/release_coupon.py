"""Release: the order gives up the coupon it holds (closed, cancelled, quoted again, or the lease's time is over)."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from coupons import leases
from coupons.commands.move import move
from coupons.ledger import (
    AVAILABLE_OR_EXPIRED,
    END_LEASE,
    LEASE_PROOF,
    NEXT_VERSION,
    NO_LEASE,
    operation,
)
from coupons.models import CouponCommand, UserCoupon
from coupons.refusals import Attempt, refusal_of_lease
from kernel.idempotency import BusinessKey
from kernel.statemachine import Edge, Emit, New, P, key_row

RELEASE = Edge(
    UserCoupon,
    "release",
    guards=LEASE_PROOF,
    changes={
        "status": AVAILABLE_OR_EXPIRED,
        "state_version": NEXT_VERSION,
        **NO_LEASE,
        "updated_at": P("now"),
    },
    writes=[
        operation(
            CouponCommand.RELEASE,
            source="LOCKED",
            order_no=P("order_no"),
            lock_id=P("lock_id"),
            reason=P("reason"),
        ),
        END_LEASE,
        key_row(
            coupon_id=New("id"),
            order_no=P("order_no"),
            lock_id=P("lock_id"),
            status=New("status"),
            state_version=New("state_version"),
        ),
    ],
    emit=Emit(
        "coupon.released",
        subject=New("id"),
        payload={
            "coupon_id": New("id"),
            "order_no": P("order_no"),
            "status": New("status"),
            "state_version": New("state_version"),
        },
    ),
    returning=["status", "state_version"],
)


@dataclass(frozen=True)
class Released:
    """The coupon is nobody's: AVAILABLE, or EXPIRED when its own validity is over."""

    coupon_id: UUID
    order_no: str
    lock_id: UUID
    status: str
    state_version: int
    replayed: bool = False


def release_coupon(
    *,
    merchant_id: UUID,
    coupon_id: UUID,
    order_no: str,
    lock_token: str,
    expected_version: int,
    key: BusinessKey,
    now: datetime,
    actor: str = "system",
    reason: str = "",
) -> Released:
    """LOCKED → AVAILABLE, or EXPIRED once the coupon's own validity is over; joins the caller's transaction, if any.

    Raises NOT_FOUND, TOKEN_MISMATCH, NOT_OWNER, VERSION_CONFLICT, ALREADY_REDEEMED, ILLEGAL_TRANSITION,
    IDEMPOTENCY_KEY_REUSED, each leaving evidence.
    """
    attempt = Attempt(CouponCommand.RELEASE, key, coupon_id, actor, order_no, expected_version)
    token_hash = leases.hash_token(lock_token)
    lock_id = leases.lock_id_of(lock_token)
    moved = move(
        edge=RELEASE,
        merchant_id=merchant_id,
        attempt=attempt,
        params={"token_hash": token_hash, "lock_id": lock_id, "reason": reason},
        result=Released,
        refusal=lambda coupon: refusal_of_lease(attempt, coupon, token_hash=token_hash),
        now=now,
    )
    if isinstance(moved, Released):
        return moved
    return Released(coupon_id, order_no, lock_id, moved["status"], moved["state_version"])
