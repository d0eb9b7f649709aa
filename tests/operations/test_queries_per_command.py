"""How many statements the hot commands send, BEGIN and COMMIT apart. One more is a round trip more for every order:
raise a number here only with the reason."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from aftersales.actors import By
from aftersales.commands.apply_after_sales import apply_after_sales
from aftersales.commands.approve_after_sales import approve_after_sales
from aftersales.drafts import Item
from aftersales.models import Actor
from coupons.commands.issue_coupon import issue_coupon
from coupons.commands.lock_coupon import lock_coupon
from coupons.commands.redeem_coupon import redeem_coupon
from coupons.commands.release_coupon import release_coupon
from coupons.commands.renew_coupon import renew_coupon
from kernel import outbox
from kernel.errors import Refusal
from orders.commands.confirm_paid import confirm_paid
from orders.commands.sign_shipment import sign_shipment
from tests.orders.conftest import keys, now, shop, simulator, simulator_process
from tests.orders.factories import Shop, drain, paid_fact, payment_of

__all__ = ["keys", "now", "shop", "simulator", "simulator_process"]

FRAME = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE")
MOST = {
    "issue": 11,
    "lock": 1,
    "renew": 1,
    "redeem": 1,
    "release": 1,
    "a refused lock": 5,
    "quote": 9,
    "quote with coupon": 12,
    "order": 27,
    "pay": 15,
    "confirm paid": 2,
    "cancel": 26,
    "ship": 23,
    "sign": 16,
    "apply": 19,
    "approve": 1,
    "relay of 50 events": 2,
}


def test_statements(shop: Shop) -> None:
    seen: dict[str, list[str]] = {}

    def count(name: str, command: Callable[..., Any], *args: Any, **values: Any) -> Any:
        with CaptureQueriesContext(connection) as queries:
            result = command(*args, **values)
        seen[name] = [each["sql"] for each in queries.captured_queries if not each["sql"].startswith(FRAME)]
        return result

    _coupons(shop, count)
    _orders(shop, count)
    assert seen.keys() == MOST.keys()
    more = {name: statements for name, statements in seen.items() if len(statements) > MOST[name]}
    assert not more, "\n".join(f"{name}: {len(each)} > {MOST[name]}\n  " + "\n  ".join(s[:200] for s in each)
                               for name, each in more.items())  # fmt: skip


def _coupons(shop: Shop, count: Callable[..., Any]) -> None:
    common = {"merchant_id": shop.id, "now": shop.now}
    issued = count("issue", issue_coupon, user_id="u", template_code="off50", key=shop.key(), **common)
    asked = {"coupon_id": issued.coupon_id, "user_id": "u", "lease_seconds": 300, **common}
    lease = count("lock", lock_coupon, order_no="A", key=shop.key(), **asked)
    count("a refused lock", _refused, lock_coupon, order_no="B", key=shop.key(), **asked)
    proof = {"coupon_id": issued.coupon_id, "order_no": "A", "lock_token": lease.lock_token, **common}
    until = shop.now + timedelta(minutes=20)
    count("renew", renew_coupon, expires_at=until, expected_version=2, key=shop.key(), **proof)
    count("redeem", redeem_coupon, payment_no="p", expected_version=3, key=shop.key(), **proof)
    other = issue_coupon(user_id="u", template_code="off50", key=shop.key(), **common).coupon_id
    lease = lock_coupon(coupon_id=other, user_id="u", order_no="D", lease_seconds=300, key=shop.key(), **common)
    proof |= {"coupon_id": other, "order_no": "D", "lock_token": lease.lock_token}
    count("release", release_coupon, expected_version=2, key=shop.key(), **proof)


def _refused(command: Callable[..., Any], **values: Any) -> None:
    with pytest.raises(Refusal):
        command(**values)


def _orders(shop: Shop, count: Callable[..., Any]) -> None:
    count("quote", shop.quote)
    quote = count("quote with coupon", shop.quote, coupon_id=shop.coupon())
    ordered = count("order", shop.order, quote=quote)
    count("pay", shop.pay, ordered)
    payment = payment_of(ordered)
    fact = paid_fact(payment)
    count("confirm paid", confirm_paid, order_id=ordered.order_id, payment_id=payment.id, fact=fact, now=shop.now)
    drain()
    count("ship", shop.ship, ordered)
    count("sign", sign_shipment, merchant_id=shop.id, order_no=ordered.order_no, by="SF", key=shop.key(), now=shop.now)
    applied = count(
        "apply",
        apply_after_sales,
        merchant_id=shop.id,
        order_no=ordered.order_no,
        user_id=ordered.user_id,
        items=[Item(line_no=1, type=1, qty=1, reason_code="quality")],
        key=shop.key(),
        now=shop.now,
    )
    claim = applied.after_sales[0]
    count(
        "approve",
        approve_after_sales,
        merchant_id=shop.id,
        after_sales_no=claim.after_sales_no,
        expected_version=claim.version,
        by=By(Actor.MERCHANT, "lin"),
        key=shop.key(),
        now=shop.now,
    )
    count("cancel", shop.cancel, shop.order(coupon_id=shop.coupon()))
    for number in range(50):
        outbox.append(name="test.said", merchant_id=shop.id, subject=str(number), payload={}, now=shop.now)
    count("relay of 50 events", outbox.relay, now=shop.now, limit=50)
