"""A seeded shop and, for every operation of the API, a way to a request that will succeed: the links between endpoints
that OpenAPI does not know. What a step needs is made through the API itself, so it is fuzz traffic too; what other
people do (the channel, the merchant's staff) by the commands of those."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from uuid import UUID

from schemathesis import Response

from aftersales.commands.approve_after_sales import approve_after_sales
from aftersales.commands.confirm_exchange import confirm_exchange
from aftersales.commands.reject_after_sales import reject_after_sales
from aftersales.commands.ship_replacement import ship_replacement
from aftersales.models import AfterSalesOrder
from coupons.commands.decide_return import decide_return
from kernel import clock
from kernel.idempotency import business_key
from ledgers.commands.adjust_points import adjust_points
from orders.commands.settle_charge import settle_charge
from orders.models import OrderLine
from orders.tender import ask
from payments.commands.send_refund import send_refund
from payments.models import Payment, RefundAttempt
from tests.aftersales.build import MERCHANT
from tests.aftersales.test_evidence import a_png
from tests.orders.factories import ADDRESS, PAYER, Shop, drain

USER = "user-1"
NUT = {"sku": "NUT", "title": "坚果礼盒", "kind": "physical", "unit_price_fen": 10000, "qty": 1}
TEA = {"sku": "TEA", "title": "茶叶礼盒", "kind": "physical", "unit_price_fen": 20000, "qty": 1}
_numbers = count(1)


@dataclass
class Good:
    """A request that will succeed once."""

    path: dict[str, Any] = field(default_factory=dict)
    query: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None


Post = Callable[[str, Good], Response]


class Unexpected(AssertionError):
    """A request that should have succeeded did not."""


@dataclass
class Heard:
    """Callbacks of the channel as they came, until somebody sends them on."""

    base_url: str = ""
    posts: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, path: str, seconds: float = 60) -> tuple[dict[str, str], bytes]:
        def find() -> tuple[dict[str, str], bytes] | None:
            for post in self.posts:
                if path in post[0]:
                    self.posts.remove(post)
                    return post[1], post[2]
            return None

        with self.arrived:
            found = self.arrived.wait_for(find, timeout=seconds)
        if not found:
            raise Unexpected(f"no callback to {path} came")
        return found


@contextmanager
def listening() -> Iterator[Heard]:
    """An HTTP server that keeps what the simulator posts."""
    heard = Heard()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with heard.arrived:
                heard.posts.append((self.path, dict(self.headers.items()), body))
                heard.arrived.notify_all()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    heard.base_url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield heard
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class World:
    """Recipes by operation id: each method below named like an operation makes a Good for it."""

    shop: Shop
    heard: Heard
    send: Post
    decided: list[Good] = field(default_factory=list)
    """Returns that were decided here; the requests that carry them out may all have been spoiled ones."""

    def __post_init__(self) -> None:
        adjust_points(
            merchant_id=self.shop.id,
            user_id=USER,
            delta=10_000,
            business_key="welcome",
            reference="welcome",
            now=clock.now(),
        )

    def good(self, operation_id: str) -> Good:
        return getattr(self, operation_id)()

    def do(self, operation_id: str, made: Good | None = None) -> Any:
        """Make the request of a recipe and send it. Raises Unexpected when it does not succeed."""
        made = made or self.good(operation_id)
        answer = self.send(operation_id, made)
        if answer.status_code >= 300:
            raise Unexpected(f"{operation_id}: {answer.status_code} {answer.text[:500]}")
        if "json" not in answer.headers.get("content-type", [""])[0]:
            return None
        return answer.json()

    def key(self, what: str) -> Any:
        return business_key(merchant_id=self.shop.id, key=f"fuzz:{what}:{next(_numbers)}")

    # -- coupons -----------------------------------------------------------------------------------------------

    def coupon_issue(self) -> Good:
        return Good(body={"user_id": USER, "template_code": "off50"})

    def coupon(self) -> str:
        return self.do("coupon_issue")["coupon_id"]

    def coupon_list(self) -> Good:
        return Good(query={"user_id": USER, "status": "AVAILABLE", "limit": "5"})

    def coupon_read(self) -> Good:
        return Good(path={"coupon_id": self.coupon()})

    coupon_timeline = coupon_read

    def coupon_lock(self) -> Good:
        body = {"user_id": USER, "order_no": f"EXT{next(_numbers)}", "lease_seconds": 300, "expected_version": 1}
        return Good(path={"coupon_id": self.coupon()}, body=body)

    def lease(self, **more: Any) -> Good:
        locked = self.do("coupon_lock")
        proof = {name: locked[name] for name in ("order_no", "lock_token")}
        return Good(
            path={"coupon_id": locked["coupon_id"]},
            body={**proof, "expected_version": locked["state_version"], **more},
        )

    def coupon_renew(self) -> Good:
        return self.lease(expires_at=(clock.now() + timedelta(minutes=30)).isoformat())

    def coupon_redeem(self) -> Good:
        return self.lease(payment_no=f"PAY{next(_numbers)}")

    def coupon_release(self) -> Good:
        return self.lease(reason="closed")

    def coupon_return(self) -> Good:
        used = self.do("coupon_redeem")
        decided = decide_return(
            merchant_id=self.shop.id,
            redemption_id=UUID(used["redemption_id"]),
            order_wholly_refunded=True,
            cause_no=f"AS{next(_numbers)}",
            key=self.key("decide"),
            now=clock.now(),
        )
        body = {"redemption_id": used["redemption_id"], "decision_id": str(decided.decision_id)}
        made = Good(path={"coupon_id": used["coupon_id"]}, body={**body, "expected_version": used["state_version"]})
        self.decided.append(made)
        return made

    def carry_out(self) -> None:
        """Every decision once, so that the books close; 409 where a request has done so before."""
        for made in self.decided:
            answer = self.send("coupon_return", made)
            assert answer.status_code in (201, 409), answer.content[:300]

    def coupon_void(self) -> Good:
        return Good(path={"coupon_id": self.coupon()}, body={"reason": "leaked", "expected_version": 1})

    # -- orders ------------------------------------------------------------------------------------------------

    def quote_create(self) -> Good:
        address = {**ADDRESS, "street": f"{next(_numbers)} 号"}
        body = {"user_id": USER, "lines": [NUT, TEA], "freight_fen": 1000, "subsidy_fen": 0, "address": address}
        return Good(body={**body, "coupon_id": self.coupon()})

    def quote_read(self) -> Good:
        return Good(path={"quote_id": self.do("quote_create")["quote_id"]})

    def order_create(self) -> Good:
        return Good(body={"quote_id": self.do("quote_create")["quote_id"], "pay_method": "wechat"})

    def order(self) -> str:
        return self.do("order_create")["order_no"]

    def order_list(self) -> Good:
        return Good(query={"user_id": USER, "status": "0", "limit": "5"})

    def order_read(self) -> Good:
        return Good(path={"order_no": self.order()})

    def order_timeline(self) -> Good:
        return Good(path={"order_no": self.order()}, query={"user_id": USER})

    def order_status(self) -> Good:
        return Good(path={"token": self.do("order_create")["order_token"]})

    def order_pay(self) -> Good:
        return Good(path={"order_no": self.order()}, body={"user_id": USER, "payer_ref": PAYER})

    def order_cancel(self) -> Good:
        return Good(path={"order_no": self.order()}, body={"user_id": USER, "reason": "太贵"})

    def order_revoke_token(self) -> Good:
        return Good(path={"order_no": self.order()}, body={"renew": True})

    def paid(self) -> str:
        placed = self.do("order_pay")
        payment = Payment.objects.select_related("account").get(out_trade_no=placed["out_trade_no"])
        self.shop.simulator.pay(placed["out_trade_no"], notify=False)
        settle_charge(payment_id=payment.pk, heard=ask(payment, now=clock.now()), now=clock.now())
        return placed["order_no"]

    def order_ship(self) -> Good:
        body = {
            "carrier": "SF",
            "tracking_no": f"SF{next(_numbers)}",
            "lines": [{"line_no": n, "qty": 1} for n in (1, 2)],
        }
        return Good(path={"order_no": self.paid()}, body=body)

    def declare_commissions(self) -> Good:
        share = {"line_no": 2, "level": 1, "beneficiary": "agent-7", "rate_bp": 1250}
        return Good(path={"order_no": self.paid()}, body={"shares": [share]})

    def order_sign(self) -> Good:
        shipped = self.do("order_ship")
        return Good(path={"order_no": shipped["order_no"]}, body={"shipment_id": shipped["shipment_id"]})

    def signed(self) -> str:
        return self.do("order_sign")["order_no"]

    def order_confirm_receipt(self) -> Good:
        return Good(path={"order_no": self.signed()}, body={"user_id": USER})

    def open_late_arbitration(self) -> Good:
        order_no = self.signed()
        long_ago = clock.now() - timedelta(days=16)
        OrderLine.objects.filter(order__order_no=order_no).update(signed_at=long_ago)
        return Good(path={"order_no": order_no}, body={"user_id": USER, "line_no": 1, "qty": 1, "wish": "it broke"})

    # -- after-sales -------------------------------------------------------------------------------------------

    def wish(self, order_no: str, **item: Any) -> dict[str, Any]:
        asked = {"line_no": 2, "type": 1, "qty": 1, "reason_code": "quality", "description": "有裂纹", **item}
        return {"order_no": order_no, "user_id": USER, "items": [asked]}

    def apply_after_sales(self) -> Good:
        risk = {"device_hash": "d" * 8, "account_created_at": "2020-01-01T00:00:00+08:00", "freight_insured": False}
        return Good(body={**self.wish(self.paid()), **risk})

    def preview_after_sales(self) -> Good:
        return Good(body=self.wish(self.paid()))

    def claim(self, order_no: str = "", **item: Any) -> str:
        made = Good(body=self.wish(order_no or self.paid(), **item))
        return self.do("apply_after_sales", made)["after_sales"][0]["after_sales_no"]

    def list_after_sales(self) -> Good:
        return Good(query={"user_id": USER, "status": "WAIT_AUDIT", "limit": "5"})

    def get_after_sales(self) -> Good:
        return Good(path={"after_sales_no": self.claim()})

    def cancel_after_sales(self) -> Good:
        return self.about(self.claim(), reason="found it", expected_version=1)

    def about(self, number: str, **body: Any) -> Good:
        return Good(path={"after_sales_no": number}, body={"user_id": USER, **body})

    def by_staff(self, command: Callable[..., Any], number: str, **values: Any) -> None:
        version = AfterSalesOrder.objects.get(after_sales_no=number).version
        common = {"by": MERCHANT, "key": self.key("staff"), "now": clock.now(), "expected_version": version}
        command(merchant_id=self.shop.id, after_sales_no=number, **{**common, **values})

    def ship_return(self) -> Good:
        number = self.claim(self.signed(), type=2)
        self.by_staff(approve_after_sales, number)
        return self.about(number, carrier="SF", tracking_no=f"R{next(_numbers)}", expected_version=2)

    def exchanged(self, price: int) -> str:
        replacement = {"sku": "BLUE", "title": "Blue", "unit_price_fen": price}
        number = self.claim(self.signed(), type=3, reason_code="wrong_size", replacement=replacement)
        self.by_staff(approve_after_sales, number)
        self.do("ship_return", self.about(number, carrier="SF", tracking_no=f"R{next(_numbers)}"))
        self.by_staff(confirm_exchange, number, dispositions={"sellable": 1})
        return number

    def confirm_replacement(self) -> Good:
        number = self.exchanged(price=16667)
        self.by_staff(ship_replacement, number, carrier="SF", tracking_no=f"B{next(_numbers)}")
        return self.about(number, expected_version=5)

    def pay_supplement(self) -> Good:
        return self.about(self.exchanged(price=20000), payer_ref=PAYER)

    def open_arbitration(self) -> Good:
        number = self.claim()
        self.by_staff(reject_after_sales, number, reason="not ours")
        return self.about(number, wish="it is broken")

    def add_statement(self) -> Good:
        case = self.do("open_arbitration")["case_id"]
        return Good(path={"case_id": case}, body={"user_id": USER, "text": "see the picture"})

    def picture(self, **body: Any) -> dict[str, Any]:
        return {"user_id": USER, "note": "dent", "file": a_png(tint=next(_numbers) % 250), **body}

    def add_case_evidence(self) -> Good:
        return Good(path={"case_id": self.do("open_arbitration")["case_id"]}, body=self.picture())

    def add_evidence(self) -> Good:
        return Good(path={"after_sales_no": self.claim()}, body=self.picture())

    def get_evidence(self) -> Good:
        return Good(path={"evidence_id": self.do("add_evidence")["evidence_id"]}, query={"user_id": USER})

    def record_carrier_event(self) -> Good:
        event = {"carrier": "SF", "tracking_no": f"SF{next(_numbers)}", "what": "moved"}
        return Good(body={**event, "happened_at": clock.now().isoformat()})

    def wallet_read(self) -> Good:
        return Good(path={"user_id": USER})

    def list_points(self) -> Good:
        return Good(query={"user_id": USER, "limit": "5"})

    # -- the channel's callbacks ---------------------------------------------------------------------------------

    def payment_notify(self) -> Good:
        placed = self.do("order_pay")
        self.shop.simulator.pay(placed["out_trade_no"])
        headers, body = self.heard.wait_for("/orders/notify/wechat")
        return Good(path={"channel": "wechat"}, headers=headers, raw=body)

    def refunded(self) -> Good:
        number = self.claim()
        self.by_staff(approve_after_sales, number)
        drain()
        attempt = RefundAttempt.objects.get(request__owner_no=number)
        sent = send_refund(attempt_id=attempt.pk, now=clock.now())
        if sent.status not in ("PROCESSING", "SUCCESS"):
            raise Unexpected(f"the channel did not take the refund: {sent}")
        headers, body = self.heard.wait_for("/refunds/notify/wechat")
        return Good(path={"channel": "wechat"}, headers=headers, raw=body)

    refund_notify = refunded

    def refund_notify_of_account(self) -> Good:
        made = self.refunded()
        made.path["account_id"] = str(self.shop.account_id)
        return made


__all__ = ["USER", "Good", "Heard", "Unexpected", "World", "listening"]
