"""A whole purchase and its returns, as the backend of a mini-program drives them.

    python3 examples/story.py                      # against the Quits that bin/up started
    python3 examples/story.py --demo var/demo.json

A buyer gets a coupon (50 off from 300), puts nuts for 100 and tea for 200 into the basket, freight 10, pays 260,
receives the parcel, sends the tea back and then the nuts. Everything that is ours to do happens here, over HTTP,
with signed requests. Two things are other people's: the buyer pays in WeChat (here: the channel simulator is told
so), and the merchant decides about returns in the back office (the script says where, and waits for it).

Amounts are integer fen: 26000 is 260.00 yuan.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quits_client import QuitsClient

NUT = {"sku": "NUT-500G", "title": "每日坚果礼盒 500g", "kind": "physical", "unit_price_fen": 10000, "qty": 1}
TEA = {"sku": "TEA-250G", "title": "明前龙井 250g", "kind": "physical", "unit_price_fen": 20000, "qty": 1}
ADDRESS = {"name": "林晓", "phone": "13800005678", "region": "浙江省杭州市西湖区", "street": "文三路 100 号"}
COUPON_TEMPLATE = "TEA-300-50"
PAID, DELIVERED = 10, 20

Audit = Callable[[str], None]


def say(text: str) -> None:
    print(text, flush=True)


def wait_until(what: str, look: Callable[[], Any], *, seconds: float = 30.0) -> Any:
    """Ask again until there is an answer. A real backend would get an event, or ask when its user looks."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {seconds:.0f} seconds")
        time.sleep(0.2)


class Simulator:
    """The channel simulator's control, in the place of a buyer with a telephone."""

    def __init__(self, base_url: str):
        self._base_url = base_url

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self._ask(urllib.request.Request(self._base_url + path, data=json.dumps(body).encode(), method="POST"))

    def get(self, path: str) -> Any:
        return self._ask(urllib.request.Request(self._base_url + path))

    @staticmethod
    def _ask(request: urllib.request.Request) -> Any:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)


