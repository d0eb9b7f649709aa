"""One mini-program backend under torment: `python -m tests.faults.traffic SETTINGS.json`.

Each thread leads one purchase after the other by the example client, and never gives up: a lost answer is asked for
again under the same idempotency key. What was acknowledged is written down, for the books to be held against it.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
import traceback
import urllib.error
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.faults.desk import Away, Desk
from tests.faults.shared import ASKING, BETWEEN, IDLE, WAITING, Board
from tests.house_in_a_box import ROOT

sys.path.insert(0, str(ROOT / "examples"))
from quits_client import QuitsClient, QuitsError
from story import ADDRESS, NUT, TEA, Simulator, Story

AGAIN = {429, 500, 502, 503, 504}
IN_PROGRESS = {"STILL_IN_PROGRESS", "CHANNEL_AWAY", "SERVICE_AWAY"}
PAID, ENDED = (10, 20, 30), (40, 50)
LIVES = {
    "return_all": 20,
    "return_one": 16,
    "keep": 12,
    "refund_unshipped": 12,
    "claim_cancelled": 8,
    "claim_rejected": 6,
    "cancel": 8,
    "cancel_while_paying": 8,
    "pay_twice": 6,
    "pay_late": 6,
    "leave_order": 5,
    "leave_quote": 4,
}
LEAVE_BEFORE_END = 80.0
"""Purchases that nobody ends have to run into their time-out before the run is over."""


class GivenUp(Exception):
    """A step did not come to its end although everything has been quiet for long: that is a finding."""


@dataclass
class Journal:
    """What the clients know: outcomes, answers by status, and what Quits has promised with a 2xx."""

    path: Path
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, **entry: Any) -> None:
        with self.lock, self.path.open("a") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


class Persistent(QuitsClient):
    """The example client, with the one thing that a serious caller adds: it asks again under the same key."""

    def __init__(self, *args: Any, report: Callable[[int], None], counts: Counter[str], stop_at: float, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._report, self._counts, self._stop_at = report, counts, stop_at

    def request(self, method: str, path: str, body: Any = None, *, headers: Any = None) -> tuple[int, Any]:
        pause = 0.1
        while True:
            self._report(ASKING)
            try:
                status, answer = super().request(method, path, body, headers=headers)
                self._counts[str(status)] += 1
                return status, answer
            except QuitsError as error:
                self._counts[f"{error.status} {error.code}"] += 1
                if error.status not in AGAIN and error.code not in IN_PROGRESS:
                    raise
                why: Exception = error
            except (OSError, HTTPException) as error:
                self._counts[type(error).__name__] += 1
                why = error
            finally:
                self._report(BETWEEN)
            if time.time() > self._stop_at:
                raise GivenUp(f"{method} {path}: {why}")
            time.sleep(pause)
            pause = min(pause * 2, 2.0)


class Buyer:
    """One thread: its own will, its own places on the board, one life after the other."""

    def __init__(self, settings: dict[str, Any], number: int, journal: Journal, board: Board):
        self.settings, self.number, self.journal, self.board = settings, number, journal, board
        self.will = random.Random(settings["seed"] * 1009 + number)
        self.counts: Counter[str] = Counter()
        client = settings["demo"]["api_clients"][0]
        self.quits = Persistent(
            settings["demo"]["base_url"],
            key_id=client["key_id"],
            secret=client["secret"],
            report=self.say,
            counts=self.counts,
            stop_at=settings["give_up_at"],
        )
        self.simulator = Simulator(settings["demo"]["simulator"]["base_url"])
        login = settings["logins"][number % len(settings["logins"])]
        self.desk = Desk(settings["demo"]["base_url"], login, busy=lambda on: self.say(ASKING if on else BETWEEN))
        self.story = Story(self.quits, self.simulator)

    def say(self, state: int) -> None:
        self.board.put(self.number, state)

    def live(self) -> None:
        """Purchases until the time is over; each comes to its end even then."""
        count = 0
        while time.time() < self.settings["until"]:
            count += 1
            lives = dict(LIVES)
            if time.time() > self.settings["until"] - LEAVE_BEFORE_END:
                lives["leave_order"] = lives["leave_quote"] = 0
            [name] = self.will.choices(list(lives), list(lives.values()))
            outcome = self._one_life(name, count)
            self.journal.write(kind="life", life=name, outcome=outcome, order=self.story.quote.get("order_no", ""))
        self.say(IDLE)
        self.journal.write(kind="answers", counts=dict(self.counts))

    def _one_life(self, name: str, count: int) -> str:
        user = f"faults-{self.settings['seed']}-{self.number}-{count}"
        self.story = Story(self.quits, self.simulator, user_id=user, say=lambda _text: None)
        try:
            return getattr(self, name)() or "done"
        except QuitsError as error:
            return f"refused {error.code}"
        except GivenUp as error:
            return f"STUCK {error}"
        except Exception as error:  # a broken promise or a mistake of ours: both are findings
            traceback.print_exc()
            return f"BROKEN {error!r}"

    # --- steps --------------------------------------------------------------------------------------------------

    def buy(self, *, pay: bool = True) -> None:
        """Coupon, quote, order, and usually the payment; every promise is written down."""
        story = self.story
        if self.will.random() < 0.7:
            story.get_coupon()
            self.promised("coupon", story.coupon["coupon_id"])
        self.quote()
        story.place_order()
        self.promised("order", story.order_no)
        if story.order_no != story.quote["order_no"]:
            raise AssertionError(f"order {story.order_no} of quote {story.quote['order_no']}")
        self.now_and_then_again(story.place_order, lambda: story.order)
        story.payment = self.place_payment()
        if pay:
            self.pay_at_channel()

    def quote(self) -> None:
        story = self.story
        lines = self.will.choice([[NUT, TEA], [NUT, TEA], [{**NUT, "qty": 2}, TEA], [TEA, {**NUT, "qty": 3}]])
        body = {"user_id": story.user_id, "lines": lines, "freight_fen": 1000, "address": ADDRESS}
        if story.coupon:
            body["coupon_id"] = story.coupon["coupon_id"]
        story.quote = self.quits.post("/quotes", body, idempotency_key=f"quote:{story.user_id}")

    def now_and_then_again(self, act: Callable[[], Any], result: Callable[[], Any]) -> None:
        """The same request once more: the same answer, and nothing happens twice."""
        if self.will.random() < 0.15:
            before = result()
            act()
            if result() != before:
                raise AssertionError(f"another answer to the same request: {before} / {result()}")

    def place_payment(self) -> dict[str, Any]:
        story = self.story
        return self.quits.post(
            f"/orders/{story.order_no}/pay",
            {"user_id": story.user_id, "payer_ref": f"openid-{story.user_id}"},
            idempotency_key=f"pay:{story.order_no}",
        )

    def pay_at_channel(self, **more: Any) -> bool:
        """The buyer's thumb. False: the channel does not take the money (closed, or paid already)."""
        try:
            self.simulator.post("/control/pay", {"out_trade_no": self.story.payment["out_trade_no"], **more})
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise
            return False
        return True

    def ask_until(self, what: str, look: Callable[[], Any]) -> Any:
        """Ask again until there is an answer; a worker has to do something for it."""
        pause = 0.2
        while True:
            found = look()
            if found:
                return found
            if time.time() > self.settings["give_up_at"]:
                raise GivenUp(what)
            self.say(WAITING)
            time.sleep(pause)
            pause = min(pause * 1.3, 1.5)

    def until_paid(self) -> bool:
        """False: the order has ended unpaid instead."""
        order = self.ask_until(
            f"{self.story.order_no} to be paid",
            lambda: (order := self.story.read_order())["status"] in (*PAID, *ENDED) and order,
        )
        if order["status"] in PAID:
            self.promised("paid", self.story.order_no)
        return order["status"] in PAID

    def ship_and_sign(self) -> None:
        story = self.story

        def ship() -> Any:
            return self.quits.post(
                f"/orders/{story.order_no}/ship",
                {"carrier": "SF", "tracking_no": f"SF{story.order_no}"},
                idempotency_key=f"ship:{story.order_no}:1",
            )

        shipment = self.patiently(ship, "COUPON_NOT_SETTLED")
        self.quits.post(
            f"/orders/{story.order_no}/sign",
            {"shipment_id": shipment["shipment_id"]},
            idempotency_key=f"sign:{story.order_no}:1",
        )
        self.promised("signed", story.order_no)

    def patiently(self, act: Callable[[], Any], *codes: str) -> Any:
        """Again while Quits says that it has to settle something first."""

        def look() -> Any:
            try:
                return act()
            except QuitsError as error:
                if error.code in codes:
                    return None
                raise

        return self.ask_until(f"{self.story.order_no}: {codes}", look)

    def claim(self, name: str, *, line_no: int, type: int = 2, reason: str = "quality", qty: int = 1) -> str:
        story = self.story
        wish = {
            "order_no": story.order_no,
            "user_id": story.user_id,
            "items": [{"line_no": line_no, "type": type, "qty": qty, "reason_code": reason}],
        }
        applied = self.quits.post("/after-sales", wish, idempotency_key=f"claim:{story.order_no}:{name}")
        number = story.claims[name] = applied["after_sales"][0]["after_sales_no"]
        self.promised("claim", number)
        return number

    def merchant(self, name: str, button: str, *wanted: str) -> None:
        """The merchant presses until the claim stands where it should, or further."""

        def look() -> Any:
            if self.story.read_claim(name)["status"] in wanted:
                return True
            try:
                self.desk.press(self.story.claims[name], button)
            except Away as away:
                self.counts[f"desk: {str(away)[:60]}"] += 1
                return None
            return self.story.read_claim(name)["status"] in wanted

        self.ask_until(f"{button} of {self.story.claims[name]}", look)

    def until_refunded(self, *names: str) -> None:
        for name in names:
            self.ask_until(
                f"refund of {self.story.claims[name]}",
                lambda name=name: self.story.read_claim(name)["status"] == "REFUND_SUCCESS",
            )
            self.promised("refunded", self.story.claims[name])

    def send_back_and_receive(self, *names: str) -> None:
        for name in names:
            self.merchant(name, "approve", "WAIT_BUYER_RETURN")
        for name in names:
            self.story.send_back(name)
        for name in names:
            self.merchant(name, "confirm_return", "REFUNDING", "REFUND_SUCCESS")
        self.until_refunded(*names)

    def promised(self, what: str, number: str) -> None:
        self.journal.write(kind="promise", what=what, number=number)

    # --- lives --------------------------------------------------------------------------------------------------

    def bought(self) -> bool:
        self.buy()
        return self.until_paid()

    def delivered(self) -> bool:
        if not self.bought():
            return False
        self.ship_and_sign()
        return True

    def keep(self) -> str | None:
        return None if self.delivered() else "ended unpaid"

    def return_one(self) -> str | None:
        if not self.delivered():
            return "ended unpaid"
        self.claim("one", line_no=self.will.choice([1, 2]))
        self.send_back_and_receive("one")
        return None

    def return_all(self) -> str | None:
        if not self.delivered():
            return "ended unpaid"
        quantities = {line["line_no"]: line["qty"] for line in self.story.read_order()["lines"]}
        for line_no, qty in quantities.items():
            self.claim(f"line-{line_no}", line_no=line_no, qty=qty)
        self.send_back_and_receive(*self.story.claims)
        return None

    def refund_unshipped(self) -> str | None:
        if not self.bought():
            return "ended unpaid"
        self.claim("unshipped", line_no=self.will.choice([1, 2]), type=1, reason="changed_mind")
        self.merchant("unshipped", "approve", "REFUNDING", "REFUND_SUCCESS")
        self.until_refunded("unshipped")
        return None

    def claim_cancelled(self) -> str | None:
        if not self.delivered():
            return "ended unpaid"
        number = self.claim("withdrawn", line_no=1)
        self.quits.post(
            f"/after-sales/{number}/cancel", {"user_id": self.story.user_id}, idempotency_key=f"withdraw:{number}"
        )
        self.claim("again", line_no=1)
        self.send_back_and_receive("again")
        return None

    def claim_rejected(self) -> str | None:
        if not self.delivered():
            return "ended unpaid"
        self.claim("refused", line_no=2)
        self.merchant("refused", "reject", "REJECTED")
        return None

    def cancel(self) -> str:
        self.buy(pay=False)
        return self.call_off()

    def call_off(self) -> str:
        """Cancel as a buyer does; the answer may be that the money came first."""
        story = self.story

        def ask() -> Any:
            return self.quits.post(
                f"/orders/{story.order_no}/cancel",
                {"user_id": story.user_id, "reason": "changed my mind"},
                idempotency_key=f"cancel:{story.order_no}",
            )

        self.patiently(ask, "GATEWAY_UNDECIDED")
        self.promised("cancelled", story.order_no)
        return "cancelled"

    def cancel_while_paying(self) -> str:
        self.buy(pay=False)
        paying = threading.Thread(target=lambda: self.pay_at_channel(force=True))
        paying.start()
        try:
            return self.call_off()
        finally:
            paying.join()

    def pay_twice(self) -> str | None:
        self.buy()
        self.pay_at_channel(again=True)
        return None if self.until_paid() else "ended unpaid"

    def pay_late(self) -> str:
        """After the cancellation the money comes all the same: it goes back."""
        self.buy(pay=False)
        said = self.call_off()
        self.pay_at_channel(force=True)
        return f"{said}, then paid"

    def leave_order(self) -> str:
        self.buy(pay=False)
        return "left unpaid"

    def leave_quote(self) -> str:
        self.story.get_coupon()
        self.quote()
        return "left as a quote"


def main() -> int:
    settings = json.loads(Path(sys.argv[1]).read_text())
    journal, board = Journal(Path(settings["journal"])), Board(Path(settings["board"]))
    buyers = [Buyer(settings, number, journal, board) for number in settings["numbers"]]
    threads = [threading.Thread(target=buyer.live, name=f"buyer {buyer.number}") for buyer in buyers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
