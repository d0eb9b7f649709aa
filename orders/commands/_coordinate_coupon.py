"""What becomes of an order's coupon when the order is paid, ended or taken up again; every decision is recorded.

A late or duplicated fact never overwrites somebody else's lease: the coupon's own commands refuse that. What their
refusal means for the order is decided here from local facts: redeem late (nobody took the coupon), refund the order
(it is gone), or, by a person, honour the price without the coupon.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from coupons import leases
from coupons.commands.lock_coupon import lock_coupon
from coupons.commands.redeem_coupon import REDEEM, redeem_coupon
from coupons.commands.release_coupon import release_coupon
from coupons.models import CouponStatus, UserCoupon
from coupons.refusals import CouponRefused
from kernel import numbers, outbox
from kernel.errors import NotFound
from kernel.idempotency import BusinessKey, business_key, request_hash
from kernel.statemachine import Carry
from kernel.transactions import leave_evidence, unit_of_work
from orders.actors import SYSTEM, Actor
from orders.commands.open_anomaly import open_anomaly
from orders.models import Anomaly, CouponDecision, CouponState, Order, OrderCoupon

Decision = CouponDecision.Decision
ACTOR = "orders.coordinate_coupon"
ACQUIRE_SECONDS = 60
TIME_TO_HONOUR = timedelta(minutes=10)
"""A paid order whose coupon is gone is refunded by itself after this long, unless an operator honours its price."""


@dataclass(frozen=True)
class CouponSettled:
    """What the order's coupon is now; `decision` names what was decided when it did not go the usual way."""

    coupon_state: str
    decision: str = ""
    cause: str = ""


REDEEM_HELD = Carry(
    REDEEM,
    name="redeemed",
    beside="order_coupon e JOIN coupon_lock l ON l.id = e.lock_id",
    where="e.order_id = u.id AND t.id = e.coupon_id AND t.lock_id = e.lock_id",
    bind={
        "key_merchant_id": "u.merchant_id",
        "order_no": "u.order_no",
        "lock_id": "e.lock_id",
        "token_hash": "l.token_hash",
        "expected_version": "t.state_version",  # the lease is the proof, in the same statement
        "payment_no": "u.out_trade_no",
        "actor": f"'{ACTOR}'",
        "key": "'order:' || u.order_no || ':redeem:v' || (t.state_version - 1)",
        "request_hash": "%(redeem_hash)s::text",
    },
    optional=True,
)
"""The usual way of an order that is paid: it holds its coupon's lease, so the coupon is redeemed by the statement that
moves the order. When it does not take, `redeem_for_order` decides."""


def redeem_params(payment_no: str) -> dict[str, Any]:
    """The parameters of REDEEM_HELD; the rest is read from the order."""
    return {
        "redemption_id": numbers.uuid7(),
        "operation_id": numbers.uuid7(),
        "redeem_hash": request_hash({"payment_no": payment_no}),
    }


def redeem_for_order(order: Order, *, payment_no: str, now: datetime) -> CouponSettled:
    """A paid order uses its coupon, under the lease it holds; joins the caller's transaction, which holds the order.

    The usual way is one redeem. Otherwise: nobody holds the coupon → lock and redeem (`late_redeem`); it is used,
    expired or another order's → `refund_order`, coupon_state `conflict` and an anomaly; `refund_conflict` sends the
    money back after a while: the order is never kept at a price whose coupon it does not have.
    """
    evidence = OrderCoupon.objects.get(order=order)
    cause = _try_redeem(order, evidence, payment_no=payment_no, now=now)
    if not cause:
        Order.objects.filter(pk=order.pk).update(coupon_state=CouponState.REDEEMED)
        return CouponSettled(CouponState.REDEEMED)
    late = _try_acquire(order, evidence, payment_no=payment_no, now=now)
    facts = facts_of(order, evidence)
    if not late:
        record_decision(order, Decision.LATE_REDEEM, cause=cause, inputs=facts, now=now)
        Order.objects.filter(pk=order.pk).update(coupon_state=CouponState.REDEEMED)
        return CouponSettled(CouponState.REDEEMED, Decision.LATE_REDEEM, cause)
    record_decision(order, Decision.REFUND_ORDER, cause=cause, inputs={**facts, "late": late}, now=now)
    Order.objects.filter(pk=order.pk).update(
        coupon_state=CouponState.CONFLICT, next_fulfil_at=now + TIME_TO_HONOUR, fulfil_tries=0
    )
    open_anomaly(
        merchant_id=order.merchant_id,
        kind=Anomaly.Kind.COUPON_CONFLICT,
        order=order,
        facts={"coupon_id": str(evidence.coupon_id), "cause": cause},
        evidence=facts,
        outcome=Decision.REFUND_ORDER,
        now=now,
    )
    return CouponSettled(CouponState.CONFLICT, Decision.REFUND_ORDER, cause)


