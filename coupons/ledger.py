"""What every edge of the coupon machine writes, said once: the ledger row, the key row, the end of a lease."""

from typing import Any

from coupons.models import CouponCommand, CouponLock, CouponOperation, CouponRedemption
from kernel.statemachine import Insert, New, P, Sql, Touch

NOW = "%(now)s::timestamptz"


def operation(command: CouponCommand, *, source: str, **values: Any) -> Insert:
    """The ledger row of a move out of `source`, computed from the coupon as the UPDATE left it."""
    return Insert(
        CouponOperation,
        {
            "id": P("operation_id"),
            "merchant_id": New("merchant_id"),
            "coupon": New("id"),
            "command": command,
            "from_version": Sql("u.state_version - 1"),
            "from_status": source,
            "to_version": New("state_version"),
            "to_status": New("status"),
            "actor": P("actor"),
            "business_key": P("key"),
            "at": P("now"),
            **values,
        },
    )


END_LEASE = Touch(CouponLock, where={"coupon": New("id"), "ended_by": None}, changes={"ended_by": P("operation_id")})

NO_LEASE = {"locked_order_no": None, "lock_id": None, "lock_token_hash": None, "lease_expires_at": None}

NEXT_VERSION = Sql("t.state_version + 1")

AVAILABLE_OR_EXPIRED = Sql(f"CASE WHEN t.valid_until > {NOW} THEN 'AVAILABLE' ELSE 'EXPIRED' END")
"""Where a coupon goes that is nobody's any more: back to its holder, unless its own validity is over."""

LEASE_PROOF = {
    "merchant_id": P("key_merchant_id"),
    "state_version": P("expected_version"),
    "locked_order_no": P("order_no"),
    "lock_token_hash": P("token_hash"),
}
"""What a command under a lease has to prove: order, token and the version it expects."""

END_REDEMPTION = Touch(
    CouponRedemption, where={"coupon": New("id"), "ended_by": None}, changes={"ended_by": P("operation_id")}
)

VERSION_PROOF = {"merchant_id": P("key_merchant_id"), "state_version": P("expected_version")}
"""What a command without a lease has to prove: the version it has seen."""
