"""What happens at the make-believe channels, whatever wire it was asked on: trades, charges, refunds, their
notifies.

Two clocks: the *wall* clock stamps and checks signatures and paces retries; the *business* clock (wall plus
an offset that can be moved) dates payments, refunds and bills.
"""

from __future__ import annotations

import fcntl
import json
import secrets
import threading
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from payments.simulator.crypto import certificate_sn
from payments.simulator.faults import Faults
from payments.simulator.keys import ensure_keys, make_certificate, make_leaf, pair, save_keys
from payments.simulator.store import Row, Store

CHINA = ZoneInfo("Asia/Shanghai")
MAX_REFUNDS = 50
REFUND_DAYS = 365

SETTINGS: dict[str, Any] = {
    "auto_settle": True,
    "refund_delay_seconds": 0.3,
    "refund_outcome": "SUCCESS",
    "refund_spacing_seconds": 0.0,
    "notify_speed": 60.0,
    "notify_key": "public_key",
    "bills_always_ready": False,
    "offset_seconds": 0.0,
    "answer_key": "as_asked",
    "fee_rate": 0.0,
}
"""``notify_key``: public_key, certificate or mix. ``notify_speed`` divides the channel's real retry pauses.
``answer_key``: as_asked (the key a request names), public_key or certificate. ``fee_rate``: what WeChat Pay keeps of a
payment and gives back with a refund, for example 0.006."""


