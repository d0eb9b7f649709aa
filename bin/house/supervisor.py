"""Starts the house in the order of its needs, keeps it running, ends it in order."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from house import plan, processes
from house.keys import Keys
from house.layout import Trouble, make_private, write_atomically
from house.plan import Part

START_SECONDS = 180.0  # for one part, from its start to its readiness; `prepare` may take what it takes
STEADY_SECONDS = 30.0  # whoever lived that long starts again without delay
LONGEST_DELAY = 10.0
LOG_BYTES = 10 * 1024 * 1024
TRIES_AT_START = 3


class Supervisor:
    """Owns the processes. One thread: children end with the thread that made them (PR_SET_PDEATHSIG)."""

    def __init__(
        self, *, var: Path, keys: Keys, numbers: dict[str, int], parts: list[Part], say: Callable[[str], None]
    ) -> None:
        self.var, self.keys, self.numbers, self.parts, self.say = var, keys, numbers, parts, say
        self.logs = make_private(var / "log")
        self.environment = plan.environment(var=var, keys=keys, numbers=numbers)
        self.wanted_ends: list[int] = []
        self.began = time.monotonic()
        self.state = "starting"
        self.logs_checked_at = 0.0

    # --- signals ----------------------------------------------------------------------------------------------

    def listen(self) -> None:
        """SIGTERM, Ctrl-C and a closed terminal all ask for an orderly end; asked twice, it hurries."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda received, frame: self.wanted_ends.append(received))
        processes.adopt_grandchildren()

    # --- starting ---------------------------------------------------------------------------------------------

    def start(self) -> bool:
        """Bring everything up. False: an end was asked for meanwhile. Raises Trouble when a part does not start."""
        while not all(part.ready for part in self.parts):
            if self.wanted_ends:
                return False
            for part in self.parts:
                self._advance(part)
            self._reap_strangers()
            time.sleep(0.03)
        self.state = "ready"
        self._record()
        return True

    def _advance(self, part: Part) -> None:
        if part.ready and (part.task or self._lives(part)):
            return
        if part.process is None:
            if time.monotonic() >= part.not_before and self._has_what_it_needs(part):
                if part.task and part.is_ready():
                    part.ready = True
                else:
                    self._spawn(part)
        elif not self._lives(part):
            self._ended_at_start(part)
        elif not part.task and part.is_ready():
            self._is_ready(part)
        elif not part.task and time.monotonic() - part.started_at > START_SECONDS:
            raise Trouble(f"{part.name} is not ready after {START_SECONDS:.0f} s:\n{self._tail(part)}")

    def _has_what_it_needs(self, part: Part) -> bool:
        return all(other.ready for other in self.parts if other.name in part.needs)

    def _ended_at_start(self, part: Part) -> None:
        assert part.process is not None
        code = part.process.returncode
        if part.task and code == 0:
            self._is_ready(part)
            return
        part.failures += 1
        if part.task or part.failures >= TRIES_AT_START:
            raise Trouble(f"{part.name} ended with code {code}:\n{self._tail(part)}")
        self._rest(part)

    def _is_ready(self, part: Part) -> None:
        part.when_ready()
        part.ready = True
        part.failures = 0
        self.say(f"{part.name:<10} ready after {time.monotonic() - part.started_at:4.1f} s")

    def _spawn(self, part: Part) -> None:
        argv = part.argv()
        part.started_at = time.monotonic()
        part.process = processes.spawn(
            argv,
            mark=f"{self.keys.house_id}:{part.name}",
            log=self._log(part),
            environment=self._environment_of(part),
            cwd=part.cwd,
            death_signal=part.stop_signal,
            user=part.as_account(),  # type: ignore[arg-type]
        )
        self._record()

    def _environment_of(self, part: Part) -> dict[str, str]:
        """Only `prepare` learns how to log in as the owner of the tables."""
        withheld = () if part.task else ("DATABASE_OWNER_URL",)
        kept = {name: value for name, value in self.environment.items() if name not in withheld}
        return {**kept, "QUITS_PROCESS": part.name}

    # --- running ----------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Start again whoever dies, until an end is asked for."""
        while not self.wanted_ends:
            for part in self.parts:
                if not part.task:
                    self._keep(part)
            self._reap_strangers()
            self._bound_logs()
            time.sleep(0.2)

    def _keep(self, part: Part) -> None:
        if part.process is None:
            if time.monotonic() >= part.not_before:
                try:
                    self._spawn(part)
                except (Trouble, OSError) as error:
                    part.failures += 1
                    self._rest(part)
                    self.say(f"{part.name} cannot be started: {error}")
        elif not self._lives(part):
            lived = time.monotonic() - part.started_at
            part.failures = 0 if lived > STEADY_SECONDS else part.failures + 1
            part.restarts += 1
            self.say(f"{part.name} ended with code {part.process.returncode} after {lived:.0f} s: starting it again")
            self._rest(part)

    def _rest(self, part: Part) -> None:
        """What remains of the dead part goes; the next start waits the longer, the more often it failed."""
        if part.process is not None:
            processes.kill_group(part.process)
        part.process = None
        part.not_before = time.monotonic() + min(LONGEST_DELAY, 0.25 * 2**part.failures if part.failures else 0.0)
        self._record()

    # --- ending -----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End everything in order; whoever does not want to in time is killed, and nothing is left."""
        self.state = "stopping"
        self._record()
        by_name = {part.name: part for part in self.parts}
        for together in plan.STOPPING:
            group = [by_name[name] for name in together if name in by_name and by_name[name].process is not None]
            for part in group:
                if part.process is not None and part.process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        part.process.send_signal(part.stop_signal)
            for part in group:
                self._wait_for(part)
        left = processes.sweep(self.keys.house_id, patience=5.0)
        if left:
            self.say(f"also ended: {', '.join(left)}")
        self._reap_strangers()

    def _wait_for(self, part: Part) -> None:
        assert part.process is not None
        hurried_by = len(self.wanted_ends)
        deadline = time.monotonic() + part.patience
        while part.process.poll() is None and time.monotonic() < deadline and len(self.wanted_ends) == hurried_by:
            time.sleep(0.02)
        if part.process.poll() is None:
            self.say(f"{part.name} does not end by itself: killing it")
            if part.name == "postgres":  # an immediate shutdown, so that no session process stays
                part.process.send_signal(signal.SIGQUIT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    part.process.wait(5)
        processes.kill_group(part.process)
        part.process.wait()
        part.process = None
        self._record()

    # --- housekeeping -----------------------------------------------------------------------------------------

    def _lives(self, part: Part) -> bool:
        return part.process is not None and part.process.poll() is None

    def _reap_strangers(self) -> None:
        """Grandchildren that became ours by their parent's death leave no zombies."""
        ours = {part.process.pid for part in self.parts if part.process is not None}
        while True:
            try:
                seen = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if seen is None or seen.si_pid in ours:
                return
            with contextlib.suppress(ChildProcessError):
                os.waitpid(seen.si_pid, os.WNOHANG)

    def _log(self, part: Part) -> Path:
        return self.logs / f"{part.name}.log"

    def _tail(self, part: Part) -> str:
        return plan.tail(self._log(part)) + f"\n(all of it: {self._log(part)})"

    def _bound_logs(self) -> None:
        """Children append to their files themselves; a file that is full is copied aside once and emptied."""
        if time.monotonic() - self.logs_checked_at < 5:
            return
        self.logs_checked_at = time.monotonic()
        for path in self.logs.glob("*.log"):
            with contextlib.suppress(OSError):
                if path.stat().st_size > LOG_BYTES:
                    shutil.copyfile(path, path.with_name(f"{path.name}.1"))
                    os.truncate(path, 0)

    def _record(self) -> None:
        """var/run.json: what runs where, for the other programs in bin/ and for people."""
        record = {
            "state": self.state,
            "supervisor": os.getpid(),
            "ports": self.numbers,
            "base_url": self.environment["QUITS_BASE_URL"],
            "processes": {
                part.name: {
                    "pid": part.process.pid,
                    "started_at": _since(part.started_at),
                    "restarts": part.restarts,
                }
                for part in self.parts
                if part.process is not None and not part.task
            },
        }
        write_atomically(self.var / "run.json", json.dumps(record, indent=2) + "\n", durable=False)


def _since(moment: float) -> str:
    return datetime.fromtimestamp(time.time() - (time.monotonic() - moment), UTC).isoformat(timespec="seconds")
