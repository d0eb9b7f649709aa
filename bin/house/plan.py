"""What the house consists of: its environment, its ports and the processes, each with what it needs first."""

from __future__ import annotations

import hashlib
import http.client
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from house import ports, postgres, processes, valkey
from house.environment import without_recompiling
from house.keys import Keys
from house.layout import PROJECT, PYTHON, make_private

DEFAULT_WEB_PORT = 8000
NOT_PRODUCT = {"var", "tests", "docs", "benchmarks", "examples", "__pycache__", "node_modules"}
PORT_NAMES = ("web", "stream", "simulator", "postgres", "valkey")

# Granian with the application imported before it forks its workers: one import instead of one for each.
PRELOADED = "import config.wsgi, granian.cli; granian.cli.entrypoint()"


def has_own_postgres() -> bool:
    """Ours, unless DATABASE_URL names one."""
    return not os.environ.get("DATABASE_URL")


def has_own_valkey() -> bool:
    """Ours, unless REDIS_URL names one."""
    return not os.environ.get("REDIS_URL")


def environment(*, var: Path, keys: Keys, numbers: dict[str, int]) -> dict[str, str]:
    """The variables of config/settings.py. What is set from outside wins; `numbers` are the ports by name."""
    kept = {name: value for name, value in without_recompiling(os.environ).items() if name != processes.MARK}
    given = kept.get("DATABASE_URL")
    if given is None:
        kept = {name: value for name, value in kept.items() if not name.startswith("PG")}
    owner = given or postgres.url(role=postgres.OWNER, port=numbers["postgres"], keys=keys)
    defaults = {
        "DATABASE_URL": given or postgres.url(role=postgres.APP, port=numbers["postgres"], keys=keys),
        "DATABASE_OWNER_URL": owner,
        "REDIS_URL": valkey.url(port=numbers["valkey"], password=keys.valkey_password),
        "QUITS_SECRET_KEY": keys.secret_key,
        "QUITS_FIELD_KEYS": keys.field_keys,
        "QUITS_LEASE_KEYS": keys.lease_keys,
        "QUITS_BASE_URL": address(numbers["web"]),
        "QUITS_STREAM_URL": address(numbers["stream"]),
        "QUITS_SIMULATOR_URL": address(numbers["simulator"]),
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PYTHONUNBUFFERED": "1",
    }
    return {**defaults, **{name: value for name, value in kept.items() if value}, "QUITS_VAR": str(var)}


def address(port: int) -> str:
    return f"http://{ports.LOOPBACK}:{port}"


@dataclass
class Part:
    """One process of the house.

    `needs` are the parts that must be ready first. A `task` runs once to a good end, or not at all when it is
    done already. `argv` is a function because PostgreSQL's data directory is prepared right before each start.
    """

    name: str
    argv: Callable[[], list[str]]
    is_ready: Callable[[], bool]
    needs: tuple[str, ...] = ()
    task: bool = False
    stop_signal: int = signal.SIGTERM
    patience: float = 10.0
    cwd: Path = PROJECT
    as_account: Callable[[], object] = lambda: None
    when_ready: Callable[[], None] = lambda: None
    # What the supervisor remembers.
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    ready: bool = False
    failures: int = 0
    restarts: int = 0
    not_before: float = 0.0


def parts(*, var: Path, keys: Keys, numbers: dict[str, int]) -> list[Part]:
    """Everything, in the order in which it is stopped from the end."""
    servers: list[Part] = []
    if has_own_postgres():
        servers.append(_postgres(var, keys, numbers["postgres"]))
    if has_own_valkey():
        servers.append(_valkey(var, keys, numbers["valkey"]))
    state = make_private(var / "simulator")
    first = (*(server.name for server in servers), "simulator")
    return [
        *servers,
        Part(
            name="simulator",
            argv=lambda: [
                *(str(PYTHON), "-m", "payments.simulator"),
                *("--host", ports.LOOPBACK, "--port", str(numbers["simulator"]), "--state", str(state)),
            ],
            is_ready=lambda: answers_http(numbers["simulator"], "/healthz"),
            patience=10,
        ),
        _prepare(var, keys, numbers, first),
        *_applications(var, keys, numbers),
    ]


def servers_only(*, var: Path, keys: Keys, numbers: dict[str, int]) -> list[Part]:
    """PostgreSQL and Valkey alone, for a management command while the house is down."""
    return [part for part in parts(var=var, keys=keys, numbers=numbers) if part.name in processes.SERVERS]


def _postgres(var: Path, keys: Keys, port: int) -> Part:
    prepared: list[postgres.Cluster] = []

    def argv() -> list[str]:
        prepared[:] = [postgres.prepare(var, keys)]
        return prepared[0].command(port=port, settings=postgres.DURABLE)

    return Part(
        name="postgres",
        argv=argv,
        is_ready=lambda: postgres.is_ready(port=port),
        as_account=lambda: prepared[0].user,
        when_ready=lambda: postgres.make_roles(port=port, keys=keys),
        stop_signal=signal.SIGINT,  # fast shutdown: sessions are ended, nothing is recovered at the next start
        patience=60,
        cwd=Path("/"),
    )


