"""A client of the control API, for tests, the demo and the example: the payer's and the channel's hands."""

from __future__ import annotations

import time
from typing import Any

import httpx

Body = dict[str, Any]


class SimulatorError(Exception):
    """The simulator refused an action; ``status`` and ``body`` say why."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"{status} {body}")
        self.status = status
        self.body = body


class SimulatorClient:
    def __init__(self, base_url: str) -> None:
        self.base_url = base_url.rstrip("/")
        self._http = httpx.Client(base_url=self.base_url, trust_env=False, timeout=30, verify=False)

    def close(self) -> None:
        self._http.close()

    def get(self, path: str) -> Body:
        return self._answer(self._http.get(f"/control/{path}"))

    def post(self, path: str, **body: Any) -> Body:
        return self._answer(self._http.post(f"/control/{path}", json=body))

    @staticmethod
    def _answer(response: httpx.Response) -> Body:
        if response.status_code != 200:
            raise SimulatorError(response.status_code, response.json())
        return response.json()

    def pay(self, out_trade_no: str, **options: Any) -> Body:
        """The payer pays: amount_fen, voucher_fen, again, force, notify, channel, account."""
        return self.post("pay", out_trade_no=out_trade_no, **options)

    def settle(self, refund_no: str, to: str = "SUCCESS", **options: Any) -> Body:
        return self.post("settle", refund_no=refund_no, to=to, **options)

    def fault(self, operation: str, kind: str, *, times: int = 1, probability: float = 1.0, **params: Any) -> int:
        """Inject a fault. ``match`` (a dict) limits it to calls with these fields; the rest are its
        parameters."""
        match = params.pop("match", {})
        answer = self.post(
            "faults",
            operation=operation,
            kind=kind,
            times=times,
            probability=probability,
            match=match,
            params=params,
        )
        return int(answer["id"])

    def clear_faults(self) -> None:
        self._answer(self._http.delete("/control/faults"))

    def redeliver(self, **options: Any) -> list[Body]:
        return self.post("redeliver", **options)["deliveries"]

    def forge(self, out_trade_no: str, **options: Any) -> list[Body]:
        return self.post("forge", out_trade_no=out_trade_no, **options)["deliveries"]

    def settings(self, **changes: Any) -> Body:
        return self.post("settings", **changes)

    def clock(self, **change: Any) -> Body:
        return self.post("clock", **change)

    def reset(self) -> None:
        self.post("reset")

    def order(self, out_trade_no: str) -> Body:
        return self.get(f"orders/{out_trade_no}")

    def refund(self, refund_no: str) -> Body:
        return self.get(f"refunds/{refund_no}")

    def wait_for_notify(self, *, count: int = 1, seconds: float = 10, **of: str) -> Body:
        """Until the newest of ``count`` notifies of an order (``out_trade_no=``) or a refund (``refund_no=``)
        is no longer on its way."""
        until = time.monotonic() + seconds
        while True:
            found = self.refund(of["refund_no"]) if "refund_no" in of else self.order(of["out_trade_no"])
            notifies = found["notifies"]
            if len(notifies) >= count and notifies[-1]["state"] not in ("PENDING", "HELD"):
                return notifies[-1]
            if time.monotonic() > until:
                raise TimeoutError(f"no notify settled: {notifies}")
            time.sleep(0.02)
