"""Put something that should not have happened into the queue of people: one row per fact, however often it comes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from kernel import numbers
from kernel.idempotency import request_hash
from kernel.outbox import as_stored
from kernel.transactions import unit_of_work
from orders.models import Order


@dataclass(frozen=True)
class AnomalyOpened:
    """`repeated`: the same fact was in the queue already; its counter went up."""

    anomaly_id: UUID
    kind: str
    repeated: bool


def open_anomaly(
    *,
    merchant_id: UUID,
    kind: str,
    facts: Mapping[str, Any],
    now: datetime,
    order: Order | None = None,
    order_no: str = "",
    out_trade_no: str = "",
    trade_no: str = "",
    outcome: str = "",
    evidence: Mapping[str, Any] | None = None,
) -> AnomalyOpened:
    """Joins the caller's transaction. `facts` say what makes this one fact (they become its key); `evidence` is what
    a person needs to see beside them; `outcome` is what the system did about it."""
    key = request_hash([order_no or (order.order_no if order else ""), out_trade_no, trade_no, facts])[:40]
    with unit_of_work(now=now), connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO anomaly AS a
                (id, merchant_id, kind, key, state, order_no, order_id, out_trade_no, trade_no, evidence, outcome,
                 seen, resolution, created_at, last_seen_at)
            VALUES (%(id)s, %(merchant)s, %(kind)s, %(key)s, 'OPEN', %(order_no)s, %(order)s, %(out_trade_no)s,
                    %(trade_no)s, %(evidence)s::jsonb, %(outcome)s, 1, '', %(now)s, %(now)s)
            ON CONFLICT (merchant_id, kind, key) DO UPDATE SET seen = a.seen + 1, last_seen_at = excluded.last_seen_at
            RETURNING id, seen
            """,
            {
                "id": numbers.uuid7(),
                "merchant": merchant_id,
                "kind": str(kind),
                "key": key,
                "order_no": order_no or (order.order_no if order else ""),
                "order": order.id if order else None,
                "out_trade_no": out_trade_no,
                "trade_no": trade_no,
                "evidence": as_stored({**facts, **(evidence or {})}),
                "outcome": outcome,
                "now": now,
            },
        )
        anomaly_id, seen = cursor.fetchone()
    return AnomalyOpened(anomaly_id, str(kind), seen > 1)
