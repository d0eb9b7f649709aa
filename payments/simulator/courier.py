"""Sends notifies until they are acknowledged, with the channel's own pauses, and settles refunds that are
due.

A notify is a row: a killed simulator goes on where it stopped, and may send one again that it had already
sent.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import httpx

from payments.simulator.store import Row
from payments.simulator.world import Impossible, World

log = logging.getLogger("payments.simulator")

ACK_SECONDS = 5.0
WORKERS = 8
LONGEST_NAP = 0.2
ONE_SENDING = {"forged", "stale", "unknown_serial", "altered_body", "signtest", "malformed"}
"""Faults of the first sending only: the receiver must refuse it, so the channel sends a good one later."""


class Courier:
    def __init__(self, world: World, wires: dict[str, ModuleType]) -> None:
        self._world = world
        self._wires = wires
        self._client = httpx.Client(
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(ACK_SECONDS, connect=2.0),
            limits=httpx.Limits(max_connections=64, max_keepalive_connections=16, keepalive_expiry=5.0),
        )
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="courier")
        self._copies = ThreadPoolExecutor(32, thread_name_prefix="copies")
        self._travelling: set[str] = set()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clockwork", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._world.stirred.set()
        self._thread.join(2)
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._copies.shutdown(wait=False, cancel_futures=True)

    # -- the clockwork
    # -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.settle_due()
                pause = self._dispatch()
            except Exception:
                log.exception("the clockwork stumbled")
                pause = LONGEST_NAP
            self._world.stirred.wait(pause)
            self._world.stirred.clear()

    def settle_due(self) -> None:
        for refund in self._world.due_refunds():
            self.settle(refund, refund["settle_to"])

    def settle(self, refund: Row, to: str) -> Row:
        """Settle and announce in one transaction, so that no settled refund is ever without its notify."""
        with self._world.store.transaction():
            settled = self._world.settle(refund, to)
            self._wires[refund["channel"]].announce_refund(self._world, settled)
        return settled

    def _dispatch(self) -> float:
        """Hand over what is due; how long to nap. Soonest due work decides, never longer than a fifth of a
        second."""
        now = time.time()
        rows = self._world.store.all(
            "SELECT * FROM notify WHERE state IN ('PENDING', 'HELD') ORDER BY next_at LIMIT 200"
        )
        pause = LONGEST_NAP
        for row in rows:
            with self._lock:
                if row["id"] in self._travelling:
                    continue
                if row["next_at"] > now:
                    pause = min(pause, row["next_at"] - now)
                    break
                self._travelling.add(row["id"])
            self._pool.submit(self._travel, row)
        settle = self._world.store.one("SELECT min(settle_at) AS at FROM refund WHERE state = 'PROCESSING'")
        if settle and settle["at"]:
            pause = min(pause, settle["at"] - now)
        return max(pause, 0.005)

    # -- one notify
    # ----------------------------------------------------------------------------------------------

    def _travel(self, notify: Row) -> None:
        try:
            faults = dict(json.loads(notify["faults"]))
            copies = int(faults.get("duplicate", {}).get("copies", 5)) if "duplicate" in faults else 1
            if notify["tries"]:
                faults = {kind: params for kind, params in faults.items() if kind not in ONE_SENDING}
            statuses = self.send(notify, faults, copies)
            self._record(notify, any(statuses))
        except Exception:
            log.exception("a notify stumbled")
            self._record(notify, acknowledged=False)
        finally:
            with self._lock:
                self._travelling.discard(notify["id"])
            self._world.stirred.set()

    def _record(self, notify: Row, acknowledged: bool) -> None:
        store = self._world.store
        pauses = self._wires[notify["channel"]].RETRY_PAUSES
        if acknowledged:
            store.run("UPDATE notify SET state = 'ACKED', tries = tries + 1 WHERE id = ?", notify["id"])
            store.run("UPDATE notify SET state = 'PENDING', next_at = 0 WHERE state = 'HELD'")
        elif notify["tries"] >= len(pauses):
            store.run("UPDATE notify SET state = 'GIVEN_UP', tries = tries + 1 WHERE id = ?", notify["id"])
        else:
            pause = pauses[notify["tries"]] / self._world.setting("notify_speed")
            store.run(
                "UPDATE notify SET state = 'PENDING', tries = tries + 1, next_at = ? WHERE id = ?",
                time.time() + pause,
                notify["id"],
            )

    def send(self, notify: Row, faults: dict[str, dict[str, Any]], copies: int = 1) -> list[bool]:
        """Send now, ``copies`` times in parallel; whether each was acknowledged."""
        if copies == 1:
            return [self._send_one(notify, faults)]
        return list(self._copies.map(lambda _: self._send_one(notify, faults), range(copies)))

    def _send_one(self, notify: Row, faults: dict[str, dict[str, Any]]) -> bool:
        wire = self._wires[notify["channel"]]
        fresh = notify | {"content": json.loads(notify["content"])}
        headers, body = wire.notify_message(self._world, fresh, faults)
        started, status, note, good = time.time(), 0, "", False
        try:
            answer = self._client.post(notify["url"], headers=headers, content=body)
            status, note = answer.status_code, answer.text[:200]
            good = wire.acknowledged(status, answer.content)
        except httpx.HTTPError as error:
            note = f"{type(error).__name__}: {error}"
        self._world.store.insert(
            "delivery",
            notify_id=notify["id"],
            at=started,
            status=status,
            fault=",".join(sorted(faults)),
            note=note,
            seconds=time.time() - started,
        )
        return good

    # -- by hand
    # -------------------------------------------------------------------------------------------------

    def redeliver(self, notify_id: str, *, times: int, parallel: bool, faults: list[str]) -> list[dict[str, Any]]:
        """Send a known notify again; the deliveries that this made."""
        notify = self._world.store.one("SELECT * FROM notify WHERE id = ?", notify_id)
        if notify is None:
            raise Impossible("no_notify", f"no notify {notify_id}")
        last = self._world.store.one("SELECT max(id) AS id FROM delivery") or {"id": 0}
        chosen: dict[str, dict[str, Any]] = {kind: {} for kind in faults}
        if parallel:
            self.send(notify, chosen, times)
        else:
            for _ in range(times):
                self.send(notify, chosen)
        return self._world.store.all(
            "SELECT * FROM delivery WHERE notify_id = ? AND id > ?", notify_id, last["id"] or 0
        )