def refund_conflict(*, order_id: UUID, now: datetime) -> bool:
    """Ask for the refund of a PAID order in conflict (`order.refund_required`), once its time to be honoured is over.
    False: not yet, or no longer in conflict. May join; the event goes out once."""
    with unit_of_work(now=now):
        order = Order.objects.select_for_update(no_key=True).get(id=order_id)
        if order.status != Order.Status.PAID or order.coupon_state != CouponState.CONFLICT:
            return False
        decided = order.coupon_decisions.filter(decision=Decision.REFUND_ORDER).order_by("-at").first()
        if order.next_fulfil_at is None or decided is None or decided.at + TIME_TO_HONOUR > now:
            return False
        Order.objects.filter(pk=order.pk).update(next_fulfil_at=None)
        outbox.append(
            name="order.refund_required",
            merchant_id=order.merchant_id,
            subject=order.order_no,
            payload={"order_no": order.order_no, "order_id": str(order.id), "reason": "coupon_conflict"},
            now=now,
        )
        return True


def acquire_for_reopening(order: Order, *, payment_no: str, now: datetime) -> CouponSettled:
    """A closed order that comes back has to have its coupon again: lock and redeem in one go. Joins the caller's
    transaction. Raises CouponRefused when it cannot be had: then the order is not reopened."""
    evidence = OrderCoupon.objects.get(order=order)
    _acquire(order, evidence, payment_no=payment_no, now=now)
    record_decision(order, Decision.LATE_REDEEM, cause="REOPENED", inputs=facts_of(order, evidence), now=now)
    Order.objects.filter(pk=order.pk).update(coupon_state=CouponState.REDEEMED)
    return CouponSettled(CouponState.REDEEMED, Decision.LATE_REDEEM, "REOPENED")


def release_for_order(order: Order, *, reason: str, now: datetime) -> CouponSettled:
    """An order that ends unpaid gives its coupon back; joins the caller's transaction, which holds the order.

    A coupon that has moved on under another lease is left alone: it is not this order's to release.
    """
    evidence = OrderCoupon.objects.get(order=order)
    coupon = UserCoupon.objects.select_for_update().get(pk=evidence.coupon_id)
    if coupon.status == CouponStatus.LOCKED and coupon.lock_id == evidence.lock_id:
        release_coupon(
            merchant_id=order.merchant_id,
            coupon_id=evidence.coupon_id,
            order_no=order.order_no,
            lock_token=leases.token_for(evidence.lock_id),
            expected_version=coupon.state_version,
            key=business_key(merchant_id=order.merchant_id, key=f"order:{order.order_no}:release"),
            now=now,
            actor=ACTOR,
            reason=reason,
        )
    Order.objects.filter(pk=order.pk).update(coupon_state=CouponState.RELEASED)
    return CouponSettled(CouponState.RELEASED)


def coordinate_overdue_lease(*, merchant_id: UUID, order_no: str, now: datetime) -> CouponSettled:
    """A lease whose time is over and whose order must not simply lose it (the scanner says so). Paid → redeem what it
    still holds; ended → give it back; pending → its own timer. May join. Raises NotFound."""
    with unit_of_work(now=now):
        order = (
            Order.objects.select_for_update(no_key=True)
            .filter(merchant_id=merchant_id, order_no=order_no, coupon_id__isnull=False)
            .first()
        )
        if order is None:
            raise NotFound(order_no=order_no)
        if order.status == Order.Status.PENDING or order.coupon_state in (
            CouponState.REDEEMED,
            CouponState.CONFLICT,
            CouponState.HONOURED,
        ):
            return CouponSettled(order.coupon_state)
        if order.status in Order.PAID_OR_LATER:
            return redeem_for_order(order, payment_no=order.out_trade_no, now=now)
        return release_for_order(order, reason="overdue", now=now)


