"""Call the platform in: over a claim that was refused, lowered, not answered or never arrived."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from aftersales.actors import SYSTEM, By
from aftersales.claims import get_claim
from aftersales.commands._hold_case import hold_for_case, write_case
from aftersales.models import FINAL, Actor, AfterSalesOrder, ArbitrationCase, Status
from kernel import idempotency
from kernel.errors import Refusal
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work

Cause = ArbitrationCase.Cause


class NothingToArbitrate(Refusal):
    code = "NOTHING_TO_ARBITRATE"
    message = _("Arbitration opens after a refusal, a lowered amount or a replacement that never came.")


@dataclass(frozen=True)
class ArbitrationOpened:
    """`entitled_fen` is the most a decision may award: what is left of the units' goods and freight."""

    case_id: UUID
    after_sales_no: str
    cause: str
    ordinals: list[int]
    entitled_fen: int
    replayed: bool = False


def open_arbitration(
    *,
    merchant_id: UUID,
    after_sales_no: str,
    user_id: str | None = None,
    wish: str,
    by: By,
    key: BusinessKey,
    now: datetime,
) -> ArbitrationOpened:
    """By the buyer (`user_id`) or the merchant. The units are held; while the case is open nobody audits, cancels or
    lets a deadline run, and what was left of it is kept.

    Raises NotFound, NothingToArbitrate, ArbitrationAlreadyOpen, NoSuchUnits (claimed again meanwhile).
    """
    with unit_of_work(now=now):
        done = idempotency.begin(key, ArbitrationOpened, now=now)
        if done is not None:
            return done
        claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no, user_id=user_id)
        cause = cause_of(claim, by=by)
        if cause is None:
            raise NothingToArbitrate(after_sales_no=after_sales_no, status=claim.status)
        result = _open(claim, cause, wish=wish, by=by, now=now)
        idempotency.finish(key, result)
        return result


def escalate(*, claim_id: UUID, cause: str, now: datetime) -> ArbitrationOpened:
    """The system opens a case because somebody is silent. Joins, if there is a caller's transaction."""
    with unit_of_work(now=now):
        claim = AfterSalesOrder.objects.select_related("line", "merchant").get(pk=claim_id)
        return _open(claim, cause, wish="", by=SYSTEM, now=now)


def cause_of(claim: AfterSalesOrder, *, by: By) -> str | None:
    """Why this party may call the platform in now, if it may."""
    if claim.status == Status.REJECTED:
        return Cause.REJECTED
    if claim.status == Status.WAIT_BUYER_CONFIRM and by.kind == Actor.BUYER:
        return Cause.NOT_RECEIVED
    if claim.status == Status.REFUND_SUCCESS and (claim.approved_total_fen or 0) < claim.applied_total_fen:
        return Cause.AMOUNT
    return None


def _open(claim: AfterSalesOrder, cause: str, *, wish: str, by: By, now: datetime) -> ArbitrationOpened:
    ordinals = list(claim.units.order_by("ordinal").values_list("ordinal", flat=True))
    if claim.status == Status.REFUND_SUCCESS:
        ordinals = list(claim.units.filter(live=True).order_by("ordinal").values_list("ordinal", flat=True))
    holds_line = hold_for_case(claim.line_id, ordinals, owner=claim if claim.status != Status.REJECTED else None)
    case = write_case(
        order_id=claim.order_id,
        line_id=claim.line_id,
        claim=claim,
        ordinals=ordinals,
        cause=cause,
        wish=wish,
        holds_line=holds_line,
        by=by,
        now=now,
    )
    if claim.status not in FINAL:
        left = max(0, int((claim.due_at - now).total_seconds())) if claim.due_at else None
        AfterSalesOrder.objects.filter(pk=claim.pk).update(
            is_disputed=True, due_left_seconds=left, due_at=None, updated_at=now
        )
    return ArbitrationOpened(
        case_id=case.pk,
        after_sales_no=claim.after_sales_no,
        cause=str(cause),
        ordinals=ordinals,
        entitled_fen=case.entitled_fen,
    )
