"""Coupons for tests, made through the commands themselves."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from coupons.commands.create_policy import create_policy, publish_policy
from coupons.commands.create_template import create_template
from coupons.commands.decide_return import decide_return
from coupons.commands.expire_coupon import Expired, expire_coupon
from coupons.commands.issue_coupon import Issued, issue_coupon
from coupons.commands.lock_coupon import Locked, lock_coupon
from coupons.commands.redeem_coupon import Redeemed, redeem_coupon
from coupons.commands.release_coupon import Released, release_coupon
from coupons.commands.renew_coupon import Renewed, renew_coupon
from coupons.commands.return_coupon import Returned, return_coupon
from coupons.commands.reverse_operation import Reversed, reverse_operation
from coupons.commands.void_coupon import Voided, void_coupon
from coupons.models import (
    CouponLock,
    CouponOperation,
    CouponRedemption,
    CouponRefusal,
    RefundCoupon,
    UserCoupon,
)
from kernel.errors import Refusal
from kernel.idempotency import BusinessKey, business_key
from kernel.models import IdempotencyKey, OutboxEvent
from kernel.numbers import uuid7
from tests.merchants.factories import a_merchant

_numbers = count(1)


@dataclass(frozen=True)
class Shop:
    """One merchant with a policy and a template of 50 off from 300, and the commands in short."""

    merchant_id: UUID
    now: datetime
    template_code: str = "off50"

    def key(self, key: str | None = None, **parts: Any) -> BusinessKey:
        return business_key(merchant_id=self.merchant_id, key=key or f"key-{next(_numbers)}", **parts)

    def issue(self, user_id: str = "user-1", *, key: str | None = None, **values: Any) -> Issued:
        values = {"template_code": self.template_code, "now": self.now, **values}
        asked = {"user": user_id, "template": values["template_code"]}
        return issue_coupon(merchant_id=self.merchant_id, user_id=user_id, key=self.key(key, **asked), **values)

    def lock(self, coupon_id: UUID, order_no: str = "A", *, key: str | None = None, **values: Any) -> Locked:
        values = {"user_id": "user-1", "lease_seconds": 300, "now": self.now, **values}
        return lock_coupon(
            merchant_id=self.merchant_id,
            coupon_id=coupon_id,
            order_no=order_no,
            key=self.key(key, do="lock", coupon=coupon_id, order=order_no),
            **values,
        )

    def renew(self, lease: Locked, *, key: str | None = None, **values: Any) -> Renewed:
        values = {
            "coupon_id": lease.coupon_id,
            "order_no": lease.order_no,
            "lock_token": lease.lock_token,
            "expected_version": lease.state_version,
            "now": self.now,
            "expires_at": self.now + timedelta(seconds=1800),
            **values,
        }
        asked = {"do": "renew", "coupon": values["coupon_id"], "order": values["order_no"]}
        return renew_coupon(merchant_id=self.merchant_id, key=self.key(key, **asked), **values)

    def redeem(self, lease: Locked, *, key: str | None = None, **values: Any) -> Redeemed:
        values = {
            "coupon_id": lease.coupon_id,
            "order_no": lease.order_no,
            "lock_token": lease.lock_token,
            "expected_version": lease.state_version,
            "payment_no": f"pay-{lease.order_no}",
            "now": self.now,
            **values,
        }
        asked = {"do": "redeem", "coupon": values["coupon_id"], "order": values["order_no"]}
        return redeem_coupon(merchant_id=self.merchant_id, key=self.key(key, **asked), **values)

    def release(self, lease: Locked, *, key: str | None = None, **values: Any) -> Released:
        values = {
            "coupon_id": lease.coupon_id,
            "order_no": lease.order_no,
            "lock_token": lease.lock_token,
            "expected_version": lease.state_version,
            "now": self.now,
            **values,
        }
        asked = {"do": "release", "coupon": values["coupon_id"], "order": values["order_no"]}
        return release_coupon(merchant_id=self.merchant_id, key=self.key(key, **asked), **values)


def make_shop(now: datetime, *, rules: dict[str, str] | None = None, **template: Any) -> Shop:
    number = next(_numbers)
    merchant = a_merchant(now=now, code=f"shop-{number}", name=f"Shop {number}")
    policy = create_policy(merchant_id=merchant.pk, code="standard", rules=rules or {}, now=now)
    publish_policy(merchant_id=merchant.pk, policy_id=policy.policy_id, now=now)
    values = {"kind": "THRESHOLD", "threshold_fen": 30000, "off_fen": 5000, "valid_days": 30, **template}
    if "valid_until_on" in values:
        del values["valid_days"]
    create_template(
        merchant_id=merchant.pk, code="off50", name="50 off from 300", policy_code="standard", now=now, **values
    )
    return Shop(merchant.pk, now)


@transaction.atomic
def issue_many(shop: Shop, number: int, user_id: str = "user-1") -> list[UUID]:
    """Coupons as `issue_coupon` leaves them, many in a few statements: a copy of one that it issued."""
    first = UserCoupon.objects.get(pk=shop.issue(user_id).coupon_id)
    ids = [uuid7() for _ in range(number)]
    columns = {field.attname: getattr(first, field.attname) for field in UserCoupon._meta.concrete_fields}
    root = CouponOperation.objects.filter(coupon=first).values().get()
    event = OutboxEvent.objects.filter(subject=str(first.pk)).values().get()
    key = IdempotencyKey.objects.filter(key=root["business_key"]).values().get()
    UserCoupon.objects.bulk_create(UserCoupon(**{**columns, "id": new}) for new in ids)
    CouponOperation.objects.bulk_create(
        CouponOperation(**{**root, "id": uuid7(), "coupon_id": new, "business_key": f"issue:{new}"}) for new in ids
    )
    IdempotencyKey.objects.bulk_create(
        IdempotencyKey(
            **{**key, "id": uuid7(), "key": f"issue:{new}", "result": {**key["result"], "coupon_id": str(new)}}
        )
        for new in ids
    )
    OutboxEvent.objects.bulk_create(OutboxEvent(**{**event, "id": uuid7(), "subject": str(new)}) for new in ids)
    return ids


def written() -> dict[str, int]:
    """How many rows each table holds that a command may write; refusals apart."""
    tables = (UserCoupon, CouponLock, CouponRedemption, CouponOperation, RefundCoupon, IdempotencyKey, OutboxEvent)
    return {table.__name__: table.objects.count() for table in tables}


def refusals() -> list[tuple[str, str, int | None, int | None, bool | None]]:
    """The refused commands so far: command, code, expected and actual version, whether the token matched."""
    return [
        (row.command, row.code, row.expected_version, row.actual_version, row.token_matched)
        for row in CouponRefusal.objects.order_by("id")
    ]


def state(coupon_id: UUID) -> tuple[str, int]:
    coupon = UserCoupon.objects.get(pk=coupon_id)
    return coupon.status, coupon.state_version


def decide(shop: Shop, redemption_id: UUID, **values: Any) -> Any:
    values = {"order_wholly_refunded": True, "cause_no": f"AS{next(_numbers)}", "now": shop.now, **values}
    return decide_return(merchant_id=shop.merchant_id, redemption_id=redemption_id, key=shop.key(), **values)


def give_back(shop: Shop, decided: Any, *, key: str | None = None, **values: Any) -> Returned:
    values = {"redemption_id": decided.redemption_id, "decision_id": decided.decision_id, "now": shop.now, **values}
    return return_coupon(
        merchant_id=shop.merchant_id, key=shop.key(key, do="return", of=values["redemption_id"]), **values
    )


def void(shop: Shop, coupon_id: UUID, *, key: str | None = None, **values: Any) -> Voided:
    values = {"expected_version": 1, "reason": "leaked", "actor": "staff:ops", "now": shop.now, **values}
    return void_coupon(
        merchant_id=shop.merchant_id, coupon_id=coupon_id, key=shop.key(key, do="void", of=coupon_id), **values
    )


def expire(shop: Shop, coupon_id: UUID, *, key: str | None = None, **values: Any) -> Expired:
    values = {"expected_version": 1, "now": shop.now, **values}
    return expire_coupon(
        merchant_id=shop.merchant_id, coupon_id=coupon_id, key=shop.key(key, do="expire", of=coupon_id), **values
    )


def newest(coupon_id: UUID) -> CouponOperation:
    return CouponOperation.objects.filter(coupon_id=coupon_id).order_by("-to_version")[0]


def undo(shop: Shop, coupon_id: UUID, *, key: str | None = None, **values: Any) -> Reversed:
    last = newest(coupon_id)
    values = {
        "operation_id": last.pk,
        "expected_version": last.to_version,
        "reason": "wrong order",
        "actor": "staff:ops",
        "now": shop.now,
        **values,
    }
    return reverse_operation(
        merchant_id=shop.merchant_id, key=shop.key(key, do="reverse", of=values["operation_id"]), **values
    )


def race(commands: list[Callable[[], Any]], *, connections: int = 0) -> list[Any]:
    """Run commands at once, each thread on a connection of its own, started by a barrier; results or refusals."""
    workers = connections or len(commands)
    barrier = threading.Barrier(workers)
    left = list(enumerate(commands))
    found: list[Any] = [None] * len(commands)
    guard = threading.Lock()

    def work() -> None:
        try:
            connection.ensure_connection()
            barrier.wait(timeout=30)
            while True:
                with guard:
                    if not left:
                        return
                    index, command = left.pop(0)
                try:
                    found[index] = command()
                except Refusal as refusal:
                    found[index] = refusal
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all(result is not None for result in found)
    return found