@dataclass
class Story:
    """The steps, each callable on its own; what later steps need is kept on the story.

    `audit` and `inspect` are told an after-sales number and return when the merchant has approved the return, or
    has confirmed that the goods arrived. Without them the script waits for a person.
    """

    quits: QuitsClient
    simulator: Simulator
    user_id: str = field(default_factory=lambda: f"user-{uuid.uuid4().hex[:8]}")
    audit: Audit | None = None
    inspect: Audit | None = None
    say: Callable[[str], None] = say
    coupon: dict[str, Any] = field(default_factory=dict)
    quote: dict[str, Any] = field(default_factory=dict)
    order: dict[str, Any] = field(default_factory=dict)
    payment: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)

    # -- buying ------------------------------------------------------------------------------------------------

    def get_coupon(self) -> None:
        """The coupon goes into the buyer's wallet."""
        self.coupon = self.quits.post(
            "/coupons/issue",
            {"template_code": COUPON_TEMPLATE, "user_id": self.user_id},
            idempotency_key=f"issue:{self.user_id}",
        )
        self.say(f"coupon {self.coupon['coupon_id']} issued, valid until {self.coupon['valid_until']}")

    def ask_price(self) -> None:
        """A quote names every share of every line, and leases the coupon for a few minutes."""
        self.quote = self.quits.post(
            "/quotes",
            {
                "user_id": self.user_id,
                "lines": [NUT, TEA],
                "coupon_id": self.coupon["coupon_id"],
                "freight_fen": 1000,
                "address": ADDRESS,
            },
            idempotency_key=f"quote:{self.user_id}:basket-1",
        )
        self.say(f"quote {self.quote['order_no']}: {self.quote['payable_fen']} fen to pay")
        for line in self.quote["lines"]:
            self.say(
                f"  {line['title']}: {line['base_fen']} − coupon {line['coupon_share_fen']}"
                f" = {line['net_fen']}, freight {line['freight_share_fen']}"
            )

    def place_order(self) -> None:
        """The order takes the quote's number and price; the coupon's lease is lengthened to the time to pay."""
        self.order = self.quits.post(
            "/orders",
            {"quote_id": self.quote["quote_id"], "pay_method": "wechat"},
            idempotency_key=f"order:{self.quote['order_no']}",
        )
        self.say(f"order {self.order['order_no']} placed")

    def pay(self) -> None:
        """Our answer goes to wx.requestPayment as it is; the buyer pays; the channel tells Quits, not us."""
        self.payment = self.quits.post(
            f"/orders/{self.order_no}/pay",
            {"user_id": self.user_id, "payer_ref": f"openid-{self.user_id}"},
            idempotency_key=f"pay:{self.order_no}",
        )
        self.simulator.post("/control/pay", {"out_trade_no": self.payment["out_trade_no"]})
        self.wait_for_status(PAID)
        self.say(f"order {self.order_no} is paid")

    @property
    def order_no(self) -> str:
        return self.order["order_no"]

    def read_order(self) -> dict[str, Any]:
        return self.quits.get(f"/orders/{self.order_no}")

    def wait_for_status(self, status: int) -> dict[str, Any]:
        """The order in this status or a later one of the good path."""

        def look() -> Any:
            order = self.read_order()
            return order if status <= order["status"] <= 30 else None

        return wait_until(f"status {status} of {self.order_no}", look)

    # -- delivery ----------------------------------------------------------------------------------------------

    def ship_and_sign(self) -> None:
        """Everything in one parcel; the carrier reports the signature."""
        shipment = self.quits.post(
            f"/orders/{self.order_no}/ship",
            {"carrier": "SF", "tracking_no": f"SF{self.order_no}"},
            idempotency_key=f"ship:{self.order_no}:1",
        )
        self.quits.post(
            f"/orders/{self.order_no}/sign",
            {"shipment_id": shipment["shipment_id"]},
            idempotency_key=f"sign:{self.order_no}:1",
        )
        self.wait_for_status(DELIVERED)
        self.say(f"order {self.order_no} shipped and signed for")

    # -- returns -----------------------------------------------------------------------------------------------

    def apply_for_return(self, name: str, *, line_no: int) -> str:
        """The buyer wants to send one line back. The preview shows what it pays, before anything is asked for."""
        wish = {
            "order_no": self.order_no,
            "user_id": self.user_id,
            "items": [{"line_no": line_no, "type": 2, "qty": 1, "reason_code": "quality"}],
        }
        preview = self.quits.post("/after-sales/preview", wish)
        applied = self.quits.post("/after-sales", wish, idempotency_key=f"return:{self.order_no}:{line_no}")
        number = self.claims[name] = applied["after_sales"][0]["after_sales_no"]
        self.say(f"return {number} of the {name}: {preview['refund_fen']} fen if the merchant is liable")
        return number

    def read_claim(self, name: str) -> dict[str, Any]:
        return self.quits.get(f"/after-sales/{self.claims[name]}")

    def wait_for_claim(self, name: str, status: str, *, seconds: float = 30.0) -> dict[str, Any]:
        def look() -> Any:
            claim = self.read_claim(name)
            return claim if claim["status"] == status else None

        return wait_until(f"{status} of {self.claims[name]}", look, seconds=seconds)

    def approve(self, name: str) -> None:
        self._ask_merchant(self.audit, name, "approve the return", "WAIT_BUYER_RETURN")

    def send_back(self, name: str) -> None:
        """The buyer says with which parcel the goods come back."""
        number = self.claims[name]
        self.quits.post(
            f"/after-sales/{number}/return-shipment",
            {"user_id": self.user_id, "carrier": "SF", "tracking_no": f"SFR{number}"},
            idempotency_key=f"return-shipment:{number}",
        )
        self.say(f"return {number} is on its way")

    def receive(self, name: str) -> None:
        self._ask_merchant(self.inspect, name, "confirm that the goods arrived", "REFUND_SUCCESS")
        self.say(f"return {self.claims[name]} is refunded")

    def _ask_merchant(self, act: Audit | None, name: str, wish: str, status: str) -> None:
        number = self.claims[name]
        if act is not None:
            act(number)
            self.wait_for_claim(name, status)
            return
        self.say(f"now log in to the back office as the merchant, open {number} and {wish} …")
        self.wait_for_claim(name, status, seconds=3600)

    # -- all of it ---------------------------------------------------------------------------------------------

    def tell(self) -> None:
        self.get_coupon()
        self.ask_price()
        self.place_order()
        self.pay()
        self.ship_and_sign()
        for name, line_no in (("tea", 2), ("nut", 1)):
            self.apply_for_return(name, line_no=line_no)
            self.approve(name)
            self.send_back(name)
            self.receive(name)
        coupon = wait_until("the coupon", self.returned_coupon)
        self.say(f"all is refunded; the coupon is back and still valid until {coupon['valid_until']}")

    def read_coupon(self) -> dict[str, Any]:
        return self.quits.get(f"/coupons/{self.coupon['coupon_id']}")

    def returned_coupon(self) -> dict[str, Any] | None:
        coupon = self.read_coupon()
        return coupon if coupon["status"] == "AVAILABLE" else None


def story_from(demo: dict[str, Any], **more: Any) -> Story:
    """A story for the first API client that demo.json names."""
    client = demo["api_clients"][0]
    return Story(
        quits=QuitsClient(demo["base_url"], key_id=client["key_id"], secret=client["secret"]),
        simulator=Simulator(demo["simulator"]["base_url"]),
        **more,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Buy nuts and tea, send both back.")
    parser.add_argument("--demo", type=Path, default=Path("var/demo.json"), help="the file that bin/up writes")
    options = parser.parse_args()
    if not options.demo.exists():
        print(f"{options.demo} is not there: run bin/up first", file=sys.stderr)
        return 1
    story_from(json.loads(options.demo.read_text("utf-8"))).tell()
    return 0


if __name__ == "__main__":
    sys.exit(main())
