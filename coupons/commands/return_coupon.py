"""Return: a used coupon goes back to its holder, because a recorded decision says so."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from coupons.commands.move import find_replay, move
from coupons.ledger import (
    AVAILABLE_OR_EXPIRED,
    END_REDEMPTION,
    NEXT_VERSION,
    VERSION_PROOF,
    operation,
)
from coupons.models import CouponCommand, CouponRedemption, RefundCoupon, ReturnDecision, UserCoupon
from coupons.refusals import Attempt, CouponNotFound, CouponRefused, VersionConflict, read_coupon, refusal_of_version
from kernel.idempotency import BusinessKey
from kernel.statemachine import Edge, Emit, New, P, key_row
from kernel.transactions import unit_of_work


class NoReturnDecision(CouponRefused):
    """No RETURN decision names this redemption: money and coupon are two decisions, and the second is missing."""

    code = "NO_RETURN_DECISION"
    message = _("A coupon only goes back by a recorded decision to return it.")
    next_actions = ("decide_return",)


GIVE_BACK = Edge(
    UserCoupon,
    "give_back",
    guards=VERSION_PROOF,
    changes={"status": AVAILABLE_OR_EXPIRED, "state_version": NEXT_VERSION, "updated_at": P("now")},
    writes=[
        operation(
            CouponCommand.RETURN,
            source="USED",
            order_no=P("order_no"),
            redemption_id=P("redemption_id"),
            decision=P("decision_id"),
        ),
        END_REDEMPTION,
        key_row(
            coupon_id=New("id"),
            order_no=P("order_no"),
            redemption_id=P("redemption_id"),
            status=New("status"),
            state_version=New("state_version"),
        ),
    ],
    emit=Emit(
        "coupon.returned",
        subject=New("id"),
        payload={
            "coupon_id": New("id"),
            "order_no": P("order_no"),
            "redemption_id": P("redemption_id"),
            "status": New("status"),
            "state_version": New("state_version"),
        },
    ),
    returning=["status", "state_version"],
)


@dataclass(frozen=True)
class Returned:
    """The coupon is its holder's again with its original validity: AVAILABLE, or EXPIRED when that is over."""

    coupon_id: UUID
    order_no: str
    redemption_id: UUID
    status: str
    state_version: int
    replayed: bool = False


def return_coupon(
    *,
    merchant_id: UUID,
    redemption_id: UUID,
    decision_id: UUID,
    key: BusinessKey,
    now: datetime,
    expected_version: int | None = None,
    actor: str = "system",
) -> Returned:
    """USED → AVAILABLE or EXPIRED, ending the redemption; joins the caller's transaction, if any.

    Without `expected_version` the version read here is expected: the redemption in force already says which use is
    meant. Raises NOT_FOUND, NO_RETURN_DECISION, VERSION_CONFLICT (also when another redemption is in force),
    ILLEGAL_TRANSITION, IDEMPOTENCY_KEY_REUSED, each leaving evidence.
    """
    redemption = CouponRedemption.objects.filter(pk=redemption_id, merchant_id=merchant_id).first()
    coupon_id = redemption.coupon_id if redemption else None
    order_no = redemption.order_no if redemption else ""
    attempt = Attempt(CouponCommand.RETURN, key, coupon_id, actor, order_no, expected_version)
    with unit_of_work(now=now):
        replay = find_replay(attempt, Returned)
        if replay is not None:
            return replay
        if redemption is None:
            raise CouponNotFound(attempt)
        coupon = read_coupon(attempt)
        if not RefundCoupon.objects.filter(
            pk=decision_id, redemption=redemption, decision=ReturnDecision.RETURN
        ).exists():
            raise NoReturnDecision(attempt, coupon, decision_id=str(decision_id))
        if expected_version is None:
            attempt = Attempt(CouponCommand.RETURN, key, coupon_id, actor, order_no, coupon.state_version)
        if not CouponRedemption.objects.filter(pk=redemption_id, ended_by=None).exists():
            raise VersionConflict(attempt, coupon, redemption_id=str(redemption_id), redemption_ended=True)
        moved = move(
            edge=GIVE_BACK,
            merchant_id=merchant_id,
            attempt=attempt,
            params={"redemption_id": redemption_id, "decision_id": decision_id},
            result=Returned,
            refusal=lambda found: refusal_of_version(attempt, found, sources=["USED"]),
            now=now,
        )
    if isinstance(moved, Returned):
        return moved
    return Returned(redemption.coupon_id, order_no, redemption_id, moved["status"], moved["state_version"])
