"""Traffic for an upgrade: threads that run commands as clients do, each under its key until it succeeds. Ends when its
input ends; then says, as JSON, what was done and what had to be tried again.

    python -m tests.upgrade.traffic < a pipe that somebody closes
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

from django.db import Error, close_old_connections, connection  # noqa: E402

from coupons.commands.issue_coupon import issue_coupon  # noqa: E402
from coupons.commands.lock_coupon import lock_coupon  # noqa: E402
from coupons.commands.redeem_coupon import redeem_coupon  # noqa: E402
from coupons.commands.release_coupon import release_coupon  # noqa: E402
from coupons.models import CouponTemplate, UserCoupon  # noqa: E402
from kernel import clock  # noqa: E402
from kernel.idempotency import business_key  # noqa: E402
from orders.commands.cancel_order import cancel_order  # noqa: E402
from orders.commands.create_order import create_order  # noqa: E402
from orders.commands.create_quote import AskedLine, create_quote  # noqa: E402
from orders.models import Order  # noqa: E402

THREADS = 3
PATIENCE_SECONDS = 120
AT_LEAST = 5
"""Rounds of each thread before and after whatever happens. A release that cannot work on the tables of the one before
cannot do its first rounds; then so many vain tries are enough to begin with."""
LINE = AskedLine(sku="TRAFFIC", title="traffic", unit_price_fen=1000, qty=1)


class Client:
    """One thread's work. `until` keeps trying under one key, as a client does whose answer was lost."""

    def __init__(self, number: int, merchant_id: UUID, template_code: str) -> None:
        self.number, self.merchant_id, self.template_code, self.rounds = number, merchant_id, template_code, 0
        self.retried: Counter[str] = Counter()
        self.wanted: dict[str, str] = {}
        self.failed = ""

    def until(self, command: Callable[..., Any], what: str, **values: Any) -> Any:
        key = business_key(merchant_id=self.merchant_id, key=f"traffic:{self.number}:{self.rounds}:{what}")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return command(merchant_id=self.merchant_id, key=key, now=clock.now(), **values)
            except Error as error:
                self.retried[f"{what}: {type(error).__name__} {str(error).split(chr(10), 1)[0]}"] += 1
                if time.monotonic() > deadline:
                    raise
                close_old_connections()
                time.sleep(0.02)

    def one_round(self) -> None:
        user = f"traffic-{self.number}-{self.rounds}"
        coupon = self.until(issue_coupon, "issue", user_id=user, template_code=self.template_code).coupon_id
        order_no = f"T{self.number}-{self.rounds}"
        lease = self.until(lock_coupon, "lock", coupon_id=coupon, user_id=user, order_no=order_no, lease_seconds=300)
        proof = {"order_no": order_no, "lock_token": lease.lock_token, "expected_version": lease.state_version}
        if self.rounds % 2:
            self.until(redeem_coupon, "redeem", coupon_id=coupon, payment_no=f"P{order_no}", **proof)
        else:
            self.until(release_coupon, "release", coupon_id=coupon, **proof)
        self.wanted[str(coupon)] = "USED" if self.rounds % 2 else "AVAILABLE"
        quote = self.until(create_quote, "quote", user_id=user, lines=[LINE])
        ordered = self.until(create_order, "order", quote_id=quote.quote_id, pay_method="wechat")
        self.until(cancel_order, "cancel", order_no=ordered.order_no, user_id=ordered.user_id, reason="traffic")
        self.wanted[ordered.order_no] = "50"
        self.rounds += 1

    @property
    def is_under_way(self) -> bool:
        return bool(self.failed) or self.rounds >= AT_LEAST or self.retried.total() >= AT_LEAST

    def work(self, stopping: threading.Event) -> None:
        try:
            while not stopping.is_set():
                self.one_round()
            for _ in range(AT_LEAST):
                self.one_round()
        except BaseException as error:  # said at the end, by the main thread
            self.failed = repr(error)
        finally:
            connection.close()


def wrong(clients: list[Client]) -> list[str]:
    """What is not as the answers said."""
    wanted = {name: state for client in clients for name, state in client.wanted.items()}
    found = {str(row.pk): row.status for row in UserCoupon.objects.filter(user_id__startswith="traffic-")}
    found |= {row.order_no: str(row.status) for row in Order.objects.filter(user_id__startswith="traffic-")}
    return [f"{name}: {wanted.get(name)} ≠ {found.get(name)}" for name in wanted.keys() | found.keys()
            if wanted.get(name) != found.get(name)]  # fmt: skip


def main() -> None:
    usable = CouponTemplate.objects.filter(validity="DAYS", total_limit=None, retired_at=None).order_by("pk")
    merchant_id, code = usable.values_list("merchant_id", "code")[0]
    clients = [Client(number, merchant_id, code) for number in range(THREADS)]
    stopping = threading.Event()
    threads = [threading.Thread(target=client.work, args=(stopping,)) for client in clients]
    for thread in threads:
        thread.start()
    while not all(client.is_under_way for client in clients):
        time.sleep(0.02)
    print("running", flush=True)
    sys.stdin.read()
    stopping.set()
    for thread in threads:
        thread.join()
    print(
        json.dumps(
            {
                "rounds": [client.rounds for client in clients],
                "retried": dict(sum((client.retried for client in clients), Counter())),
                "failed": [client.failed for client in clients if client.failed],
                "wrong": wrong(clients),
            }
        )
    )


if __name__ == "__main__":
    main()
