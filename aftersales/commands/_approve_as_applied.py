"""The usual approval as one read and one statement: the amount is what was applied for, nothing is lowered.

The statement takes the locks in the fixed order: the line's guard, the claim with its log line, event and business
key, the payment with its refund request. Whatever is not usual (a lowered amount, another liability, zero, goods of
an exchange, a caller's transaction) and whatever the statement refuses goes the general way, which says why.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connection

from aftersales.actors import By
from aftersales.commands._start_refund import AMOUNTS
from aftersales.commands._transition import declare
from aftersales.models import GoodsState, Hold, Status
from kernel import results
from kernel.errors import NotFound
from kernel.idempotency import BusinessKey
from kernel.statemachine import KEY_ROW, P, Sql, StatementBroken, advance
from orders.commands.hold_units import LINE_REFUND
from payments.commands.request_refund import REFUND_OF_ORDER, refund_params
from payments.models import RefundRequest

AS_APPLIED = declare(
    "approve_refund",
    event="after_sales.approved",
    changes={
        **{name: Sql(f"t.{name}") for name in ("entitled_goods_fen", "entitled_freight_fen", "hold")},
        **{name: AMOUNTS[name] for name in ("decided_at", "refunding_at")},
        "approved_goods_fen": Sql("t.applied_goods_fen"),
        "approved_freight_fen": Sql("t.applied_freight_fen"),
        "accepted_qty": Sql("t.qty"),
        "liability": Sql("t.liability_proposed"),
        "liability_reason": P("liability_reason"),
    },
    writes=[LINE_REFUND, KEY_ROW, *REFUND_OF_ORDER],
)

FACTS = """
SELECT a.id, a.line_id, a.type, a.hold, a.status, a.goods_state, a.liability_proposed, a.applied_goods_fen,
       a.applied_freight_fen, a.reason_code,
       (SELECT p.id FROM payment p WHERE p.merchant_id = a.merchant_id AND p.order_no = a.order_no
            AND p.kind = 'order' AND p.status = 'PAID'),
       ARRAY(SELECT u.ordinal FROM after_sales_unit u WHERE u.after_sales_id = a.id AND u.live),
       EXISTS (SELECT 1 FROM after_sales_exchange x WHERE x.replacement_line_id = a.line_id)
FROM after_sales_order a WHERE a.merchant_id = %s AND a.after_sales_no = %s
"""
COLUMNS = (
    "id",
    "line_id",
    "type",
    "hold",
    "status",
    "goods_state",
    "liability",
    "goods_fen",
    "freight_fen",
    "reason_code",
    "payment_id",
    "ordinals",
    "exchanged",
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
    """The result, or None when this approval is not the usual one or was refused (nothing was written then).

    Raises NotFound.
    """
    if connection.in_atomic_block:
        return None  # a statement that fails would take the caller's transaction with it
    facts = _read(merchant_id, after_sales_no)
    goods_fen, freight_fen = facts["goods_fen"], facts["freight_fen"]
    usual = (
        facts["type"] in (1, 5)
        and facts["status"] == Status.WAIT_AUDIT
        and liability in ("", facts["liability"])
        and facts["payment_id"] is not None
        and goods_fen + freight_fen > 0
        and not facts["exchanged"]
    )
    if not usual:
        return None
    result = kind(
        after_sales_no=after_sales_no,
        status=str(Status.REFUNDING),
        version=expected_version + 1,
        goods_fen=goods_fen,
        freight_fen=freight_fen,
    )
    unshipped = facts["goods_state"] == GoodsState.UNSHIPPED and facts["hold"] == Hold.CONSUMES
    params = {
        **key.params(),
        **refund_params(
            merchant_id=merchant_id,
            owner_kind=RefundRequest.OwnerKind.AFTER_SALES,
            owner_no=after_sales_no,
            amount_fen=goods_fen + freight_fen,
            reason=facts["reason_code"],
            now=now,
        ),
        "payment_id": facts["payment_id"],
        "line_id": facts["line_id"],
        "goods_fen": goods_fen,
        "freight_fen": freight_fen,
        "unshipped": f"{{{','.join(map(str, facts['ordinals'] if unshipped else ()))}}}",
        "result": results.to_data(result),
        "expected_version": expected_version,
        "liability_reason": liability_reason,
        "actor_kind": by.kind,
        "actor_id": by.id,
        "reason": "",
        "evidence": {"goods_fen": goods_fen, "freight_fen": freight_fen, "liability": facts["liability"]},
        "due_at": None,
    }
    try:
        moved = advance(AS_APPLIED, pk=facts["id"], params=params)
    except (StatementBroken, IntegrityError):
        return None
    return None if moved is None else result


def _read(merchant_id: UUID, after_sales_no: str) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute(FACTS, [merchant_id, after_sales_no])
        row = cursor.fetchone()
    if row is None:
        raise NotFound(after_sales_no=after_sales_no)
    return dict(zip(COLUMNS, row, strict=True))
