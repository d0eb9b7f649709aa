"""What every move of an order carries with it: the next version, the status-log row, the event."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kernel.statemachine import Emit, Insert, New, P, Sql
from orders.actors import Actor
from orders.models import OrderStatusLog

NEXT_VERSION = Sql("t.version + 1")


def log_row(command: str, *, source: int) -> Insert:
    """The status-log row of a move, written by the statement that makes it. Parameters: `move_params`."""
    return Insert(
        OrderStatusLog,
        {
            "order": New("id"),
            "command": command,
            "from_status": source,
            "to_status": New("status"),
            "from_version": Sql("u.version - 1"),
            "to_version": New("version"),
            "actor_kind": P("actor_kind"),
            "actor": P("actor"),
            "reason": P("reason"),
            "evidence": P("evidence", "jsonb"),
            "at": P("now"),
        },
    )


def event(name: str, **payload: Any) -> Emit:
    """The outbox event of a move: enough for a consumer to look the order up and to drop regressions by version."""
    return Emit(
        name,
        subject=New("order_no"),
        payload={
            "order_no": New("order_no"),
            "order_id": New("id"),
            "status": New("status"),
            "version": New("version"),
            **payload,
        },
    )


def move_params(
    *, actor: Actor, now: datetime, reason: str = "", evidence: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The parameters that `log_row` and `event` need in an edge's statement."""
    return {
        "actor_kind": actor.kind,
        "actor": actor.name[:80],
        "reason": reason[:200],
        "evidence": dict(evidence or {}),
        "now": now,
    }
