"""A deadline has passed: issue the ordinary command that the rules name for it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aftersales.actors import SYSTEM
from aftersales.commands.approve_after_sales import approve_after_sales
from aftersales.commands.cancel_after_sales import cancel_after_sales
from aftersales.commands.confirm_replacement import confirm_replacement
from aftersales.commands.confirm_return import confirm_return
from aftersales.commands.convert_to_refund import convert_to_refund
from aftersales.commands.expire_supplement import expire_supplement
from aftersales.commands.open_arbitration import escalate
from aftersales.models import AfterSalesOrder, ArbitrationCase, Disposition, GoodsState, ReturnShipment, Status, Type
from kernel.idempotency import BusinessKey, business_key

Cause = ArbitrationCase.Cause


@dataclass(frozen=True)
class TimerRun:
    """`outcome`: approved, canceled, refunding, completed, escalated, waiting (not due, or nothing known yet)."""

    outcome: str


def run_timer(*, claim_id: UUID, now: datetime) -> TimerRun:
    """May call a channel (an unpaid supplement), so never inside a transaction. What the claim is when this runs
    decides, not what it was when the deadline was set; raises what the ordinary command raises."""
    claim = AfterSalesOrder.objects.select_related("merchant", "line").get(pk=claim_id)
    act = ACTS.get(Status(claim.status))
    if act is None or claim.due_at is None or claim.due_at > now or claim.is_disputed or claim.held_for_review:
        return TimerRun("waiting")
    return TimerRun(act(claim, _key(claim), now))


def _key(claim: AfterSalesOrder) -> BusinessKey:
    return business_key(
        merchant_id=claim.merchant_id, key=f"timer:{claim.after_sales_no}:{claim.version}", status=str(claim.status)
    )


def _after_audit(claim: AfterSalesOrder, key: BusinessKey, now: datetime) -> str:
    unshipped = claim.type == Type.REFUND_ONLY and claim.goods_state == GoodsState.UNSHIPPED
    if not (unshipped and claim.merchant.auto_approve_unshipped):
        return _escalate(claim, Cause.MERCHANT_SILENT, now)
    approve_after_sales(
        merchant_id=claim.merchant_id,
        after_sales_no=claim.after_sales_no,
        expected_version=claim.version,
        by=SYSTEM,
        key=key,
        now=now,
    )
    return "approved"


def _after_buyer_return(claim: AfterSalesOrder, key: BusinessKey, now: datetime) -> str:
    cancel_after_sales(
        merchant_id=claim.merchant_id,
        after_sales_no=claim.after_sales_no,
        user_id=None,
        expected_version=claim.version,
        reason="not sent back in time",
        by=SYSTEM,
        key=key,
        now=now,
    )
    return "canceled"


def _after_receipt(claim: AfterSalesOrder, key: BusinessKey, now: datetime) -> str:
    """Delivered and never confirmed → refund, uninspected goods taken as sellable. Otherwise the carrier is silent."""
    delivered = claim.shipments.filter(
        direction=ReturnShipment.Direction.TO_MERCHANT, delivered_at__isnull=False
    ).exists()
    if not delivered:
        return _escalate(claim, Cause.CARRIER_SILENT, now)
    if claim.type == Type.EXCHANGE:
        return _escalate(claim, Cause.MERCHANT_SILENT, now)
    confirm_return(
        merchant_id=claim.merchant_id,
        after_sales_no=claim.after_sales_no,
        expected_version=claim.version,
        dispositions={Disposition.SELLABLE: claim.qty},
        note="not confirmed in time",
        by=SYSTEM,
        key=key,
        now=now,
    )
    return "refunding"


def _after_supplement(claim: AfterSalesOrder, key: BusinessKey, now: datetime) -> str:
    done = expire_supplement(merchant_id=claim.merchant_id, after_sales_no=claim.after_sales_no, now=now)
    return "refunding" if done.outcome == "refunding" else "waiting"


def _after_merchant_ship(claim: AfterSalesOrder, key: BusinessKey, now: datetime) -> str:
    if claim.type == Type.RESHIP:
        return _escalate(claim, Cause.MERCHANT_SILENT, now)
    convert_to_refund(
        merchant_id=claim.merchant_id,
        after_sales_no=claim.after_sales_no,
        expected_version=claim.version,
        reason="not shipped in time",
        by=SYSTEM,
        key=key,
        now=now,
    )
    return "refunding"


def _after_buyer_confirm(claim: AfterSalesOrder, key: BusinessKey, now: datetime) -> str:
    confirm_replacement(
        merchant_id=claim.merchant_id,
        after_sales_no=claim.after_sales_no,
        user_id=None,
        expected_version=claim.version,
        by=SYSTEM,
        key=key,
        now=now,
    )
    return "completed"


def _escalate(claim: AfterSalesOrder, cause: str, now: datetime) -> str:
    escalate(claim_id=claim.pk, cause=cause, now=now)
    return "escalated"


ACTS: dict[Status, Callable[[AfterSalesOrder, BusinessKey, datetime], str]] = {
    Status.WAIT_AUDIT: _after_audit,
    Status.WAIT_BUYER_RETURN: _after_buyer_return,
    Status.WAIT_MERCHANT_RECEIVE: _after_receipt,
    Status.WAIT_BUYER_PAY: _after_supplement,
    Status.WAIT_MERCHANT_SHIP: _after_merchant_ship,
    Status.WAIT_BUYER_CONFIRM: _after_buyer_confirm,
}
"""What each deadline means."""
