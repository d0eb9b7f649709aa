"""The batch form of expire: one page of coupons in wallets whose validity is over, in one statement."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connection, transaction

from coupons.commands._page import page_id, page_params, page_source
from coupons.commands.expire_coupon import expire_coupon
from coupons.refusals import CouponRefused
from kernel import outbox
from kernel.idempotency import BusinessKey, business_key
from kernel.transactions import leave_evidence, unit_of_work

DUE_COUPONS = """
SELECT valid_until, id, merchant_id, state_version FROM user_coupon
WHERE valid_until <= %(now)s::timestamptz AND (valid_until, id) > (%(after_at)s::timestamptz, %(after_id)s::uuid)
  AND status = 'AVAILABLE'
ORDER BY valid_until, id LIMIT %(limit)s::int
FOR UPDATE SKIP LOCKED
"""
EXPIRE_COUPONS = f"""
WITH u AS (
    UPDATE user_coupon t SET status = 'EXPIRED', state_version = t.state_version + 1,
        updated_at = %(now)s::timestamptz
    FROM {page_source("coupon_id uuid", "version int", "key text", "request_hash text")}
    WHERE t.id = a.coupon_id AND t.status = 'AVAILABLE' AND t.state_version = a.version
      AND t.valid_until <= %(now)s::timestamptz
    RETURNING t.id, t.merchant_id, t.status, t.state_version, a.key, a.request_hash,
              {page_id(0, of=3)} AS operation_id, {page_id(1, of=3)} AS key_id, {page_id(2, of=3)} AS event_id
), o AS (
    INSERT INTO coupon_operation (id, merchant_id, coupon_id, command, from_version, from_status, to_version,
        to_status, order_no, actor, reason, business_key, at)
    SELECT operation_id, merchant_id, id, 'EXPIRE', state_version - 1, 'AVAILABLE', state_version, status, '',
        %(actor)s::text, '', key, %(now)s::timestamptz FROM u
), k AS (
    INSERT INTO idempotency_key (id, merchant_id, key, request_hash, result, created_at)
    SELECT key_id, merchant_id, key, request_hash, jsonb_build_object('coupon_id', id, 'status', status,
        'state_version', state_version), %(now)s::timestamptz FROM u
), e AS (
    INSERT INTO outbox_event (id, name, version, merchant_id, subject, payload, created_at, state, attempts,
        available_at, last_error)
    SELECT event_id, 'coupon.expired', 1, merchant_id, id::text, jsonb_build_object('coupon_id', id,
        'state_version', state_version), %(now)s::timestamptz, 'PENDING', 0, %(now)s::timestamptz, '' FROM u
)
SELECT count(*) FROM u
"""


@dataclass(frozen=True)
class ValidCursor:
    """Where a page ended: its last coupon by end of validity and id."""

    at: datetime
    id: UUID


@dataclass(frozen=True)
class CouponsExpired:
    """What one page came to. `next` is None when it was the last one."""

    looked_at: int
    expired: int
    next: ValidCursor | None


def expire_coupons(
    *,
    now: datetime,
    since: datetime,
    after: ValidCursor | None = None,
    limit: int = 500,
    actor: str = "system:scanner",
) -> CouponsExpired:
    """AVAILABLE → EXPIRED for one page of coupons whose validity ended after `since` and up to now.

    Each row proves its version and leaves its own ledger row, business key and event. A locked coupon is left alone:
    its release finds the validity over. When one key of the page is taken, each coupon is expired by the single
    command.
    """
    start = after or ValidCursor(since, UUID(int=0))
    with unit_of_work(now=now):
        with connection.cursor() as cursor:
            bounds: dict[str, Any] = {"now": now, "after_at": start.at, "after_id": start.id, "limit": str(limit)}
            cursor.execute(DUE_COUPONS, bounds)
            rows = cursor.fetchall()
        expired = 0
        if rows:
            try:
                with transaction.atomic():
                    expired = _expire_all(rows, now=now, actor=actor)
            except IntegrityError:
                expired = sum(_expire_one(row, now=now, actor=actor) for row in rows)
    last = ValidCursor(rows[-1][0], rows[-1][1]) if len(rows) == limit else None
    return CouponsExpired(looked_at=len(rows), expired=expired, next=last)


def _key(row: tuple[datetime, UUID, UUID, int]) -> BusinessKey:
    _until, coupon_id, merchant_id, version = row
    return business_key(merchant_id=merchant_id, key=f"coupon:{coupon_id}:expire:v{version}", coupon=coupon_id)


def _expire_all(rows: list[tuple[datetime, UUID, UUID, int]], *, now: datetime, actor: str) -> int:
    keyed = [(row, _key(row)) for row in rows]
    page = page_params(
        {"coupon_id": row[1], "version": row[3], "key": key.key, "request_hash": key.request_hash} for row, key in keyed
    )
    with connection.cursor() as cursor:
        cursor.execute(EXPIRE_COUPONS, {**page, "now": now, "actor": actor})
        count = cursor.fetchone()[0]
    outbox.wake_after_commit()
    return count


def _expire_one(row: tuple[datetime, UUID, UUID, int], *, now: datetime, actor: str) -> bool:
    try:
        with transaction.atomic():
            expire_coupon(
                merchant_id=row[2],
                coupon_id=row[1],
                expected_version=row[3],
                key=_key(row),
                now=now,
                actor=actor,
            )
    except CouponRefused as refusal:
        leave_evidence(refusal, now=now)
        return False
    return True