def _valkey(var: Path, keys: Keys, port: int) -> Part:
    return Part(
        name="valkey",
        argv=lambda: valkey.command(var / "valkey", port=port, password=keys.valkey_password, durable=True),
        is_ready=lambda: valkey.is_ready(port=port, password=keys.valkey_password),
        patience=20,
        cwd=Path("/"),
    )


def _prepare(var: Path, keys: Keys, numbers: dict[str, int], needs: tuple[str, ...]) -> Part:
    """`manage.py prepare`: migrate, static files, roles' grants, the demo once.

    It takes seconds, so it is left out when nothing has changed since it last ended well with this database. The
    note of that lies beside the data, so it lives and dies with it.
    """
    note = var / "postgres" / "prepared"

    state = _fingerprint(environment(var=var, keys=keys, numbers=numbers))

    def is_done() -> bool:
        try:
            return has_own_postgres() and (var / "static").exists() and note.read_text() == state
        except OSError:
            return False

    def when_ready() -> None:
        if has_own_postgres():
            note.write_text(state)

    return Part(
        name="prepare",
        argv=lambda: [str(PYTHON), "manage.py", "prepare"],
        is_ready=is_done,
        when_ready=when_ready,
        needs=needs,
        task=True,
        patience=30,
    )


def _fingerprint(values: dict[str, str]) -> str:
    """Of everything `prepare` may depend on: every file of the project by name, size and time, and the settings."""
    digest = hashlib.sha256()
    for name in sorted(name for name in values if name.startswith(("QUITS_", "DATABASE_", "REDIS_"))):
        digest.update(f"{name}={values[name]}\0".encode())
    for directory, below, files in os.walk(PROJECT):
        below[:] = sorted(name for name in below if not name.startswith(".") and name not in NOT_PRODUCT)
        for name in sorted(files):
            if not name.endswith(".pyc"):
                found = os.stat(os.path.join(directory, name), follow_symlinks=False)
                digest.update(f"{directory}/{name}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _applications(var: Path, keys: Keys, numbers: dict[str, int]) -> list[Part]:
    cores = os.cpu_count() or 1
    granian = ["--host", ports.LOOPBACK, "--no-ws", "--respawn-failed-workers"]
    celery = [str(PYTHON), "-m", "celery", "-A", "config"]
    beat_state = make_private(var / "beat") / "schedule"
    workers = os.environ.get("QUITS_WEB_WORKERS") or str(min(cores, 4))
    return [
        Part(
            name="worker",
            argv=lambda: [
                *celery,
                *("worker", "-Q", "critical,default,bulk", "--concurrency", str(max(2, min(cores, 8)))),
                *("--loglevel", "INFO", "--without-gossip", "--without-mingle"),
            ],
            is_ready=lambda: _worker_waits(keys, numbers["valkey"]),
            needs=("prepare",),
            patience=60,  # a task in hand is finished
        ),
        Part(
            name="stream",
            argv=lambda: [
                *(str(PYTHON), "-m", "granian", *granian),
                *("--interface", "asgi", "--port", str(numbers["stream"]), "--workers", "1"),
                *("--workers-kill-timeout", "3", "config.asgi:application"),  # open streams end with their server
            ],
            is_ready=lambda: answers_http(numbers["stream"], "/healthz"),
            needs=("prepare",),
            patience=15,
        ),
        Part(
            name="web",
            argv=lambda: [
                *(str(PYTHON), "-c", PRELOADED, *granian),
                *("--interface", "wsgi", "--port", str(numbers["web"]), "--workers", workers),
                *("--blocking-threads", "8", "--workers-kill-timeout", "15", "config.wsgi:application"),
            ],
            is_ready=lambda: answers_http(numbers["web"], "/readyz"),
            needs=("prepare",),
            patience=20,
        ),
        Part(
            name="beat",
            argv=lambda: [*celery, "beat", "--schedule", str(beat_state), "--loglevel", "INFO", "--pidfile="],
            is_ready=lambda: True,
            needs=("web", "stream", "worker"),  # nobody waits for beat, so it does not compete with those
            patience=10,
        ),
    ]


# Stopped in this order, those on one line together: nothing new is begun, then requests and streams drain, then
# the task in hand is finished, and the servers end when nobody needs them any more.
STOPPING = (("prepare", "beat"), ("web", "stream"), ("worker",), ("simulator",), ("valkey", "postgres"))


def answers_http(port: int, path: str) -> bool:
    """Whether the address answers well. A 404 means the process lives and has no such page: ready as well."""
    connection = http.client.HTTPConnection(ports.LOOPBACK, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _worker_waits(keys: Keys, port: int) -> bool:
    """Whether somebody waits for tasks at the broker; with a broker from outside nobody is asked."""
    if not has_own_valkey():
        return True
    try:
        found = valkey.ask(port=port, password=keys.valkey_password, words=("CLIENT", "LIST"))
    except OSError:
        return False
    return b"cmd=brpop" in found


def tail(path: Path, lines: int = 25) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
