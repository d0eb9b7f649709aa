"""Starting processes that do not outlive their keeper, and finding again those that did.

Every process started here carries `QUITS_CHILD=<house id>:<name>` in its environment. The house id is a random
number kept in the var directory, so a match in /proc/<pid>/environ proves that the process is ours; a pid written
down earlier proves nothing, the kernel hands numbers out again. Signals go through a pidfd that was opened before
the mark was read, so the process that was looked at is the process that is signalled.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MARK = "QUITS_CHILD"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None) if sys.platform == "linux" else None


def adopt_grandchildren() -> None:
    """Orphaned grandchildren become our children, so that the end of the house finds them too (Linux)."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with(parent: int, death_signal: int = signal.SIGTERM) -> None:
    """Runs in the child between fork and exec: end with the parent, whatever ends the parent (Linux)."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts what it puts in the background deaf to SIGINT
        signal.signal(number, signal.SIG_DFL)
    if os.getppid() != parent:  # the parent died before prctl
        os._exit(1)


def spawn(
    argv: Sequence[str | Path],
    *,
    mark: str,
    log: Path,
    environment: Mapping[str, str],
    cwd: Path,
    death_signal: int = signal.SIGTERM,
    user: pwd.struct_passwd | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, writing to `log`, ending when this process ends.

    `user` is the account to run as; only root can pass one.
    """
    parent = os.getpid()
    as_user = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    with log.open("ab") as output:
        return subprocess.Popen(
            [str(part) for part in argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env={**environment, MARK: mark},
            start_new_session=True,
            preexec_fn=lambda: end_with(parent, death_signal),
            **as_user,  # type: ignore[arg-type]
        )


@dataclass(frozen=True)
class Found:
    """A running process that carries our mark."""

    pid: int
    name: str
    pidfd: int

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def ended(self, within: float) -> bool:
        return pidfd_ended(self.pidfd, within)


def pidfd_ended(pidfd: int, within: float) -> bool:
    """Wait for the process behind a pidfd, without being its parent."""
    import select

    ready, _, _ = select.select([pidfd], [], [], max(0.0, within))
    return bool(ready)


@contextlib.contextmanager
def marked(house_id: str) -> Iterator[list[Found]]:
    """All running processes of this house except this one; the pidfds are closed afterwards."""
    found: list[Found] = []
    wanted = f"{MARK}={house_id}:".encode()
    try:
        for entry in os.listdir("/proc") if sys.platform == "linux" else []:
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            pid = int(entry)
            try:
                pidfd = os.pidfd_open(pid)
            except OSError:
                continue
            name = _mark_of(pid, wanted)
            if name is None:
                os.close(pidfd)
            else:
                found.append(Found(pid=pid, name=name, pidfd=pidfd))
        yield found
    finally:
        for process in found:
            os.close(process.pidfd)


def _mark_of(pid: int, wanted: bytes) -> str | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    for item in environment.split(b"\0"):
        if item.startswith(wanted):
            return item[len(wanted) :].decode(errors="replace")
    return None


def sweep(house_id: str, *, patience: float = 15.0) -> list[str]:
    """End what an earlier keeper left behind (it was killed with -9) and return the names.

    Applications first, servers after them; PostgreSQL is asked for a fast shutdown before anything harsher.
    """
    swept: list[str] = []
    for servers in (False, True):
        with marked(house_id) as everything:
            found = [process for process in everything if (process.name in SERVERS) == servers]
            for process in found:
                process.signal(signal.SIGINT if process.name == "postgres" else signal.SIGTERM)
            deadline = time.monotonic() + patience
            for process in found:
                if not process.ended(deadline - time.monotonic()):
                    process.signal(signal.SIGQUIT if process.name == "postgres" else signal.SIGKILL)
                    if not process.ended(5.0):
                        process.signal(signal.SIGKILL)
                        process.ended(5.0)
                swept.append(process.name)
    return sorted(set(swept))


SERVERS = {"postgres", "valkey"}


def stop(child: subprocess.Popen[bytes], *, by: int, patience: float) -> bool:
    """Ask a child to end, wait, then insist on it and on its whole process group. True: it ended by itself."""
    willing = True
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(by)
        try:
            child.wait(patience)
        except subprocess.TimeoutExpired:
            willing = False
    kill_group(child)
    child.wait()
    return willing


def kill_group(child: subprocess.Popen[bytes]) -> None:
    """What is left of a child's session. Safe after its end too: a group id stays taken while members live."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
