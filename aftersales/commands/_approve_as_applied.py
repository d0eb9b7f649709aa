"""The usual approval in as few statements as it has writes: the amount is what was applied for, nothing is lowered.

One read, the line's guard, the claim with its log line, event and business key, the payment with its refund request.
Whatever is not usual (a lowered amount, another liability, zero, goods of an exchange) goes the general way.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connection

from aftersales.actors import By
from aftersales.commands._start_refund import AMOUNTS
from aftersales.commands._transition import blaming_the_state, declare, why_not
from aftersales.models import Hold, Status
from kernel import idempotency, results
from kernel.errors import NotFound, Refusal
from kernel.idempotency import BusinessKey
from kernel.statemachine import KEY_ROW, P, Sql, advance
from kernel.transactions import constraint_of, is_outermost, unit_of_work
from orders.commands.hold_units import commit_line_refund
from payments.commands.request_refund import request_refund
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
    writes=[KEY_ROW],
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
    """The result, or None when this approval is not the usual one (nothing was written then).

    Raises NotFound, VersionConflict, IllegalTransition, InArbitration, RefundExceedsPaid, IdempotencyKeyReused.
    """
    facts = _read(merchant_id, after_sales_no)
    total_fen = facts["goods_fen"] + facts["freight_fen"]
    usual = (
        facts["type"] in (1, 5)
        and facts["status"] == Status.WAIT_AUDIT
        and liability in ("", facts["liability"])
        and facts["payment_id"] is not None
        and total_fen > 0
        and not facts["exchanged"]
    )
    if not usual:
        return None
    result = kind(
        after_sales_no=after_sales_no,
        status=str(Status.REFUNDING),
        version=expected_version + 1,
        goods_fen=facts["goods_fen"],
        freight_fen=facts["freight_fen"],
    )
    alone = is_outermost()
    try:
        with unit_of_work(now=now):
            _write(facts, result, expected_version, liability_reason, merchant_id=merchant_id, by=by, key=key, now=now)
    except (Refusal, IntegrityError) as error:
        if isinstance(error, IntegrityError) and constraint_of(error) != "idempotency_key_is_used_once":
            raise
        replay = idempotency.find(key, kind) if alone else None
        if replay is None:
            raise
        return replay
    return result


def _read(merchant_id: UUID, after_sales_no: str) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute(FACTS, [merchant_id, after_sales_no])
        row = cursor.fetchone()
    if row is None:
        raise NotFound(after_sales_no=after_sales_no)
    return dict(zip(COLUMNS, row, strict=True))


def _write(
    facts: dict[str, Any],
    result: Any,
    expected_version: int,
    liability_reason: str,
    *,
    merchant_id: UUID,
    by: By,
    key: BusinessKey,
    now: datetime,
) -> None:
    goods_fen, freight_fen = facts["goods_fen"], facts["freight_fen"]
    unshipped = facts["goods_state"] == "unshipped" and facts["hold"] == Hold.CONSUMES
    with blaming_the_state(AS_APPLIED, facts["id"], expected_version=expected_version):
        commit_line_refund(
            line_id=facts["line_id"],
            goods_fen=goods_fen,
            freight_fen=freight_fen,
            unshipped_ordinals=facts["ordinals"] if unshipped else (),
        )
    moved = advance(
        AS_APPLIED,
        pk=facts["id"],
        params={
            **key.params(),
            "result": results.to_data(result),
            "merchant_id": merchant_id,
            "expected_version": expected_version,
            "liability_reason": liability_reason,
            "actor_kind": by.kind,
            "actor_id": by.id,
            "reason": "",
            "evidence": {"goods_fen": goods_fen, "freight_fen": freight_fen, "liability": facts["liability"]},
            "due_at": None,
            "now": now,
        },
    )
    if moved is None:
        raise why_not(facts["id"], expected_version=expected_version)
    request_refund(
        merchant_id=merchant_id,
        payment_id=facts["payment_id"],
        owner_kind=RefundRequest.OwnerKind.AFTER_SALES,
        owner_no=result.after_sales_no,
        amount_fen=goods_fen + freight_fen,
        reason=facts["reason_code"],
        now=now,
    )
