"""`bin/test faults`: a whole house under traffic while its parts are killed and paused; then quiet; then the books.

Everything is as bin/up runs it: the supervisor starts again what dies. Beside it runs one more worker whose clock is
minutes off, and the channel simulator loses, doubles, delays, forges and refuses. In the end nothing may be open,
every invariant holds, the channel's money is ours item by item, and `reconcile` and `gate` have nothing to say.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from tests.faults.plan import CALL_FAULTS, NOTIFY_FAULTS, Blow, Plan, draw
from tests.faults.shared import ASKING, BETWEEN, WAITING, Board
from tests.house_in_a_box import ROOT, House

sys.path.insert(0, str(ROOT / "bin"))
from house import processes

PYTHON = sys.executable
CHINA = ZoneInfo("Asia/Shanghai")
PROCESSES, THREADS = 3, 2
LIVES_END_SECONDS = 240.0
"""So long after the torment the purchases under way may take to come to their end."""
CONVERGE_SECONDS = 420.0
UNEXPLAINED = ("OperationalError", "InterfaceError", "ConnectionError", "TimeoutError", "Away", "PoolTimeout")
BEHIND_THE_SCENES = ("worker", "skewed", "beat", "valkey", "postgres")


@dataclass
class Run:
    """One seed: what was done to the house, what came of it, and what is wrong."""

    plan: Plan
    house: House
    kills: Counter[str] = field(default_factory=Counter)
    in_flight: int = 0
    pauses: int = 0
    findings: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    lives: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    promises: list[list[str]] = field(default_factory=list)
    books: dict[str, Any] = field(default_factory=dict)
    converged_after: float = 0.0

    def say(self, text: str) -> None:
        print(text, flush=True)

    def inside(self, expression: str, **values: Any) -> Any:
        """The value of a function of tests/faults/books.py, called inside the house. Arguments travel by a file."""
        path = self.house.var / "faults-arguments.json"
        path.write_text(json.dumps(values))
        code = (
            "import json, pathlib\nfrom tests.faults import books\n"
            f"values = json.loads(pathlib.Path({str(path)!r}).read_text())\n"
            f"print('\\x02' + json.dumps(books.{expression}, default=str))"
        )
        done = self.house.run(
            "manage", "shell", "--no-imports", "--verbosity", "0", "-c", code, seconds=300, check=False
        )
        if done.returncode:
            raise RuntimeError(f"books.{expression}: {done.stderr[-1500:]}")
        return json.loads(done.stdout.rpartition("\x02")[2])

    def control(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The channel simulator's control."""
        request = urllib.request.Request(
            f"{self.house.demo['simulator']['base_url']}/control/{path}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)


# --- the worker whose clock is wrong ------------------------------------------------------------------------------


@dataclass
class SkewedWorker:
    """In the environment of the house's own worker, started again when it dies, as the supervisor does."""

    run: Run
    process: subprocess.Popen[bytes] | None = None

    def keep(self) -> None:
        if self.process is not None and self.process.poll() is None:
            return
        pids = self.run.house.processes().get("worker")
        if not pids:
            return
        try:
            environment = Path(f"/proc/{min(pids)}/environ").read_bytes().split(b"\0")
        except OSError:
            return
        values = dict(item.decode().split("=", 1) for item in environment if b"=" in item)
        house_id = json.loads((self.run.house.var / "secrets.json").read_text())["house_id"]
        self.process = processes.spawn(
            [
                *(PYTHON, "-m", "tests.faults.skewed_worker", str(self.run.plan.skew_seconds), "worker"),
                *("-Q", "critical,default,bulk", "--concurrency", "2", "--hostname", "skewed@%h"),
                *("--loglevel", "INFO", "--without-gossip", "--without-mingle"),
            ],
            mark=f"{house_id}:skewed",
            log=self.run.house.var / "log" / "skewed.log",
            environment={**values, "QUITS_PROCESS": "skewed"},
            cwd=ROOT,
        )

    def end(self) -> None:
        if self.process is not None:
            processes.stop(self.process, by=signal.SIGTERM, patience=20)
            self.process = None


# --- the torment --------------------------------------------------------------------------------------------------


class Tormentor:
    """Carries out the plan. What a blow finds dead (being started again) is waited for, a moment long."""

    def __init__(self, run: Run, board: Board, skewed: SkewedWorker):
        self.run, self.board, self.skewed = run, board, skewed
        self.will = random.Random(run.plan.seed + 1)
        self.stopped: list[tuple[float, list[int]]] = []

    def torment(self, began: float) -> None:
        blows = list(self.run.plan.blows)
        while time.monotonic() < began + self.run.plan.seconds:
            self.skewed.keep()
            self.wake(due=time.monotonic())
            if blows and time.monotonic() >= began + blows[0].at:
                self.strike(blows.pop(0), began)
            time.sleep(0.05)
        self.wake(due=float("inf"))

    def strike(self, blow: Blow, began: float) -> None:
        pids = self._alive(blow.part)
        asking, waiting = self.board.count(ASKING), self.board.count(WAITING)
        under_way = self.board.count(ASKING, WAITING, BETWEEN)
        if not pids:
            self.run.log.append(f"{blow}: it was not there")
            return
        if blow.what == "pause":
            _signal(pids, signal.SIGSTOP)
            self.stopped.append((time.monotonic() + blow.seconds, pids))
            self.run.pauses += 1
        else:
            chosen = [self.will.choice(sorted(pids))] if blow.what == "kill_one" else pids
            _signal(chosen, signal.SIGKILL)
            self.run.kills[blow.part] += 1
            busy = asking or waiting if blow.part in BEHIND_THE_SCENES else asking
            self.run.in_flight += bool(busy)
        at = time.monotonic() - began
        self.run.log.append(
            f"{at:6.1f} s {blow.what} {blow.part} ({len(pids)} processes; requests out {asking}, waiting for workers"
            f" {waiting}, purchases under way {under_way})"
        )

    def _alive(self, part: str) -> list[int]:
        until = time.monotonic() + 6
        while time.monotonic() < until:
            self.skewed.keep()
            if pids := self.run.house.processes().get(part):
                return pids
            time.sleep(0.1)
        return []

    def wake(self, *, due: float) -> None:
        for end, pids in [each for each in self.stopped if each[0] <= due]:
            _signal(pids, signal.SIGCONT)
            self.stopped.remove((end, pids))


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def set_channel_faults(run: Run) -> None:
    run.control("POST", "faults", {"seed": run.plan.seed})
    for kind, probability, params in NOTIFY_FAULTS:
        _inject(run, "notify.*", kind, probability, params)
    for kind, probability, params in CALL_FAULTS:
        _inject(run, "wechat.*", kind, probability, params)


def _inject(run: Run, operation: str, kind: str, probability: float, params: dict[str, Any]) -> None:
    run.control(
        "POST",
        "faults",
        {"operation": operation, "kind": kind, "probability": probability, "times": -1, "params": params},
    )


# --- the clients --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def clients(run: Run, board: Path, journal: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """PROCESSES programs of THREADS buyers each; the merchant's two people log in at the desk."""
    logins = [person for person in run.house.demo["admin"] if person["username"].startswith("yunwu-")]
    now = time.time()
    started = []
    for number in range(PROCESSES):
        settings = {
            "seed": run.plan.seed,
            "numbers": [number * THREADS + thread for thread in range(THREADS)],
            "until": now + run.plan.seconds,
            "give_up_at": now + run.plan.seconds + LIVES_END_SECONDS,
            "demo": run.house.demo,
            "logins": logins,
            "board": str(board),
            "journal": str(journal),
        }
        path = run.house.var / f"traffic-{number}.json"
        path.write_text(json.dumps(settings))
        with (run.house.var / "log" / f"traffic-{number}.log").open("ab") as log:
            started.append(
                subprocess.Popen(
                    [PYTHON, "-m", "tests.faults.traffic", str(path)], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT
                )
            )
    try:
        yield started
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
            process.wait()


def read_journal(run: Run, path: Path) -> None:
    for line in path.read_text().splitlines() if path.exists() else []:
        entry = json.loads(line)
        if entry["kind"] == "life":
            outcome = re.sub(r"[0-9A-Z]{12,}", "…", entry["outcome"])
            run.lives[f"{entry['life']}: {outcome}"] += 1
            if entry["outcome"].startswith(("STUCK", "BROKEN")):
                run.findings.append(f"purchase {entry['order']} ({entry['life']}): {entry['outcome']}")
        elif entry["kind"] == "promise":
            run.promises.append([entry["what"], entry["number"]])
        else:
            run.answers.update(entry["counts"])


# --- quiet --------------------------------------------------------------------------------------------------------


def converge(run: Run) -> None:
    """Faults are off: everything comes to its end by itself, within a limit."""
    began = time.monotonic()
    open_now: dict[str, list[str]] = {}
    while time.monotonic() < began + CONVERGE_SECONDS:
        if is_ready(run.house):
            open_now = run.inside("open_things()")
            if not open_now:
                break
        time.sleep(4)
    run.converged_after = time.monotonic() - began
    for kind, rows in open_now.items():
        run.findings.append(f"still open after {run.converged_after:.0f} s: {kind} {rows}")


def is_ready(house: House) -> bool:
    try:
        with urllib.request.urlopen(f"{house.demo['base_url']}/readyz", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def hear_of_second_charges(run: Run) -> int:
    """A second charge whose callback is lost for good stands in the bill only. Here the channel sends it again."""
    ours = {row["trade_no"] for row in run.inside("statement()")["payments"] if row["trade_no"]}
    sent = 0
    for number in {row["out_trade_no"] for row in run.inside("statement()")["payments"]}:
        there = run.control("GET", f"orders/{number}")
        unheard = {row["trade_no"] for row in there["charges"]} - ours
        for notify in there["notifies"]:
            if notify["kind"] == "payment" and notify["content"].get("transaction_id") in unheard:
                run.control("POST", "redeliver", {"notify_id": notify["id"]})
                sent += 1
    return sent


# --- the books ----------------------------------------------------------------------------------------------------


def compare_with_channel(run: Run) -> None:
    """Charge by charge and refund by refund: what the channel has done is what our books say, and nothing else."""
    books = run.books
    taken = returned = 0
    by_number: dict[str, list[dict[str, Any]]] = {}
    for row in books["payments"]:
        by_number.setdefault(row["out_trade_no"], []).append(row)
    refunds_of: dict[str, dict[str, int]] = {}
    for row in books["refunds"]:
        if row["status"] == "SUCCESS":
            refunds_of.setdefault(row["order_no"], {})[row["number"]] = row["fen"]
    theirs_of: dict[str, dict[str, int]] = {}
    for number, rows in by_number.items():
        there = run.control("GET", f"orders/{number}")
        charges = {row["trade_no"]: row["amount_fen"] for row in there["charges"]}
        ours = {row["trade_no"]: row["amount_fen"] for row in rows if row["status"] == "PAID"}
        if ours != charges:
            run.findings.append(f"charges of {number}: channel {charges}, ours {ours}")
        back = {row["refund_no"]: row["amount_fen"] for row in there["refunds"] if row["state"] == "SUCCESS"}
        theirs_of.setdefault(rows[0]["order_no"], {}).update(back)
        taken += sum(charges.values())
        returned += sum(back.values())
        undecided = [row["refund_no"] for row in there["refunds"] if row["state"] not in ("SUCCESS", "CLOSED")]
        if undecided:
            run.findings.append(f"refunds of {number} that the channel has not decided: {undecided}")
    for order_no in {*refunds_of, *theirs_of}:
        if refunds_of.get(order_no, {}) != theirs_of.get(order_no, {}):
            run.findings.append(
                f"refunds of {order_no}: channel {theirs_of.get(order_no)}, ours {refunds_of.get(order_no)}"
            )
    if books["clearing_fen"] != taken - returned:
        run.findings.append(f"journal: clearing {books['clearing_fen']}, the channel keeps {taken - returned}")


def examine(run: Run) -> None:
    """All invariants, the promises, the channel's money, the ledgers of coupons, reconciliation and the gate."""
    for name, rows in run.inside("examine()").items():
        run.findings.append(f"{name}: {rows}")
    for broken in run.inside("kept_promises(values['promises'])", promises=run.promises):
        run.findings.append(f"acknowledged and gone: {broken}")
    run.books = run.inside("statement()")
    compare_with_channel(run)
    coupons = run.house.manage("verify_coupons", check=False)
    if coupons.returncode:
        run.findings.append(f"verify_coupons: {coupons.stdout[-1500:]}{coupons.stderr[-500:]}")
    reconcile(run)
    gate = run.house.manage("gate", check=False)
    if gate.returncode:
        run.findings.append(f"gate: {gate.stdout.split()}")


def reconcile(run: Run) -> None:
    """The next morning, when the channel's bills are there."""
    days = [date.fromisoformat(day) for day in run.books["days"]] or [datetime.now(CHINA).date()]
    morning = datetime.combine(max(days) + timedelta(days=1), datetime.min.time(), CHINA) + timedelta(hours=10.1)
    run.control("POST", "clock", {"to": morning.isoformat()})
    try:
        for day in days:
            done = run.house.manage("reconcile", "--date", day.isoformat(), "--merchant", "yunwu", check=False)
            if done.returncode:
                run.findings.append(f"reconcile {day}: {done.stdout[-2500:]}{done.stderr[-500:]}")
    finally:
        run.control("POST", "clock", {"offset_seconds": 0})


ERROR_LINE = re.compile(r"^(?:[\w.]+\.)?([A-Z]\w*(?:Error|Exception|Refused|Timeout|Violation|Warning)?)\b: (.*)")


def errors_in_logs(run: Run) -> Counter[str]:
    """The exceptions that the parts wrote down, by kind: to look at, most are the torment itself."""
    found: Counter[str] = Counter()
    for path in sorted((run.house.var / "log").glob("*.log*")):
        if path.name.startswith(("postgres", "valkey", "supervisor")):
            continue
        for line in path.read_text(errors="replace").splitlines():
            text = line[:4000]
            for match in re.finditer(r'"exc_type": "(\w+)"|^(?:[a-z_]+\.)+(\w+(?:Error|Exception)): ', text):
                found[f"{path.name.split('.')[0]} {match[1] or match[2]}"] += 1
    return found


# --- one run ------------------------------------------------------------------------------------------------------


def one_run(plan: Plan, *, keep: bool) -> Run:
    var = Path(tempfile.mkdtemp(prefix=f"quits-faults-{plan.seed}-"))
    var.chmod(0o755)
    run = Run(plan, House(var=var))
    clean = False
    try:
        _go_through(run)
        clean = not run.findings
    except Exception as error:
        run.findings.append(f"the run itself broke: {error!r}"[:6000])
    finally:
        evidence(run)
        if clean and not keep:
            run.house.stop()
            shutil.rmtree(var, ignore_errors=True)
        else:
            run.house.rest()
    return run


def _go_through(run: Run) -> None:
    run.say(f"seed {run.plan.seed}: starting a house; one worker's clock is {run.plan.skew_seconds:+d} s off")
    took = run.house.start()
    run.say(f"  ready after {took:.0f} s; {run.inside('make_ready()')}")
    journal, board_path = run.house.var / "journal.jsonl", run.house.var / "board"
    board = Board(board_path)
    set_channel_faults(run)
    skewed = SkewedWorker(run)
    try:
        with clients(run, board_path, journal) as started:
            Tormentor(run, board, skewed).torment(time.monotonic())
            skewed.end()
            run.control("DELETE", "faults")
            until = time.monotonic() + LIVES_END_SECONDS + 30
            while any(process.poll() is None for process in started) and time.monotonic() < until:
                time.sleep(0.5)
            run.findings += [f"a client did not end: {p.args}" for p in started if p.poll() is None]
            run.findings += [f"a client ended with {p.returncode}" for p in started if p.poll() not in (0, None)]
    finally:
        skewed.end()
    read_journal(run, journal)
    converge(run)
    run.inside("half_an_hour_later()")
    if hear_of_second_charges(run):
        time.sleep(2)
    converge(run)
    examine(run)


def evidence(run: Run) -> None:
    """What happened, beside the logs of the house; the directory stays when something was found."""
    text = [
        f"seed {run.plan.seed} skew {run.plan.skew_seconds}",
        *run.log,
        *(f"{count:5} {name}" for name, count in sorted(run.lives.items())),
        *(f"{count:5} answer {name}" for name, count in run.answers.most_common()),
        *(f"{count:5} logged {name}" for name, count in errors_in_logs(run).most_common()),
        *run.findings,
    ]
    with contextlib.suppress(OSError):
        (run.house.var / "evidence.txt").write_text("\n".join(text) + "\n")


def line_of(run: Run) -> str:
    """The run in one line."""
    statuses = run.books.get("statuses", {})
    refunded = sum(1 for row in run.books.get("refunds", []) if row["status"] == "SUCCESS")
    hits = " ".join(f"{part} {count}" for part, count in sorted(run.kills.items()))
    verdict = "clean" if not run.findings else f"{len(run.findings)} FINDINGS"
    return (
        f"seed {run.plan.seed}: {verdict}; kills {run.kills.total()} ({run.in_flight} with work in flight; {hits}),"
        f" pauses {run.pauses}, skew {run.plan.skew_seconds:+d} s; orders {sum(statuses.values())}"
        f" {json.dumps(statuses)}, refunds {refunded}; quiet after {run.converged_after:.0f} s;"
        f" answers 500: {sum(n for name, n in run.answers.items() if name.startswith('500'))}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="bin/test faults", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed (default: a random one, printed)")
    parser.add_argument("--minutes", type=float, default=3.0, help="how long the torment lasts (default 3)")
    parser.add_argument("--runs", type=int, default=1, help="so many runs, with the seeds that follow")
    parser.add_argument("--keep", action="store_true", help="keep the directory of a clean run too")
    wanted = parser.parse_args()
    first = wanted.seed if wanted.seed is not None else random.SystemRandom().randrange(1, 10_000)
    lines: list[str] = []
    bad = 0
    for seed in range(first, first + wanted.runs):
        run = one_run(draw(seed, minutes=wanted.minutes), keep=wanted.keep)
        for finding in run.findings:
            print(f"  FINDING {finding}", flush=True)
        lines.append(line_of(run))
        print(lines[-1], flush=True)
        print("  " + "; ".join(f"{name} × {count}" for name, count in sorted(run.lives.items())), flush=True)
        print("  answers: " + ", ".join(f"{name} × {n}" for name, n in run.answers.most_common(25)), flush=True)
        if run.findings or wanted.keep:
            print(f"  evidence and logs: {run.house.var}", flush=True)
        bad += bool(run.findings)
    print("\n".join(["", *lines]) if len(lines) > 1 else "", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
