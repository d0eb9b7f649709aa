"""How every hot command moves a coupon: the conditional statement first, questions only when it did not match."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.db import IntegrityError, connection

from coupons.models import UserCoupon
from coupons.refusals import Attempt, CouponRefused, KeyReused, VersionConflict, key_reused, read_coupon
from kernel import idempotency, numbers
from kernel.errors import IdempotencyKeyReused
from kernel.statemachine import Edge, advance
from kernel.transactions import unit_of_work

T = TypeVar("T")

TRIES = 3
"""A coupon that looks movable after a miss was moved by someone else in between: try again, but not for ever."""


def move(
    *,
    edge: Edge,
    merchant_id: UUID,
    attempt: Attempt,
    params: Mapping[str, Any],
    result: type[T],
    refusal: Callable[[UserCoupon], CouponRefused | T | None],
    now: datetime,
) -> dict[str, Any] | T:
    """The columns the edge returns, or the first result of a replay (marked so); joins the caller's transaction.

    `refusal` says why the coupon as it is now was not moved: a refusal (raised), a result that the command had
    before, or None when nothing stands against it. Adds to `params` the business key, the ids and the actor.
    """
    if merchant_id != attempt.key.merchant_id:
        raise ValueError("a business key belongs to the merchant of its command")
    values = {
        **params,
        **attempt.key.params(),
        "order_no": attempt.order_no,
        "operation_id": numbers.uuid7(),
        "actor": attempt.actor,
        "now": now,
    }
    if attempt.expected_version is not None:
        values["expected_version"] = attempt.expected_version
    if connection.in_atomic_block:
        with unit_of_work(now=now):
            return _find_out(edge, _try_once(edge, attempt, values), attempt, values, result, refusal)
    # The usual case needs no transaction around it: the statement is one.
    row = _try_once(edge, attempt, values)
    if isinstance(row, dict):
        return row
    with unit_of_work(now=now):
        return _find_out(edge, row, attempt, values, result, refusal)


def _find_out(
    edge: Edge,
    row: dict[str, Any] | KeyReused | None,
    attempt: Attempt,
    values: dict[str, Any],
    result: type[T],
    refusal: Callable[[UserCoupon], CouponRefused | T | None],
) -> dict[str, Any] | T:
    """After a first try: the row it moved, the first result of a replay, or why it was refused."""
    for _try in range(TRIES):
        if isinstance(row, KeyReused):
            raise row
        if row is not None:
            return row
        replay = find_replay(attempt, result)
        if replay is not None:
            return replay
        coupon = read_coupon(attempt)
        found = refusal(coupon)
        if isinstance(found, CouponRefused):
            raise found
        if found is not None:
            return found
        row = _try_once(edge, attempt, values)
    raise VersionConflict(attempt, coupon)


def _try_once(edge: Edge, attempt: Attempt, values: dict[str, Any]) -> dict[str, Any] | KeyReused | None:
    """The statement. None: it matched nothing and wrote nothing."""
    try:
        return advance(edge, pk=attempt.coupon_id, params=values)
    except IntegrityError as error:
        if key_reused(error):
            return KeyReused(attempt)
        raise


def find_replay(attempt: Attempt, result: type[T]) -> T | None:
    """The first result of the attempt's key. Raises KeyReused when the key belongs to another request."""
    try:
        return idempotency.find(attempt.key, result)
    except IdempotencyKeyReused as error:
        raise KeyReused(attempt) from error


def begin(attempt: Attempt, result: type[T], *, now: datetime) -> T | None:
    """Claim the attempt's key for a command of several statements (idempotency.begin). Raises KeyReused."""
    try:
        return idempotency.begin(attempt.key, result, now=now)
    except IdempotencyKeyReused as error:
        raise KeyReused(attempt) from error


def finish(attempt: Attempt, result: Any) -> None:
    """Store the result under the key that `begin` claimed."""
    idempotency.finish(attempt.key, result)
