"""A party says something in an open arbitration case."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aftersales.actors import By
from aftersales.models import ArbitrationCase, ArbitrationStatement
from kernel import idempotency
from kernel.errors import IllegalTransition, InvalidInput, NotFound
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work


@dataclass(frozen=True)
class StatementAdded:
    statement_id: UUID
    case_id: UUID
    side: str
    replayed: bool = False


def add_statement(
    *,
    merchant_id: UUID,
    case_id: UUID,
    user_id: str | None = None,
    text: str,
    by: By,
    key: BusinessKey,
    now: datetime,
) -> StatementAdded:
    """For the buyer (`user_id`), the merchant or the platform. Raises NotFound, InvalidInput, IllegalTransition."""
    if not text.strip():
        raise InvalidInput(text="needed")
    with unit_of_work(now=now):
        done = idempotency.begin(key, StatementAdded, now=now)
        if done is not None:
            return done
        cases = ArbitrationCase.objects.select_for_update().filter(pk=case_id, merchant_id=merchant_id)
        case = (cases.filter(user_id=user_id) if user_id is not None else cases).first()
        if case is None:
            raise NotFound(case_id=str(case_id))
        if case.state != ArbitrationCase.State.OPEN:
            raise IllegalTransition(state=case.state)
        row = ArbitrationStatement.objects.create(case=case, side=by.kind, author=by.id, text=text, created_at=now)
        result = StatementAdded(row.pk, case.pk, str(by.kind))
        idempotency.finish(key, result)
        return result
