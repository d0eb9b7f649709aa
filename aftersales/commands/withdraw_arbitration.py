"""Whoever called the platform in takes it back."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aftersales.actors import By
from aftersales.commands.decide_arbitration import let_go, resume
from aftersales.models import FINAL, ArbitrationCase
from kernel import idempotency
from kernel.errors import IllegalTransition, NotFound
from kernel.idempotency import BusinessKey
from kernel.statemachine import Edge, Emit, New, P, Sql, advance
from kernel.transactions import unit_of_work
from orders.models import OrderLine

WITHDRAW = Edge(
    ArbitrationCase,
    "withdraw",
    guards={"opened_by": P("kind"), "opened_by_id": P("person")},
    changes={"version": Sql("t.version + 1"), "closed_at": P("now")},
    emit=Emit(
        "arbitration.withdrawn",
        subject=New("order_no"),
        payload={"case_id": New("id"), "order_no": New("order_no")},
    ),
    returning=["version"],
)


@dataclass(frozen=True)
class ArbitrationWithdrawn:
    case_id: UUID
    state: str
    version: int
    replayed: bool = False


def withdraw_arbitration(
    *, merchant_id: UUID, case_id: UUID, by: By, key: BusinessKey, now: datetime
) -> ArbitrationWithdrawn:
    """OPEN → WITHDRAWN by its opener; the claim goes on with the time it had left.

    Raises NotFound, IllegalTransition.
    """
    with unit_of_work(now=now):
        done = idempotency.begin(key, ArbitrationWithdrawn, now=now)
        if done is not None:
            return done
        case = ArbitrationCase.objects.select_related("after_sales").filter(pk=case_id, merchant_id=merchant_id).first()
        if case is None:
            raise NotFound(case_id=str(case_id))
        OrderLine.objects.select_for_update().get(pk=case.line_id)
        moved = advance(WITHDRAW, pk=case.pk, params={"kind": by.kind, "person": by.id, "now": now})
        if moved is None:
            raise IllegalTransition(state=ArbitrationCase.objects.get(pk=case.pk).state)
        let_go(case)
        if case.after_sales is not None and case.after_sales.status not in FINAL:
            resume(case.after_sales, now=now)
        result = ArbitrationWithdrawn(case.pk, str(ArbitrationCase.State.WITHDRAWN), int(moved["version"]))
        idempotency.finish(key, result)
        return result
