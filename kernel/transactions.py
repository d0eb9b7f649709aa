"""The one way in which a command opens its transaction."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from django.db import IntegrityError, connection, transaction

from kernel.errors import Refusal, refusal_for_constraint


def is_outermost() -> bool:
    """True when no transaction of ours is open (the frame that a test case puts around itself is not ours)."""
    return all(getattr(block, "_from_testcase", False) for block in connection.atomic_blocks)


@contextmanager
def unit_of_work(*, now: datetime) -> Iterator[None]:
    """All or nothing. Outermost: a durable transaction; a violated constraint that has a registered refusal (also
    a deferred one, at COMMIT) leaves as that refusal; and what a refusal has to prove is written after the
    rollback, in a transaction of its own. Inside a caller's unit of work it joins that one, without a savepoint.
    """
    if not is_outermost():
        with transaction.atomic(savepoint=False):
            yield
        return
    try:
        with transaction.atomic(durable=True):
            yield
    except Refusal as refusal:
        leave_evidence(refusal, now=now)
        raise
    except IntegrityError as error:
        kind = refusal_for_constraint(constraint_of(error))
        if kind is None:
            raise
        said = kind()
        leave_evidence(said, now=now)
        raise said from error


def leave_evidence(refusal: Refusal, *, now: datetime) -> None:
    """Write a refusal's evidence in a transaction of its own; joins the caller's when there is one."""
    with transaction.atomic():
        refusal.leave_evidence(now=now)


def constraint_of(error: IntegrityError) -> str | None:
    """The name of the constraint that a database error names."""
    diagnosis = getattr(error.__cause__, "diag", None)
    return getattr(diagnosis, "constraint_name", None)
