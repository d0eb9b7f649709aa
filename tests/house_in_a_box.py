"""A whole Quits of its own for a test: started by bin/up in a private directory, asked over HTTP and by bin/manage."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OURS = ("QUITS_", "DATABASE_", "REDIS_", "DJANGO_", "PYTEST_", "PG")
PASSED_ON = ("QUITS_CHROMIUM",)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class House:
    """`start` and `stop` are bin/up and bin/down; what they print is kept for the failure message."""

    var: Path
    port: int = field(default_factory=free_port)
    said: list[str] = field(default_factory=list)
    _id: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the test run around us: no database, no queue, no settings."""
        kept = {name: value for name, value in os.environ.items() if name in PASSED_ON or not name.startswith(OURS)}
        return {**kept, "QUITS_VAR": str(self.var), "PYTHONUNBUFFERED": "1"}

    def run(self, *command: str, seconds: float = 180, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(ROOT / "bin" / command[0]), *command[1:]],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        self.said.append(f"$ {' '.join(command)}  → {done.returncode}\n{done.stdout}{done.stderr}")
        if check and done.returncode != 0:
            raise AssertionError("\n".join([*self.said, self.logs()]))
        return done

    def start(self) -> float:
        """Seconds until bin/up said ready."""
        began = time.monotonic()
        self.run("up", "--detach", "--port", str(self.port), seconds=300)
        return time.monotonic() - began

    def rest(self) -> None:
        """An orderly end that keeps the data."""
        self.run("down", check=False)

    def stop(self) -> None:
        """The end of this house, its data with it, wherever that lies. The logs stay."""
        self._mark()  # `processes` still has to know afterwards whose processes to look for
        self.run("down", "--purge", check=False)

    @property
    def demo(self) -> dict[str, Any]:
        return json.loads((self.var / "demo.json").read_text("utf-8"))

    @property
    def record(self) -> dict[str, Any]:
        return json.loads((self.var / "run.json").read_text("utf-8"))

    def login(self, role: str) -> dict[str, str]:
        return next(person for person in self.demo["admin"] if person["role"] == role)

    def manage(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.run("manage", *arguments, check=check)

    def ask(self, expression: str) -> Any:
        """The value of a Python expression inside the running installation, as JSON. Models are imported."""
        code = f"import json\nprint('\\x02' + json.dumps({expression}, default=str))"
        answer = self.manage("shell", "--verbosity", "0", "-c", code).stdout
        return json.loads(answer.rpartition("\x02")[2])

    def processes(self) -> dict[str, list[int]]:
        """The pids of each part of this house, by name; children included."""
        found: dict[str, list[int]] = {}
        mark = self._mark()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            start = environment.find(mark)
            if start >= 0:
                name = environment[start + len(mark) :].split(b"\0", 1)[0].decode()
                found.setdefault(name, []).append(int(entry.name))
        return found

    def _mark(self) -> bytes:
        """How this house marks its processes. An id that was thrown away with the data is remembered."""
        with contextlib.suppress(FileNotFoundError):
            self._id = json.loads((self.var / "secrets.json").read_text())["house_id"]
        return f"QUITS_CHILD={self._id}:".encode()

    def kill(self, part: str) -> int:
        """kill -9 of everything a part consists of; how many processes that were."""
        pids = self.processes().get(part, [])
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return len(pids)

    def kill_everything(self) -> int:
        """kill -9 of the supervisor and of every part at once: as if the machine had stopped."""
        os.kill(self.record["supervisor"], signal.SIGKILL)
        return 1 + sum(self.kill(part) for part in self.processes())

    def logs(self, lines: int = 30) -> str:
        parts = []
        for path in sorted((self.var / "log").glob("*.log")):
            tail = path.read_text(errors="replace").splitlines()[-lines:]
            parts.append(f"--- {path.name}\n" + "\n".join(line[:500] for line in tail))
        return "\n".join(parts)
