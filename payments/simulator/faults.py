"""What can be made to go wrong, and when. A fault is a row: an operation, a kind, how often, with what
probability."""

from __future__ import annotations

import fnmatch
import json
import random
from dataclasses import dataclass, field
from typing import Any

from payments.simulator.store import Store

BEFORE = {
    "refuse": "a signed refusal: status, code, message",
    "not_enough": "403 NOT_ENOUGH (Alipay: ACQ.SELLER_BALANCE_NOT_ENOUGH), nothing accepted",
    "rate_limited": "429 FREQUENCY_LIMITED (Alipay: isv.app-call-limited), nothing accepted",
    "user_abnormal": "403 USER_ACCOUNT_ABNORMAL",
    "server_error": "500 without accepting",
    "reset": "connection reset without accepting",
    "timeout": "silence without accepting",
}
AFTER = {
    "delay": "accept, answer after seconds",
    "server_error_after": "accept, answer 500",
    "reset_after": "accept, reset the connection",
    "timeout_after": "accept, never answer",
    "forged": "answer signed by the forger under the platform's name",
    "unsigned": "answer without signature",
    "stale": "answer signed ten minutes ago",
    "unknown_serial": "answer signed under an unknown key id",
    "key_mix": "answer signed with the platform's other key",
    "altered_body": "answer changed after signing",
    "signtest": "answer with a signature probe",
    "garbage": "answer that is no JSON, validly signed",
    "wrong_amount": "answer with another amount (amount_fen), validly signed",
    "wrong_order": "answer about another order, validly signed",
    "corrupt_bill": "a bill whose bytes do not fit its hash",
    "bill_omit": "a good bill without the rows of number (a refund or order number)",
    "bill_amount": "a good bill with another amount (amount_fen) in the rows of number",
    "bill_twice": "a good bill with the rows of number twice",
    "bill_extra": "a good fund-flow bill with one movement more: business, side (收入 or 支出), amount_fen, number",
}
NOTIFY = {
    "delay": "first sent after seconds",
    "duplicate": "every sending is made copies times in parallel",
    "out_of_order": "held until another notify was acknowledged, at most seconds",
    "silent": "never sent",
    "wrong_amount": "validly signed, another amount (amount_fen)",
    "wrong_account": "validly signed, another merchant's number inside",
    "wrong_app": "validly signed, another app id inside",
    "forged": "the first sending is signed by the forger; the retry is good",
    "stale": "the first sending was signed ten minutes ago; the retry is good",
    "key_mix": "signed with the platform's other key, which is valid",
    "unknown_serial": "the first sending names an unknown key; the retry is good",
    "altered_body": "the first sending is changed after signing; the retry is good",
    "signtest": "the first sending carries a signature probe; the retry is good",
    "malformed": "the first sending is validly signed garbage; the retry is good",
}

REFUSALS = {
    "not_enough": (403, "NOT_ENOUGH", "商户余额不足"),
    "rate_limited": (429, "FREQUENCY_LIMITED", "频率超限"),
    "user_abnormal": (403, "USER_ACCOUNT_ABNORMAL", "用户账户异常"),
}


@dataclass(frozen=True)
class Fault:
    kind: str
    params: dict[str, Any] = field(default_factory=dict)

    def seconds(self, default: float) -> float:
        return float(self.params.get("seconds", default))


class Faults:
    """Faults waiting to happen. ``operation`` may end in ``*``; ``match`` names fields of the call that must
    be equal."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dice = random.Random()

    def seed(self, seed: int) -> None:
        self._dice.seed(seed)

    def inject(
        self,
        *,
        operation: str,
        kind: str,
        times: int = 1,
        probability: float = 1.0,
        match: dict[str, str] | None = None,
        params: dict[str, Any] | None = None,
    ) -> int:
        """Raises ValueError for a kind that this operation does not know. ``times`` −1 means always."""
        known = NOTIFY if operation.startswith("notify.") else BEFORE | AFTER
        if kind not in known:
            raise ValueError(f"{operation} has no fault {kind!r}; it has {', '.join(sorted(known))}")
        return self._store.insert(
            "fault",
            operation=operation,
            kind=kind,
            params=json.dumps(params or {}),
            match=json.dumps(match or {}),
            remaining=times,
            probability=probability,
        )

    def take(self, operation: str, facts: dict[str, Any]) -> list[Fault]:
        """The faults that strike this call; each of them is used up by one."""
        taken = []
        with self._store.transaction():
            for row in self._store.all("SELECT * FROM fault WHERE remaining <> 0 ORDER BY id"):
                if not fnmatch.fnmatchcase(operation, row["operation"]):
                    continue
                if any(str(facts.get(name)) != str(value) for name, value in json.loads(row["match"]).items()):
                    continue
                if self._dice.random() >= row["probability"]:
                    continue
                self._store.run(
                    "UPDATE fault SET remaining = remaining - (remaining > 0), used = used + 1 WHERE id = ?",
                    row["id"],
                )
                taken.append(Fault(row["kind"], json.loads(row["params"])))
        return taken

    def waiting(self) -> list[dict[str, Any]]:
        rows = self._store.all("SELECT * FROM fault ORDER BY id")
        return [row | {"params": json.loads(row["params"]), "match": json.loads(row["match"])} for row in rows]

    def forget(self, fault_id: int | None = None) -> int:
        if fault_id is None:
            return self._store.run("DELETE FROM fault")
        return self._store.run("DELETE FROM fault WHERE id = ?", fault_id)
