"""Void: a person or a policy takes a coupon out of use for good."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from coupons.commands.move import find_replay, move
from coupons.ledger import NEXT_VERSION, VERSION_PROOF, operation
from coupons.models import CouponCommand, UserCoupon
from coupons.refusals import Attempt, read_coupon, refusal_of_version
from kernel.errors import InvalidInput
from kernel.idempotency import BusinessKey
from kernel.statemachine import Edge, Emit, New, P, key_row
from kernel.transactions import unit_of_work

SOURCES = ("AVAILABLE", "USED")


def _edge(source: str) -> Edge:
    return Edge(
        UserCoupon,
        "void",
        source=source,
        guards=VERSION_PROOF,
        changes={"state_version": NEXT_VERSION, "updated_at": P("now")},
        writes=[
            operation(CouponCommand.VOID, source=source, reason=P("reason"), decision=P("decision_id")),
            key_row(coupon_id=New("id"), status=New("status"), state_version=New("state_version")),
        ],
        emit=Emit(
            "coupon.voided",
            subject=New("id"),
            payload={"coupon_id": New("id"), "state_version": New("state_version"), "was": source},
        ),
        returning=["state_version"],
    )


VOID = {source: _edge(source) for source in SOURCES}


@dataclass(frozen=True)
class Voided:
    """A coupon that nobody can use. A redemption it had stays in force: the order did use it."""

    coupon_id: UUID
    status: str
    state_version: int
    replayed: bool = False


def void_coupon(
    *,
    merchant_id: UUID,
    coupon_id: UUID,
    expected_version: int,
    reason: str,
    actor: str,
    key: BusinessKey,
    now: datetime,
    decision_id: UUID | None = None,
) -> Voided:
    """AVAILABLE or USED → VOID by an operator (with a reason) or a return decision; joins the caller's transaction.

    Raises NOT_FOUND, VERSION_CONFLICT, ILLEGAL_TRANSITION, IDEMPOTENCY_KEY_REUSED, each leaving evidence, and
    InvalidInput without a reason.
    """
    if not reason.strip():
        raise InvalidInput(reason="is needed")
    attempt = Attempt(CouponCommand.VOID, key, coupon_id, actor, "", expected_version)
    with unit_of_work(now=now):
        replay = find_replay(attempt, Voided)
        if replay is not None:
            return replay
        status = read_coupon(attempt).status
        moved = move(
            edge=VOID.get(status, VOID["AVAILABLE"]),
            merchant_id=merchant_id,
            attempt=attempt,
            params={"reason": reason[:200], "decision_id": decision_id},
            result=Voided,
            refusal=lambda coupon: refusal_of_version(attempt, coupon, sources=[status] if status in SOURCES else []),
            now=now,
        )
    if isinstance(moved, Voided):
        return moved
    return Voided(coupon_id, "VOID", moved["state_version"])
