"""The control API: what a test, a demo or a person does at the make-believe channels. JSON in, JSON out."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable
from datetime import datetime
from types import ModuleType
from typing import Any

from payments.simulator import faults as fault_kinds
from payments.simulator.courier import Courier
from payments.simulator.http import Reply, Request, json_reply
from payments.simulator.store import Row
from payments.simulator.world import CHINA, Impossible, World

Body = dict[str, Any]


class Control:
    def __init__(self, world: World, courier: Courier, wires: dict[str, ModuleType]) -> None:
        self._world = world
        self._courier = courier
        self._wires = wires
        routes: list[tuple[str, str, Callable[..., Any]]] = [
            ("GET", r"health", self.health),
            ("GET", r"state", self.state),
            ("GET", r"settings", self.settings),
            ("POST", r"settings", self.change_settings),
            ("GET", r"clock", self.clock),
            ("POST", r"clock", self.set_clock),
            ("POST", r"reset", self.reset),
            ("GET", r"orders/(?P<out_trade_no>[^/]+)", self.order),
            ("GET", r"refunds/(?P<refund_no>[^/]+)", self.refund),
            ("GET", r"log", self.log),
            ("POST", r"pay", self.pay),
            ("POST", r"trade-state", self.trade_state),
            ("POST", r"settle", self.settle),
            ("GET", r"faults", self.faults),
            ("POST", r"faults", self.inject),
            ("DELETE", r"faults", self.forget_faults),
            ("DELETE", r"faults/(?P<fault_id>\d+)", self.forget_faults),
            ("GET", r"fault-kinds", self.fault_kinds),
            ("POST", r"redeliver", self.redeliver),
            ("POST", r"forge", self.forge),
            ("POST", r"rotate-certificate", self.rotate_certificate),
        ]
        self._routes = [(method, re.compile(f"/control/{path}"), action) for method, path, action in routes]

    def handle(self, request: Request) -> Reply:
        """Only this machine's own programs and pages: a foreign web page's Origin is refused."""
        origin = request.headers.get("origin")
        if origin and origin != f"http://{request.headers.get('host', '')}":
            return json_reply({"error": "foreign origin"}, 403)
        for method, pattern, action in self._routes:
            matched = pattern.fullmatch(request.path)
            if matched is None or method != request.method:
                continue
            try:
                body = request.json() if request.body else {}
                args = matched.groupdict()
                return json_reply(action(**args) if method == "GET" else action(body, **args))
            except Impossible as impossible:
                return json_reply({"error": impossible.reason, "message": impossible.message}, 409)
            except (ValueError, KeyError, TypeError) as error:
                return json_reply({"error": "bad_request", "message": f"{type(error).__name__}: {error}"}, 400)
        return json_reply({"error": "no_such_action"}, 404)

    # -- looking
    # -------------------------------------------------------------------------------------------------

    def health(self) -> Body:
        return {"status": "ok"}

    def state(self) -> Body:
        """The newest orders, refunds, notifies and faults, for the page and for people."""
        store = self._world.store
        trades = store.all("SELECT * FROM trade ORDER BY rowid DESC LIMIT 50")
        return {
            "clock": self.clock(),
            "settings": self._world.settings(),
            "orders": [trade | {"charges": self._world.charges(trade)} for trade in trades],
            "refunds": store.all("SELECT * FROM refund ORDER BY rowid DESC LIMIT 50"),
            "notifies": store.all(
                """SELECT id, channel, kind, event, out_trade_no, refund_no, state, tries, created_at, faults
                   FROM notify ORDER BY rowid DESC LIMIT 50"""
            ),
            "faults": self._world.faults.waiting(),
            "counts": self.counts(),
        }

    def counts(self) -> dict[str, Any]:
        store = self._world.store
        return {
            "calls": store.all("SELECT operation, status, fault, count(*) AS n FROM call GROUP BY 1, 2, 3"),
            "deliveries": store.all("SELECT status, fault, count(*) AS n FROM delivery GROUP BY 1, 2"),
            "notifies": store.all("SELECT kind, state, count(*) AS n FROM notify GROUP BY 1, 2"),
        }

    def order(self, out_trade_no: str) -> Body:
        """All that is known of one order number: trade, charges, refunds, notifies with deliveries, calls."""
        store = self._world.store
        trades = store.all("SELECT * FROM trade WHERE out_trade_no = ?", out_trade_no)
        notifies = store.all("SELECT * FROM notify WHERE out_trade_no = ? ORDER BY created_at", out_trade_no)
        return {
            "orders": trades,
            "charges": store.all("SELECT * FROM charge WHERE out_trade_no = ? ORDER BY rowid", out_trade_no),
            "refunds": store.all("SELECT * FROM refund WHERE out_trade_no = ? ORDER BY rowid", out_trade_no),
            "notifies": [self._with_deliveries(row) for row in notifies],
            "calls": store.all("SELECT * FROM call WHERE out_trade_no = ? ORDER BY id", out_trade_no),
        }

    def refund(self, refund_no: str) -> Body:
        store = self._world.store
        notifies = store.all("SELECT * FROM notify WHERE refund_no = ? ORDER BY created_at", refund_no)
        return {
            "refunds": store.all("SELECT * FROM refund WHERE refund_no = ?", refund_no),
            "notifies": [self._with_deliveries(row) for row in notifies],
            "calls": store.all("SELECT * FROM call WHERE refund_no = ? ORDER BY id", refund_no),
        }

    def _with_deliveries(self, notify: Row) -> Row:
        deliveries = self._world.store.all("SELECT * FROM delivery WHERE notify_id = ? ORDER BY id", notify["id"])
        return notify | {
            "content": json.loads(notify["content"]),
            "faults": json.loads(notify["faults"]),
            "deliveries": deliveries,
        }

    def log(self) -> Body:
        store = self._world.store
        return {
            "calls": store.all("SELECT * FROM call ORDER BY id DESC LIMIT 500"),
            "deliveries": store.all("SELECT * FROM delivery ORDER BY id DESC LIMIT 500"),
            "counts": self.counts(),
        }

    # -- settings and clock
    # --------------------------------------------------------------------------------------

    def settings(self) -> Body:
        return self._world.settings()

    def change_settings(self, body: Body) -> Body:
        return self._world.change_settings(body)

    def clock(self) -> Body:
        business = self._world.business_now()
        return {
            "wall": datetime.fromtimestamp(time.time(), CHINA).isoformat(),
            "business": datetime.fromtimestamp(business, CHINA).isoformat(),
            "offset_seconds": self._world.setting("offset_seconds"),
        }

    def set_clock(self, body: Body) -> Body:
        """``{"offset_seconds": 86400}``, ``{"advance_seconds": 3600}`` or ``{"to":
        "2026-01-02T10:05:00+08:00"}``."""
        if "to" in body:
            self._world.advance_to(datetime.fromisoformat(body["to"]))
        else:
            offset = body.get("offset_seconds", self._world.setting("offset_seconds"))
            self._world.change_settings({"offset_seconds": float(offset) + float(body.get("advance_seconds", 0))})
        return self.clock()

    def reset(self, body: Body) -> Body:
        self._world.reset()
        return {"reset": True}

    # -- acting
    # --------------------------------------------------------------------------------------------------

    def pay(self, body: Body) -> Body:
        """The payer pays. ``notify: false`` keeps it silent; ``again`` charges a second time; ``force``
        ignores closing and expiry."""
        channel = body.get("channel", "wechat")
        with self._world.store.transaction():
            trade = self._world.trade(channel, body["out_trade_no"], body.get("account"))
            charge = self._world.pay(
                trade,
                amount_fen=body.get("amount_fen"),
                voucher_fen=int(body.get("voucher_fen", 0)),
                again=bool(body.get("again", False)),
                force=bool(body.get("force", False)),
            )
            trade = self._world.trade(channel, body["out_trade_no"], trade["account"])
            notify_id = None
            if body.get("notify", True):
                notify_id = self._wires[channel].announce_payment(self._world, trade, charge)
        return {"charge": charge, "notify_id": notify_id}

    def trade_state(self, body: Body) -> Body:
        """Put an unpaid trade into USERPAYING, PAYERROR, NOTPAY, CLOSED or REVOKED."""
        if body["state"] not in ("USERPAYING", "PAYERROR", "NOTPAY", "CLOSED", "REVOKED"):
            raise ValueError("a state of an unpaid trade")
        with self._world.store.transaction():
            trade = self._world.trade(body.get("channel", "wechat"), body["out_trade_no"], body.get("account"))
            if self._world.charges(trade):
                raise Impossible("paid", "the trade is paid")
            self._world.set_trade_state(trade, body["state"])
        return {"state": body["state"]}

    def settle(self, body: Body) -> Body:
        refund = self._world.refund(body.get("channel", "wechat"), body["refund_no"], body.get("account"))
        return {"refund": self._courier.settle(refund, body.get("to", "SUCCESS"))}

    def faults(self) -> Body:
        return {"faults": self._world.faults.waiting()}

    def fault_kinds(self) -> Body:
        operations = [name for wire in self._wires.values() for name in wire.OPERATIONS]
        return {
            "operations": ["notify.payment", "notify.refund", "notify.*", *operations],
            "before": fault_kinds.BEFORE,
            "after": fault_kinds.AFTER,
            "notify": fault_kinds.NOTIFY,
        }

    def inject(self, body: Body) -> Body:
        """``{"operation": "wechat.refund", "kind": "timeout_after", "times": 1, "probability": 1.0,
        "match": {"refund_no": "…"}, "params": {"seconds": 10}}``; ``{"seed": 7}`` alone seeds the dice."""
        if "seed" in body:
            self._world.faults.seed(int(body["seed"]))
            if "operation" not in body:
                return {"seed": body["seed"]}
        fault_id = self._world.faults.inject(
            operation=body["operation"],
            kind=body["kind"],
            times=int(body.get("times", 1)),
            probability=float(body.get("probability", 1.0)),
            match=body.get("match"),
            params=body.get("params"),
        )
        return {"id": fault_id}

    def forget_faults(self, body: Body, fault_id: str | None = None) -> Body:
        return {"forgotten": self._world.faults.forget(int(fault_id) if fault_id else None)}

    def redeliver(self, body: Body) -> Body:
        """Send the latest notify of an order (or refund, or a notify by id) again, ``times`` times."""
        notify_id = body.get("notify_id") or self._latest_notify(body)["id"]
        deliveries = self._courier.redeliver(
            notify_id,
            times=int(body.get("times", 1)),
            parallel=bool(body.get("parallel", True)),
            faults=list(body.get("faults", [])),
        )
        return {"notify_id": notify_id, "deliveries": deliveries}

    def _latest_notify(self, body: Body) -> Row:
        kind = "refund" if "refund_no" in body else "payment"
        row = self._world.store.one(
            """SELECT * FROM notify WHERE kind = ? AND (refund_no = ? OR (? = 'payment' AND out_trade_no = ?))
               ORDER BY created_at DESC LIMIT 1""",
            kind,
            body.get("refund_no", "-"),
            kind,
            body.get("out_trade_no", "-"),
        )
        if row is None:
            raise Impossible("no_notify", "no notify yet")
        return row

    def forge(self, body: Body) -> Body:
        """Post a notify that nothing stands behind: claims an unpaid (or any) order is paid. ``how`` is one
        of forged (default), stale, unknown_serial, altered_body, signtest, malformed."""
        channel = body.get("channel", "wechat")
        trade = self._world.trade(channel, body["out_trade_no"], body.get("account"))
        charge = {
            "channel": channel,
            "account": trade["account"],
            "trade_no": body.get("trade_no") or self._world.new_trade_no(channel),
            "out_trade_no": trade["out_trade_no"],
            "amount_fen": body.get("amount_fen", trade["total_fen"]),
            "payer_fen": body.get("amount_fen", trade["total_fen"]),
            "voucher_fen": 0,
            "paid_at": self._world.business_now(),
        }
        notify = {
            "id": f"forged-{secrets.token_hex(8)}",
            "channel": channel,
            "account": trade["account"],
            "kind": "payment",
            "event": "TRANSACTION.SUCCESS",
            "out_trade_no": trade["out_trade_no"],
            "refund_no": "",
            "url": body.get("url") or trade["notify_url"],
            "content": json.dumps(self._wires[channel].payment_content(self._world, trade, charge)),
            "state": "FORGED",
            "tries": 0,
            "next_at": 0,
            "created_at": time.time(),
            "faults": json.dumps([[body.get("how", "forged"), {}]]),
        }
        self._world.store.insert("notify", **notify)
        deliveries = self._courier.redeliver(
            notify["id"], times=int(body.get("times", 1)), parallel=True, faults=[body.get("how", "forged")]
        )
        return {"notify_id": notify["id"], "deliveries": deliveries}

    def rotate_certificate(self, body: Body) -> Body:
        if body.get("channel") == "alipay":
            return {"serial": self._world.rotate_alipay_certificate(forged=bool(body.get("forged", False)))}
        serial = self._world.rotate_certificate(retire_old=bool(body.get("retire_old", False)))
        return {"serial": serial}
