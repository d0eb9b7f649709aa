"""A person at the risk desk looks at a claim that hit a rule."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aftersales.actors import By
from aftersales.models import AfterSalesOrder, RiskReview
from aftersales.settlement import ReasonNeeded
from kernel import idempotency
from kernel.errors import IllegalTransition, NotFound
from kernel.idempotency import BusinessKey
from kernel.statemachine import Edge, Emit, New, P, Sql, advance
from kernel.transactions import unit_of_work


def _edge(method: str) -> Edge:
    return Edge(
        RiskReview,
        method,
        changes={
            "version": Sql("t.version + 1"),
            "decided_by": P("decided_by"),
            "reason": P("reason"),
            "decided_at": P("now"),
        },
        emit=Emit(
            "risk.decided",
            subject=P("after_sales_no"),
            payload={"after_sales_no": P("after_sales_no"), "state": New("state")},
            merchant_id=P("merchant_id", "uuid"),
        ),
        returning=["state", "version"],
    )


CLEAR, CONFIRM = _edge("clear"), _edge("confirm")


@dataclass(frozen=True)
class RiskDecided:
    after_sales_no: str
    state: str
    replayed: bool = False


def decide_risk(
    *, merchant_id: UUID, after_sales_no: str, clear: bool, reason: str, by: By, key: BusinessKey, now: datetime
) -> RiskDecided:
    """Cleared: timers and auto-approval take the claim again. Confirmed: only people decide it from now on.

    Raises NotFound, ReasonNeeded, IllegalTransition (decided already).
    """
    if not reason.strip():
        raise ReasonNeeded(after_sales_no=after_sales_no)
    with unit_of_work(now=now):
        done = idempotency.begin(key, RiskDecided, now=now)
        if done is not None:
            return done
        claim = AfterSalesOrder.objects.filter(merchant_id=merchant_id, after_sales_no=after_sales_no).first()
        if claim is None:
            raise NotFound(after_sales_no=after_sales_no)
        moved = advance(
            CLEAR if clear else CONFIRM,
            pk=claim.pk,
            params={
                "decided_by": by.id,
                "reason": reason[:400],
                "after_sales_no": after_sales_no,
                "merchant_id": merchant_id,
                "now": now,
            },
        )
        if moved is None:
            raise IllegalTransition(after_sales_no=after_sales_no)
        if clear:
            AfterSalesOrder.objects.filter(pk=claim.pk).update(held_for_review=False, updated_at=now)
        result = RiskDecided(after_sales_no=after_sales_no, state=str(moved["state"]))
        idempotency.finish(key, result)
        return result