class Impossible(Exception):
    """A channel's own rule forbids it. ``reason`` is a short word the wires translate."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class World:
    def __init__(self, state: Path) -> None:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.state = state
        self._claim = (state / "lock").open("w")
        fcntl.flock(self._claim, fcntl.LOCK_EX | fcntl.LOCK_NB)  # two would send every notify twice
        self.keys = ensure_keys(state)
        self.store = Store(state / "channels.sqlite3")
        self.faults = Faults(self.store)
        self.stirred = threading.Event()
        self._settings = SETTINGS | self.store.setting("settings", {})

    # -- settings and clocks
    # -------------------------------------------------------------------------------------

    def setting(self, name: str) -> Any:
        return self._settings[name]

    def settings(self) -> dict[str, Any]:
        return dict(self._settings)

    def change_settings(self, changes: dict[str, Any]) -> dict[str, Any]:
        unknown = set(changes) - set(SETTINGS)
        if unknown:
            raise ValueError(f"unknown settings: {', '.join(sorted(unknown))}")
        for name, value in changes.items():
            kind = type(SETTINGS[name])
            if kind is float and isinstance(value, int) and not isinstance(value, bool):
                value = float(value)
            if not isinstance(value, kind):
                raise ValueError(f"{name} must be {kind.__name__}")
            self._settings[name] = value
        self.store.set("settings", self._settings)
        self.stirred.set()
        return self.settings()

    def business_now(self) -> float:
        return time.time() + float(self._settings["offset_seconds"])

    def business_day(self, moment: float) -> date:
        return datetime.fromtimestamp(moment, CHINA).date()

    def advance_to(self, moment: datetime) -> None:
        self.change_settings({"offset_seconds": moment.timestamp() - time.time()})

    def bill_is_ready(self, bill_on: date) -> bool:
        """A day's bill is there from 10:00 of the next, on the business clock in China."""
        if self.setting("bills_always_ready"):
            return True
        ready = datetime(bill_on.year, bill_on.month, bill_on.day, 10, tzinfo=CHINA) + timedelta(days=1)
        return self.business_now() >= ready.timestamp()

    def rotate_certificate(self, *, retire_old: bool) -> str:
        fresh = make_certificate()
        old = [] if retire_old else self.keys["wechat"]["certificates"]
        self.keys["wechat"]["certificates"] = [*old, fresh]
        save_keys(self.state, self.keys)
        return fresh["serial"]

    def rotate_alipay_certificate(self, *, forged: bool) -> str:
        """Alipay signs with a new key and certificate from now on; ``forged``: one that another root issued."""
        alipay = self.keys["alipay"]
        fresh = make_leaf(
            "Make-believe Alipay",
            pair()["private_key"],
            self.keys["forger"]["root"] if forged else alipay["issuer"],
        )
        alipay["certificates"] = [*alipay["certificates"], fresh]
        save_keys(self.state, self.keys)
        return certificate_sn(fresh["certificate"])

    def reset(self) -> None:
        """Forget everything that happened and every setting; the keys stay."""
        self.store.wipe()
        self._settings = dict(SETTINGS)

    # -- trades
    # --------------------------------------------------------------------------------------------------

    def trade(self, channel: str, out_trade_no: str, account: str | None = None) -> Row:
        rows = self.store.all(
            "SELECT * FROM trade WHERE channel = ? AND out_trade_no = ? AND (? IS NULL OR account = ?)",
            channel,
            out_trade_no,
            account,
            account,
        )
        if len(rows) != 1:
            raise Impossible("no_trade", f"{len(rows)} trades {out_trade_no}")
        return rows[0]

    def place_trade(self, trade: Row) -> Row:
        """A new trade, or the one that is there when it is the same; a paid, closed or different one is
        refused."""
        with self.store.transaction():
            old = self.store.one(
                "SELECT * FROM trade WHERE channel = ? AND account = ? AND out_trade_no = ?",
                trade["channel"],
                trade["account"],
                trade["out_trade_no"],
            )
            if old is None:
                fresh = trade | {"state": "NOTPAY", "created_at": self.business_now()}
                self.store.insert("trade", **fresh)
                return fresh | {"trade_no": trade.get("trade_no", "")}
            if self.charges(old):
                raise Impossible("paid", "该订单已支付")
            if old["state"] in ("CLOSED", "REVOKED"):
                raise Impossible("closed", "订单已关闭")
            same = ("app_id", "payer", "total_fen", "description", "notify_url")
            if any(old[name] != trade[name] for name in same):
                raise Impossible("differs", "商户订单号重复")
            return old

    def charges(self, trade: Row) -> list[Row]:
        return self.store.all(
            "SELECT * FROM charge WHERE channel = ? AND account = ? AND out_trade_no = ? ORDER BY rowid",
            trade["channel"],
            trade["account"],
            trade["out_trade_no"],
        )

    def charge(self, channel: str, account: str, trade_no: str) -> Row | None:
        return self.store.one(
            "SELECT * FROM charge WHERE channel = ? AND account = ? AND trade_no = ?",
            channel,
            account,
            trade_no,
        )

    def pay(
        self,
        trade: Row,
        *,
        amount_fen: int | None = None,
        voucher_fen: int = 0,
        again: bool = False,
        force: bool = False,
        trade_no: str | None = None,
    ) -> Row:
        """The payer pays. ``again`` makes a second charge of a paid trade; ``force`` pays a closed or expired
        one."""
        with self.store.transaction():
            trade = self.trade(trade["channel"], trade["out_trade_no"], trade["account"])
            paid = self.charges(trade)
            if paid and not again:
                raise Impossible("paid", "already paid; say again for a second charge")
            if not force and not paid:
                if trade["state"] in ("CLOSED", "REVOKED"):
                    raise Impossible("closed", "the trade is closed; say force")
                if trade["expires_at"] and min(time.time(), self.business_now()) > trade["expires_at"]:
                    raise Impossible("expired", "the trade has expired; say force")
            amount = trade["total_fen"] if amount_fen is None else amount_fen
            if amount < 1 or not 0 <= voucher_fen <= amount:
                raise Impossible("amount", "amount_fen ≥ 1 and 0 ≤ voucher_fen ≤ amount_fen")
            number = trade_no or (trade["trade_no"] if not paid else None) or self.new_trade_no(trade["channel"])
            charge = {
                "channel": trade["channel"],
                "account": trade["account"],
                "trade_no": number,
                "out_trade_no": trade["out_trade_no"],
                "amount_fen": amount,
                "payer_fen": amount - voucher_fen,
                "voucher_fen": voucher_fen,
                "paid_at": self.business_now(),
            }
            self.store.insert("charge", **charge)
            if not paid:
                self.set_trade_state(trade, "SUCCESS")
                self.store.run(
                    "UPDATE trade SET trade_no = ? WHERE channel = ? AND account = ? AND out_trade_no = ?",
                    number,
                    trade["channel"],
                    trade["account"],
                    trade["out_trade_no"],
                )
            return charge

    def set_trade_state(self, trade: Row, state: str) -> None:
        self.store.run(
            "UPDATE trade SET state = ? WHERE channel = ? AND account = ? AND out_trade_no = ?",
            state,
            trade["channel"],
            trade["account"],
            trade["out_trade_no"],
        )

    @staticmethod
    def new_trade_no(channel: str) -> str:
        day = datetime.now(UTC).astimezone(CHINA).strftime("%Y%m%d")
        if channel == "wechat":
            return f"4200{secrets.randbelow(10**6):06d}{day}{secrets.randbelow(10**10):010d}"
        return f"{day}22001{secrets.randbelow(10**15):015d}"

    # -- refunds
    # -------------------------------------------------------------------------------------------------

    def refund(self, channel: str, refund_no: str, account: str | None = None) -> Row:
        rows = self.store.all(
            "SELECT * FROM refund WHERE channel = ? AND refund_no = ? AND (? IS NULL OR account = ?)",
            channel,
            refund_no,
            account,
            account,
        )
        if len(rows) != 1:
            raise Impossible("no_refund", f"{len(rows)} refunds {refund_no}")
        return rows[0]

    def refunds_of(self, charge: Row) -> list[Row]:
        return self.store.all(
            "SELECT * FROM refund WHERE channel = ? AND account = ? AND trade_no = ? ORDER BY rowid",
            charge["channel"],
            charge["account"],
            charge["trade_no"],
        )

    def place_refund(
        self, charge: Row, *, refund_no: str, amount_fen: int, total_fen: int, reason: str, notify_url: str
    ) -> Row:
        """Accept a refund. The same number with the same fields answers what is there; with others it is
        refused."""
        with self.store.transaction():
            old = self.store.one(
                "SELECT * FROM refund WHERE channel = ? AND account = ? AND refund_no = ?",
                charge["channel"],
                charge["account"],
                refund_no,
            )
            if old is not None:
                asked = (charge["trade_no"], amount_fen, total_fen)
                if (old["trade_no"], old["amount_fen"], old["total_fen"]) != asked:
                    raise Impossible("differs", "订单金额或退款金额与之前请求不一致，请核实后再试")
                return old
            self._check_refund(charge, amount_fen, total_fen)
            return self._accept_refund(charge, refund_no, amount_fen, total_fen, reason, notify_url)

    def _check_refund(self, charge: Row, amount_fen: int, total_fen: int) -> None:
        now = self.business_now()
        live = [row for row in self.refunds_of(charge) if row["state"] != "CLOSED"]
        if total_fen != charge["amount_fen"]:
            raise Impossible("total", "订单金额与支付金额不一致")
        if now - charge["paid_at"] > REFUND_DAYS * 86400:
            raise Impossible("too_old", "订单已经超过可退款的最大期限")
        if len(live) >= MAX_REFUNDS:
            raise Impossible("too_many", "部分退款次数超限")
        if sum(row["amount_fen"] for row in live) + amount_fen > charge["amount_fen"]:
            raise Impossible("too_much", "申请退款金额大于可退金额")
        spacing = self.setting("refund_spacing_seconds")
        if live and now - max(row["created_at"] for row in live) < spacing:
            raise Impossible("too_fast", "同一笔订单多次退款的请求需有间隔")

    def _accept_refund(self, charge: Row, refund_no: str, amount: int, total: int, reason: str, notify_url: str) -> Row:
        payer = amount * charge["payer_fen"] // total
        automatic = self.setting("auto_settle")
        refund = {
            "channel": charge["channel"],
            "account": charge["account"],
            "refund_no": refund_no,
            "refund_id": f"5030{secrets.randbelow(10**25):025d}",
            "trade_no": charge["trade_no"],
            "out_trade_no": charge["out_trade_no"],
            "amount_fen": amount,
            "payer_fen": payer,
            "voucher_fen": amount - payer,
            "total_fen": total,
            "state": "PROCESSING",
            "first_state": "PROCESSING",
            "reason": reason,
            "notify_url": notify_url,
            "received_by": "支付用户零钱",
            "created_at": self.business_now(),
            "succeeded_at": None,
            "settle_at": time.time() + self.setting("refund_delay_seconds") if automatic else None,
            "settle_to": self.setting("refund_outcome"),
        }
        self.store.insert("refund", **refund)
        self.stirred.set()
        return refund

    def settle(self, refund: Row, to: str) -> Row:
        """End a refund that is being processed: SUCCESS, ABNORMAL or CLOSED. ABNORMAL may still become any of
        them."""
        if to not in ("SUCCESS", "ABNORMAL", "CLOSED"):
            raise Impossible("state", "SUCCESS, ABNORMAL or CLOSED")
        with self.store.transaction():
            same_day = self.business_day(refund["created_at"]) == self.business_day(self.business_now())
            changed = self.store.run(
                """UPDATE refund SET state = ?, settle_at = NULL, succeeded_at = ?,
                          first_state = CASE WHEN ? THEN ? ELSE first_state END
                   WHERE channel = ? AND account = ? AND refund_no = ? AND state IN ('PROCESSING', 'ABNORMAL')
                     AND state <> ?""",
                to,
                self.business_now() if to == "SUCCESS" else None,
                same_day,
                to,
                refund["channel"],
                refund["account"],
                refund["refund_no"],
                to,
            )
            if not changed:
                raise Impossible("state", "the refund is not being processed")
            return self.refund(refund["channel"], refund["refund_no"], refund["account"])

    def resume_abnormal(self, refund: Row, received_by: str) -> Row:
        with self.store.transaction():
            if refund["state"] != "ABNORMAL":
                raise Impossible("state", "只有退款异常的退款单可以发起异常退款")
            self.store.run(
                """UPDATE refund SET state = 'PROCESSING', received_by = ?, settle_at = ?, settle_to =
                'SUCCESS'
                   WHERE refund_id = ?""",
                received_by,
                time.time() + self.setting("refund_delay_seconds") if self.setting("auto_settle") else None,
                refund["refund_id"],
            )
            self.stirred.set()
            return self.refund(refund["channel"], refund["refund_no"], refund["account"])

    def due_refunds(self) -> list[Row]:
        return self.store.all(
            "SELECT * FROM refund WHERE state = 'PROCESSING' AND settle_at <= ? ORDER BY settle_at LIMIT 100",
            time.time(),
        )

    # -- notifies
    # ------------------------------------------------------------------------------------------------

    def announce(
        self,
        *,
        channel: str,
        account: str,
        kind: str,
        event: str,
        url: str,
        content: dict[str, Any],
        out_trade_no: str,
        refund_no: str = "",
    ) -> str:
        """Queue a notify; faults waiting for ``notify.payment`` or ``notify.refund`` strike it here, once."""
        facts = {"out_trade_no": out_trade_no, "refund_no": refund_no, "event": event, "channel": channel}
        struck = self.faults.take(f"notify.{kind}", facts)
        state, next_at = "PENDING", time.time()
        for fault in struck:
            if fault.kind == "silent":
                state = "SILENCED"
            elif fault.kind == "delay":
                next_at += fault.seconds(5)
            elif fault.kind == "out_of_order" and state == "PENDING":
                state, next_at = "HELD", next_at + fault.seconds(3)
        notify_id = f"{secrets.token_hex(4)}-{secrets.token_hex(2)}-{secrets.token_hex(10)}"
        self.store.insert(
            "notify",
            id=notify_id,
            channel=channel,
            account=account,
            kind=kind,
            event=event,
            out_trade_no=out_trade_no,
            refund_no=refund_no,
            url=url,
            content=json.dumps(content, ensure_ascii=False),
            state=state,
            tries=0,
            next_at=next_at,
            created_at=time.time(),
            faults=json.dumps([[fault.kind, fault.params] for fault in struck]),
        )
        self.stirred.set()
        return notify_id
