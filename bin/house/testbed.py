"""A private PostgreSQL and Valkey for tests, kept warm between runs.

A keeper process owns both servers and ends them when nobody has used them for a while, when its directory is
removed, or when `bin/down` asks. Runs in the same var directory take turns; give each its own `QUITS_VAR` to run
at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from house import ports, postgres, processes, valkey
from house.environment import without_recompiling
from house.keys import Keys, keys_of
from house.layout import PYTHON, Trouble, var_dir, write_atomically

IDLE_SECONDS = 20 * 60
START_SECONDS = 60


@dataclass(frozen=True)
class Testbed:
    """Where the servers of a test run are; `keeper` is the pid that owns them."""

    keeper: int
    postgres_port: int
    valkey_port: int
    database_url: str
    database_owner_url: str
    redis_url: str

    def answers(self, keys: Keys) -> bool:
        return postgres.is_ready(port=self.postgres_port) and valkey.is_ready(
            port=self.valkey_port, password=keys.valkey_password
        )


def directory(name: str = "test") -> Path:
    return var_dir() / name


@contextlib.contextmanager
def borrowed(bed: Path, *, durable: bool = False) -> Iterator[tuple[Testbed, Keys]]:
    """The servers of this directory, started when they are not running, for this process alone.

    `durable` starts PostgreSQL as a deployment has it (benchmarks); tests run on one that forgets with the power.
    """
    bed.mkdir(parents=True, exist_ok=True)
    keys = keys_of(bed)
    with (bed / "run.lock").open("a") as turn:
        _wait_for_turn(turn, bed)
        yield _running(bed, keys) or _start(bed, keys, durable=durable), keys


def _wait_for_turn(turn, bed: Path) -> None:
    try:
        fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print(f"another test run uses {bed}: waiting for it (set QUITS_VAR to run at once)", flush=True)
        fcntl.flock(turn, fcntl.LOCK_EX)


def _running(bed: Path, keys: Keys) -> Testbed | None:
    if not keeper_lives(bed):
        return None
    try:
        found = Testbed(**json.loads((bed / "testbed.json").read_text()))
    except (OSError, ValueError, TypeError):
        found = None
    if found is not None and found.answers(keys):
        return found
    stop(bed)
    return None


def keeper_lives(bed: Path) -> bool:
    """The keeper holds its lock for as long as it lives, whatever ends it."""
    try:
        with (bed / "keeper.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _start(bed: Path, keys: Keys, *, durable: bool) -> Testbed:
    (bed / "testbed.json").unlink(missing_ok=True)
    log = bed / "keeper.log"
    with log.open("wb") as output:
        keeper = subprocess.Popen(
            [str(PYTHON), "-m", "house.testbed", str(bed), *(["durable"] if durable else [])],
            env={**without_recompiling(os.environ), "PYTHONPATH": str(Path(__file__).parent.parent)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if (bed / "testbed.json").exists():
            return Testbed(**json.loads((bed / "testbed.json").read_text()))
        if keeper.poll() is not None:
            break
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        keeper.terminate()
    raise Trouble(f"the test servers did not start:\n{log.read_text(errors='replace')[-3000:]}")


def stop(bed: Path) -> bool:
    """End the keeper and its servers; True when there was something to end."""
    if not bed.exists():
        return False
    keys = keys_of(bed)
    return bool(processes.sweep(keys.house_id)) if not keeper_lives(bed) else _stop_keeper(bed, keys)


def remove(bed: Path) -> None:
    """Throw a stopped testbed away, with the data that may lie elsewhere."""
    if bed.exists():
        postgres.remove(bed)
        shutil.rmtree(bed)


def _stop_keeper(bed: Path, keys: Keys) -> bool:
    with contextlib.suppress(OSError, ValueError):
        keeper = int((bed / "keeper.lock").read_text())
        os.kill(keeper, signal.SIGTERM)  # it holds the lock at this moment, so the number is its own
    deadline = time.monotonic() + 20
    while keeper_lives(bed) and time.monotonic() < deadline:
        time.sleep(0.05)
    processes.sweep(keys.house_id)
    return True


def keep(bed: Path, *, durable: bool = False) -> None:
    """The keeper: start both servers, say where they are, watch, end them."""
    keys = keys_of(bed)
    with (bed / "keeper.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        processes.adopt_grandchildren()
        ended = _on_sigterm()
        processes.sweep(keys.house_id)
        servers: list[subprocess.Popen[bytes]] = []
        cluster_home = bed / "postgres"
        try:
            _bring_up(bed, keys, servers, durable=durable)
            cluster_home = (bed / "postgres").resolve()
            _watch(bed, servers, ended)
        finally:
            with contextlib.suppress(FileNotFoundError):
                (bed / "testbed.json").unlink(missing_ok=True)
            for server in servers:
                processes.stop(server, by=signal.SIGINT, patience=10)
            if not bed.exists() and cluster_home.parent == postgres.ELSEWHERE:
                shutil.rmtree(cluster_home, ignore_errors=True)


def _on_sigterm() -> list[int]:
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return received


def _bring_up(bed: Path, keys: Keys, servers: list[subprocess.Popen[bytes]], *, durable: bool) -> None:
    taken: set[int] = set()
    postgres_port, valkey_port = ports.pick(taken=taken), ports.pick(taken=taken)
    valkey_home = bed / "valkey"
    shutil.rmtree(valkey_home, ignore_errors=True)
    environment = dict(os.environ)
    servers.append(
        processes.spawn(
            valkey.command(valkey_home, port=valkey_port, password=keys.valkey_password, durable=False),
            mark=f"{keys.house_id}:valkey",
            log=bed / "valkey.log",
            environment=environment,
            cwd=Path("/"),
        )
    )
    cluster = postgres.prepare(bed, keys)
    servers.append(
        processes.spawn(
            cluster.command(port=postgres_port, settings=postgres.DURABLE if durable else postgres.FORGETFUL),
            mark=f"{keys.house_id}:postgres",
            log=bed / "postgres.log",
            environment=environment,
            cwd=Path("/"),
            death_signal=signal.SIGINT,
            user=cluster.user,
        )
    )
    testbed = Testbed(
        keeper=os.getpid(),
        postgres_port=postgres_port,
        valkey_port=valkey_port,
        database_url=postgres.url(role=postgres.APP, port=postgres_port, keys=keys),
        database_owner_url=postgres.url(role=postgres.OWNER, port=postgres_port, keys=keys),
        redis_url=valkey.url(port=valkey_port, password=keys.valkey_password),
    )
    deadline = time.monotonic() + START_SECONDS
    while not testbed.answers(keys):
        if time.monotonic() > deadline or any(server.poll() is not None for server in servers):
            raise Trouble((bed / "postgres.log").read_text(errors="replace")[-2000:])
        time.sleep(0.05)
    postgres.make_roles(port=postgres_port, keys=keys)
    write_atomically(bed / "testbed.json", json.dumps(asdict(testbed), indent=2) + "\n")


def _watch(bed: Path, servers: list[subprocess.Popen[bytes]], ended: list[int]) -> None:
    used_at = time.monotonic()
    while not ended and all(server.poll() is None for server in servers):
        time.sleep(1)
        if not (bed / "testbed.json").exists():
            return
        if _in_use(bed):
            used_at = time.monotonic()
        elif time.monotonic() - used_at > IDLE_SECONDS:
            return


def _in_use(bed: Path) -> bool:
    try:
        with (bed / "run.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


if __name__ == "__main__":
    try:
        keep(Path(sys.argv[1]), durable="durable" in sys.argv[2:])
    except Trouble as trouble:
        print(trouble)
        sys.exit(1)
