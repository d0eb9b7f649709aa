"""The batch form of release: many leases in one statement, each with its own proof, ledger row, key and event."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connection, transaction

from coupons import leases as tokens
from coupons.commands._page import page_id, page_params, page_source
from coupons.commands.release_coupon import release_coupon
from coupons.refusals import CouponRefused
from kernel import outbox
from kernel.idempotency import BusinessKey, business_key
from kernel.statemachine import StatementBroken
from kernel.transactions import leave_evidence, unit_of_work

PAGE = page_source(
    "coupon_id uuid", "version int", "token_hash text", "lock_id uuid", "order_no text", "key text", "request_hash text"
)
RELEASE_LEASES = f"""
WITH u AS (
    UPDATE user_coupon t SET
        status = CASE WHEN t.valid_until > %(now)s::timestamptz THEN 'AVAILABLE' ELSE 'EXPIRED' END,
        state_version = t.state_version + 1, locked_order_no = NULL, lock_id = NULL, lock_token_hash = NULL,
        lease_expires_at = NULL, updated_at = %(now)s::timestamptz
    FROM {PAGE}
    WHERE t.id = a.coupon_id AND t.status = 'LOCKED' AND t.state_version = a.version
      AND t.lock_id = a.lock_id AND t.lock_token_hash = decode(a.token_hash, 'hex') AND t.locked_order_no = a.order_no
    RETURNING t.id, t.merchant_id, t.status, t.state_version, a.lock_id, a.order_no, a.key, a.request_hash,
              {page_id(0, of=3)} AS operation_id, {page_id(1, of=3)} AS key_id, {page_id(2, of=3)} AS event_id
), ended AS (
    UPDATE coupon_lock s SET ended_by_id = u.operation_id FROM u
    WHERE s.id = u.lock_id AND s.coupon_id = u.id AND s.ended_by_id IS NULL RETURNING 1
), o AS (
    INSERT INTO coupon_operation (id, merchant_id, coupon_id, command, from_version, from_status, to_version,
        to_status, order_no, lock_id, actor, reason, business_key, at)
    SELECT operation_id, merchant_id, id, 'RELEASE', state_version - 1, 'LOCKED', state_version,
        status, order_no, lock_id, %(actor)s::text, %(reason)s::text, key, %(now)s::timestamptz FROM u
), k AS (
    INSERT INTO idempotency_key (id, merchant_id, key, request_hash, result, created_at)
    SELECT key_id, merchant_id, key, request_hash, jsonb_build_object('coupon_id', id, 'order_no', order_no,
        'lock_id', lock_id, 'status', status, 'state_version', state_version), %(now)s::timestamptz FROM u
), e AS (
    INSERT INTO outbox_event (id, name, version, merchant_id, subject, payload, created_at, state, attempts,
        available_at, last_error)
    SELECT event_id, 'coupon.released', 1, merchant_id, id::text, jsonb_build_object('coupon_id', id,
        'order_no', order_no, 'status', status, 'state_version', state_version), %(now)s::timestamptz, 'PENDING', 0,
        %(now)s::timestamptz, '' FROM u
)
SELECT u.id, (SELECT count(*) FROM ended) FROM u
"""


@dataclass(frozen=True)
class HeldLease:
    """A lease as the scanner saw it: what its release has to prove."""

    merchant_id: UUID
    coupon_id: UUID
    lock_id: UUID
    token_hash: bytes
    order_no: str
    state_version: int

    def key(self) -> BusinessKey:
        """One release per lease and version, whoever asks how often."""
        return business_key(
            merchant_id=self.merchant_id,
            key=f"lease:{self.lock_id}:overdue:v{self.state_version}",
            coupon=self.coupon_id,
        )


@dataclass(frozen=True)
class LeasesReleased:
    """Which coupons were released. The others have moved on since they were looked at; that is no failure."""

    coupon_ids: list[UUID]


def release_leases(
    *, leases: Sequence[HeldLease], now: datetime, actor: str = "system:scanner", reason: str = "lease overdue"
) -> LeasesReleased:
    """LOCKED → AVAILABLE or EXPIRED for every lease that is still the one given; joins the caller's transaction.

    Each row proves lease, token and version for itself and leaves its own ledger row, business key and event; a row
    that has moved on is left alone. When the statement cannot be carried out as a whole (one key of it is taken),
    each lease is released by the single command. Raises StatementBroken when a lease row contradicts its coupon.
    """
    if not leases:
        return LeasesReleased([])
    with unit_of_work(now=now):
        try:
            with transaction.atomic():
                return LeasesReleased(_release_all(leases, now=now, actor=actor, reason=reason))
        except IntegrityError:
            return LeasesReleased(
                [each.coupon_id for each in leases if _release_one(each, now=now, actor=actor, reason=reason)]
            )


def _release_all(leases: Sequence[HeldLease], *, now: datetime, actor: str, reason: str) -> list[UUID]:
    page = page_params(_row(lease, lease.key()) for lease in leases)
    with connection.cursor() as cursor:
        cursor.execute(RELEASE_LEASES, {**page, "now": now, "actor": actor, "reason": reason})
        rows = cursor.fetchall()
    if rows and rows[0][1] != len(rows):
        raise StatementBroken(f"{len(rows)} coupons released, but {rows[0][1]} leases ended")
    if rows:
        outbox.wake_after_commit()
    return [row[0] for row in rows]


def _row(lease: HeldLease, key: BusinessKey) -> dict[str, Any]:
    return {
        "coupon_id": lease.coupon_id,
        "version": lease.state_version,
        "token_hash": lease.token_hash,
        "lock_id": lease.lock_id,
        "order_no": lease.order_no,
        "key": key.key,
        "request_hash": key.request_hash,
    }


def _release_one(lease: HeldLease, *, now: datetime, actor: str, reason: str) -> bool:
    try:
        with transaction.atomic():
            release_coupon(
                merchant_id=lease.merchant_id,
                coupon_id=lease.coupon_id,
                order_no=lease.order_no,
                lock_token=tokens.token_for(lease.lock_id),
                expected_version=lease.state_version,
                key=lease.key(),
                now=now,
                actor=actor,
                reason=reason,
            )
    except CouponRefused as refusal:
        leave_evidence(refusal, now=now)
        return False
    return True