def record_decision(
    order: Order,
    decision: str,
    *,
    cause: str,
    inputs: Mapping[str, Any],
    now: datetime,
    actor: Actor = SYSTEM,
) -> CouponDecision:
    """Keep what was decided about an order's coupon, with the facts it was decided from."""
    return CouponDecision.objects.create(
        merchant_id=order.merchant_id,
        order=order,
        decision=decision,
        cause=cause[:40],
        inputs=dict(inputs),
        actor_kind=actor.kind,
        actor=actor.name,
        at=now,
    )


def facts_of(order: Order, evidence: OrderCoupon) -> dict[str, Any]:
    """The facts a decision is made from: the order, and the coupon as it stands."""
    coupon = UserCoupon.objects.get(pk=evidence.coupon_id)
    return {
        "order": {"status": order.status, "version": order.version, "coupon_state": order.coupon_state},
        "lease": {"lock_id": str(evidence.lock_id), "coupon_version": evidence.coupon_version},
        "coupon": {
            "status": coupon.status,
            "state_version": coupon.state_version,
            "locked_order_no": coupon.locked_order_no,
            "lock_id": str(coupon.lock_id) if coupon.lock_id else None,
            "valid_until": coupon.valid_until.isoformat(),
        },
    }


def _try_redeem(order: Order, evidence: OrderCoupon, *, payment_no: str, now: datetime) -> str:
    """Redeem under the order's own lease. "" when it took; otherwise the refusal's code, its evidence kept."""
    coupon = UserCoupon.objects.select_for_update().get(pk=evidence.coupon_id)
    version = coupon.state_version if coupon.lock_id == evidence.lock_id else evidence.coupon_version
    try:
        with transaction.atomic():
            _redeem(order, evidence, version=version, payment_no=payment_no, now=now)
    except CouponRefused as refusal:
        leave_evidence(refusal, now=now)
        return refusal.code
    return ""


def _try_acquire(order: Order, evidence: OrderCoupon, *, payment_no: str, now: datetime) -> str:
    """Lock and redeem anew. "" when it took; otherwise the refusal's code, its evidence kept."""
    try:
        with transaction.atomic():
            _acquire(order, evidence, payment_no=payment_no, now=now)
    except CouponRefused as refusal:
        leave_evidence(refusal, now=now)
        return refusal.code
    return ""


def _redeem(
    order: Order,
    evidence: OrderCoupon,
    *,
    version: int,
    payment_no: str,
    now: datetime,
    token: str = "",
) -> None:
    redeem_coupon(
        merchant_id=order.merchant_id,
        coupon_id=evidence.coupon_id,
        order_no=order.order_no,
        lock_token=token or leases.token_for(evidence.lock_id),
        expected_version=version,
        payment_no=payment_no,
        key=redeem_key(order.merchant_id, order.order_no, version, payment_no),
        now=now,
        actor=ACTOR,
    )


def redeem_key(merchant_id: UUID, order_no: str, version: int, payment_no: str) -> BusinessKey:
    """One redeem per order and version of its coupon."""
    return business_key(merchant_id=merchant_id, key=f"order:{order_no}:redeem:v{version}", payment_no=payment_no)


def _acquire(order: Order, evidence: OrderCoupon, *, payment_no: str, now: datetime) -> None:
    """Lock and redeem by the same order in one transaction (coupons.md: late redeem). The coupon's row is held, so
    the version that the lock's key names is the version it takes."""
    coupon = UserCoupon.objects.select_for_update().get(pk=evidence.coupon_id)
    locked = lock_coupon(
        merchant_id=order.merchant_id,
        coupon_id=evidence.coupon_id,
        user_id=order.user_id,
        order_no=order.order_no,
        lease_seconds=ACQUIRE_SECONDS,
        expected_version=coupon.state_version,
        key=business_key(merchant_id=order.merchant_id, key=f"order:{order.order_no}:relock:v{coupon.state_version}"),
        now=now,
        actor=ACTOR,
    )
    OrderCoupon.objects.filter(pk=evidence.pk).update(
        lock_id=locked.lock_id,
        lock_token_hash=leases.hash_token(locked.lock_token),
        lease_expires_at=locked.expires_at,
    )
    _redeem(order, evidence, version=locked.state_version, payment_no=payment_no, now=now, token=locked.lock_token)
