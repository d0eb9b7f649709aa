"""The usual approval as one statement: the amount is what was applied for, nothing is lowered.

It takes the locks in the fixed order: the line with its guard, the claim with its log line, event and business key, the
payment with its refund request. Whatever is not usual (a lowered amount, another liability, zero, goods of an exchange,
a caller's transaction) and whatever the statement refuses goes the general way, which says why.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connection

from aftersales.actors import By
from aftersales.commands._start_refund import AMOUNTS
from aftersales.commands._transition import declare
from aftersales.models import GoodsState, Hold, Status
from kernel import numbers
from kernel.idempotency import BusinessKey
from kernel.statemachine import Carry, Json, New, P, Sql, StatementBroken, advance, key_row
from orders.commands.hold_units import touch_line
from payments.commands.request_refund import BY_THE_CHANNEL
from payments.models import Payment, RefundRequest

USUAL = f"""
s.id = a.line_id AND a.merchant_id = %(merchant_id)s::uuid AND a.after_sales_no = %(after_sales_no)s::text
AND a.version = %(expected_version)s::integer AND a.status = '{Status.WAIT_AUDIT}' AND a.type IN (1, 5)
AND NOT a.is_disputed AND %(liability)s::text IN ('', a.liability_proposed)
AND a.applied_goods_fen + a.applied_freight_fen > 0
AND NOT EXISTS (SELECT 1 FROM after_sales_exchange x WHERE x.replacement_line_id = a.line_id)
"""
STILL_HERE = f"""
CASE WHEN a.goods_state = '{GoodsState.UNSHIPPED}' AND a.hold = '{Hold.CONSUMES}'
THEN ARRAY(SELECT x.ordinal FROM after_sales_unit x WHERE x.after_sales_id = a.id AND x.live) ELSE '{{}}'::int[] END
"""
"""Units of an unshipped claim must not have left the house meanwhile."""

LINE = touch_line(
    beside="after_sales_order a",
    where={"usual": Sql(" ".join(USUAL.split()))},
    goods="a.applied_goods_fen",
    freight="a.applied_freight_fen",
    unshipped=" ".join(STILL_HERE.split()),
)
REFUND = Carry(
    BY_THE_CHANNEL,
    name="refunded",
    where=f"t.order_no = u.order_no AND t.kind = '{Payment.Kind.ORDER}'",
    bind={
        "merchant_id": "u.merchant_id",
        "owner_kind": f"'{RefundRequest.OwnerKind.AFTER_SALES}'",
        "owner_no": "u.after_sales_no",
        "amount_fen": "u.approved_goods_fen + u.approved_freight_fen",
        "reason": "u.reason_code",
        "number": "u.after_sales_no || '-0'",
    },
)
KEY = key_row(
    after_sales_no=New("after_sales_no"),
    status=New("status"),
    version=New("version"),
    goods_fen=New("approved_goods_fen"),
    freight_fen=New("approved_freight_fen"),
)
AS_APPLIED = declare(
    "approve_refund",
    event="after_sales.approved",
    by_number=True,
    changes={
        **{name: Sql(f"t.{name}") for name in ("entitled_goods_fen", "entitled_freight_fen", "hold")},
        **{name: AMOUNTS[name] for name in ("decided_at", "refunding_at")},
        "approved_goods_fen": Sql("t.applied_goods_fen"),
        "approved_freight_fen": Sql("t.applied_freight_fen"),
        "accepted_qty": Sql("t.qty"),
        "liability": Sql("t.liability_proposed"),
        "liability_reason": P("liability_reason"),
    },
    evidence=Json(
        {
            "goods_fen": New("approved_goods_fen"),
            "freight_fen": New("approved_freight_fen"),
            "liability": New("liability"),
        }
    ),
    writes=[LINE, KEY, REFUND],
    returning=["approved_goods_fen", "approved_freight_fen"],
)


def approve_as_applied(
    kind: type[Any],
    *,
    merchant_id: UUID,
    after_sales_no: str,
    expected_version: int,
    liability: str,
    liability_reason: str,
    by: By,
    key: BusinessKey,
    now: datetime,
) -> Any | None:
    """The result, or None when this approval is not the usual one or was refused (nothing was written then)."""
    if connection.in_atomic_block:
        return None  # a statement that breaks would take the caller's transaction with it
    params = {
        **key.params(),
        "request_id": numbers.uuid7(),
        "attempt_id": numbers.uuid7(),
        "merchant_id": merchant_id,
        "after_sales_no": after_sales_no,
        "expected_version": expected_version,
        "liability": liability,
        "liability_reason": liability_reason,
        "actor_kind": by.kind,
        "actor_id": by.id,
        "reason": "",
        "due_at": None,
        "now": now,
    }
    try:
        moved = advance(AS_APPLIED, params=params)
    except (StatementBroken, IntegrityError):
        return None
    if moved is None:
        return None
    return kind(
        after_sales_no=after_sales_no,
        status=moved["status"],
        version=moved["version"],
        goods_fen=moved["approved_goods_fen"],
        freight_fen=moved["approved_freight_fen"],
    )
