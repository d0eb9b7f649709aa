"""Redeem: the order was paid, and the coupon it holds is used."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from coupons import leases
from coupons.commands.move import move
from coupons.ledger import END_LEASE, LEASE_PROOF, NEXT_VERSION, NO_LEASE, NOW, operation
from coupons.models import CouponCommand, CouponRedemption, CouponStatus, UserCoupon
from coupons.refusals import Attempt, CouponRefused, refusal_of_lease, token_matches
from kernel import numbers
from kernel.idempotency import BusinessKey
from kernel.statemachine import Edge, Emit, Insert, New, P, Sql, key_row

REDEEM = Edge(
    UserCoupon,
    "redeem",
    guards=LEASE_PROOF,
    changes={"state_version": NEXT_VERSION, **NO_LEASE, "updated_at": P("now")},
    writes=[
        Insert(
            CouponRedemption,
            {
                "id": P("redemption_id"),
                "merchant_id": New("merchant_id"),
                "coupon": New("id"),
                "order_no": P("order_no"),
                "payment_no": P("payment_no"),
                "lock_id": P("lock_id"),
                "redeemed_at": P("now"),
            },
        ),
        operation(
            CouponCommand.REDEEM,
            source="LOCKED",
            order_no=P("order_no"),
            lock_id=P("lock_id"),
            redemption_id=P("redemption_id"),
        ),
        END_LEASE,
        key_row(
            coupon_id=New("id"),
            order_no=P("order_no"),
            redemption_id=P("redemption_id"),
            payment_no=P("payment_no"),
            status=New("status"),
            state_version=New("state_version"),
            redeemed_at=Sql(f"to_jsonb({NOW})"),
        ),
    ],
    emit=Emit(
        "coupon.redeemed",
        subject=New("id"),
        payload={
            "coupon_id": New("id"),
            "order_no": P("order_no"),
            "redemption_id": P("redemption_id"),
            "state_version": New("state_version"),
        },
    ),
    returning=["state_version"],
)


@dataclass(frozen=True)
class Redeemed:
    """The one redemption in force of this coupon."""

    coupon_id: UUID
    order_no: str
    redemption_id: UUID
    payment_no: str
    status: str
    state_version: int
    redeemed_at: datetime
    replayed: bool = False


def redeem_coupon(
    *,
    merchant_id: UUID,
    coupon_id: UUID,
    order_no: str,
    lock_token: str,
    expected_version: int,
    payment_no: str,
    key: BusinessKey,
    now: datetime,
    actor: str = "system",
) -> Redeemed:
    """LOCKED → USED with one redemption; joins the caller's transaction, if any.

    Also after the lease's `expires_at` and after the coupon's own validity, as long as nobody released the lease.
    A second payment fact of the same order under the same lease returns the same redemption, `replayed`. Raises
    NOT_FOUND, TOKEN_MISMATCH, NOT_OWNER, VERSION_CONFLICT, ALREADY_REDEEMED, ILLEGAL_TRANSITION,
    IDEMPOTENCY_KEY_REUSED, each leaving evidence. What a conflict means (late redeem, refund of the order, a
    person) is the order coordinator's to decide: nothing here overwrites a newer lease.
    """
    attempt = Attempt(CouponCommand.REDEEM, key, coupon_id, actor, order_no, expected_version)
    token_hash = leases.hash_token(lock_token)
    redemption_id = numbers.uuid7()
    moved = move(
        edge=REDEEM,
        merchant_id=merchant_id,
        attempt=attempt,
        params={
            "token_hash": token_hash,
            "lock_id": leases.lock_id_of(lock_token),
            "redemption_id": redemption_id,
            "payment_no": payment_no,
        },
        result=Redeemed,
        refusal=lambda coupon: (
            _earlier_redemption(attempt, coupon, token_hash) or refusal_of_lease(attempt, coupon, token_hash=token_hash)
        ),
        now=now,
    )
    if isinstance(moved, Redeemed):
        return moved
    return Redeemed(coupon_id, order_no, redemption_id, payment_no, "USED", moved["state_version"], now)


def _earlier_redemption(attempt: Attempt, coupon: UserCoupon, token_hash: bytes) -> Redeemed | CouponRefused | None:
    """The redemption that this very order already has, when the token is that of the lease it was made under."""
    if coupon.status != CouponStatus.USED or not token_matches(coupon, token_hash):
        return None
    made = CouponRedemption.objects.filter(coupon=coupon, order_no=attempt.order_no, ended_by=None).first()
    if made is None:
        return None
    return Redeemed(
        coupon.pk,
        made.order_no,
        made.pk,
        made.payment_no,
        coupon.status,
        coupon.state_version,
        made.redeemed_at,
        replayed=True,
    )
