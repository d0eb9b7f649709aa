"""Expire: a coupon in the wallet whose validity is over."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from coupons.commands.move import move
from coupons.ledger import NEXT_VERSION, NOW, VERSION_PROOF, operation
from coupons.models import CouponCommand, UserCoupon
from coupons.refusals import Attempt, CouponRefused, IllegalTransition, refusal_of_version
from kernel.idempotency import BusinessKey
from kernel.statemachine import Edge, Emit, New, P, Sql, key_row

EXPIRE = Edge(
    UserCoupon,
    "expire",
    guards={**VERSION_PROOF, "validity is over": Sql(f"t.valid_until <= {NOW}")},
    changes={"state_version": NEXT_VERSION, "updated_at": P("now")},
    writes=[
        operation(CouponCommand.EXPIRE, source="AVAILABLE"),
        key_row(coupon_id=New("id"), status=New("status"), state_version=New("state_version")),
    ],
    emit=Emit(
        "coupon.expired",
        subject=New("id"),
        payload={"coupon_id": New("id"), "state_version": New("state_version")},
    ),
    returning=["state_version"],
)


@dataclass(frozen=True)
class Expired:
    """A coupon that can no longer be used."""

    coupon_id: UUID
    status: str
    state_version: int
    replayed: bool = False


def expire_coupon(
    *,
    merchant_id: UUID,
    coupon_id: UUID,
    expected_version: int,
    key: BusinessKey,
    now: datetime,
    actor: str = "system",
) -> Expired:
    """AVAILABLE → EXPIRED once `valid_until` has come; joins the caller's transaction, if any.

    Raises NOT_FOUND, VERSION_CONFLICT, ILLEGAL_TRANSITION (also when it is still valid), IDEMPOTENCY_KEY_REUSED,
    each leaving evidence.
    """
    attempt = Attempt(CouponCommand.EXPIRE, key, coupon_id, actor, "", expected_version)

    def refusal(coupon: UserCoupon) -> CouponRefused | None:
        found = refusal_of_version(attempt, coupon, sources=["AVAILABLE"])
        if found is None and coupon.valid_until > now:
            return IllegalTransition(attempt, coupon, valid_until=coupon.valid_until.isoformat())
        return found

    moved = move(
        edge=EXPIRE, merchant_id=merchant_id, attempt=attempt, params={}, result=Expired, refusal=refusal, now=now
    )
    if isinstance(moved, Expired):
        return moved
    return Expired(coupon_id, "EXPIRED", moved["state_version"])
