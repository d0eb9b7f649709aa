"""`bin/up`, `bin/down` and `bin/manage`."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from house import environment, plan, ports, postgres, processes, testbed
from house.keys import Keys, keys_of
from house.layout import PROJECT, PYTHON, Trouble, make_private, var_dir, write_atomically
from house.supervisor import Supervisor

DOWN_SECONDS = 180
READY, FAILED = "\x06", "\x15"  # the last line from a detached supervisor to the terminal that started it
# What `--fresh` takes away. The logs stay.
STATE = ("valkey", "simulator", "beat", "static", "evidence", "demo.json", "secrets.json", "run.json")


def up(arguments: list[str]) -> int:
    """Start the house; stay with it, or return when it is ready (`--detach`)."""
    wanted = _parse(arguments)
    began = time.monotonic()
    var = var_dir()
    with _only_supervisor(var) as mine:
        if not mine:
            return _already_running(var, wanted)
        environment.ensure(say=_say)
        if wanted.fresh:
            _start_over(var)
        keys = keys_of(var)
        swept = processes.sweep(keys.house_id)
        if swept:
            _say(f"ended what an earlier start left behind: {', '.join(swept)}")
        numbers = _choose_ports(var, wanted.port)
        if wanted.detach:
            return _detached(lambda say: _serve(var, keys, numbers, began, say, stay_words="bin/down"), var)
        return _serve(var, keys, numbers, began, _say, stay_words="Ctrl-C or bin/down")


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bin/up", description="Run Quits on this machine, everything included.")
    parser.add_argument("--detach", action="store_true", help="return when it is ready; bin/down stops it")
    parser.add_argument("--fresh", action="store_true", help="throw the data away and start over")
    parser.add_argument("--port", type=int, help=f"port of the web server (default {plan.DEFAULT_WEB_PORT})")
    return parser.parse_args(arguments)


def _say(line: str) -> None:
    """To the terminal; a terminal that went away (`bin/up | head`) is no reason to stop."""
    with contextlib.suppress(BrokenPipeError):
        if line not in (READY, FAILED):
            print(line, flush=True)


# --- one supervisor for each var directory ----------------------------------------------------------------------


@contextlib.contextmanager
def _only_supervisor(var: Path) -> Iterator[bool]:
    """The lock is held as long as the supervisor lives, whatever ends it. Yields whether it is ours."""
    with (var / "up.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        _sign(var)
        yield True


def _sign(var: Path) -> None:
    """Write into the lock file who holds it."""
    (var / "up.lock").write_text(f"{os.getpid()}\n")


def _record(var: Path) -> dict:
    try:
        return json.loads((var / "run.json").read_text())
    except (OSError, ValueError):
        return {}


def _already_running(var: Path, wanted: argparse.Namespace) -> int:
    record = _record(var)
    where = record.get("base_url", "an address it has not said yet")
    _say(f"Quits is running already ({record.get('state', 'starting')}) at {where}, started from {var}")
    other_port = wanted.port is not None and wanted.port != record.get("ports", {}).get("web")
    if wanted.fresh or other_port:
        _say("bin/down stops it; then start it again")
        return 1
    if wanted.detach and record.get("state") == "ready":
        return 0
    return 1


def _start_over(var: Path) -> None:
    if not plan.has_own_postgres():
        raise Trouble("starting over is for embedded servers only: empty the database at DATABASE_URL yourself")
    processes.sweep(keys_of(var).house_id)
    postgres.remove(var)
    for name in STATE:
        path = var / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _choose_ports(var: Path, wanted: int | None) -> dict[str, int]:
    """The ports of the last time where they are free; the web port as asked, or the next free one, said aloud."""
    before = _record(var).get("ports", {})
    taken: set[int] = set()
    numbers = {"web": _web_port(wanted, before.get("web"), taken)}
    for name in plan.PORT_NAMES[1:]:
        numbers[name] = ports.pick(before.get(name), taken=taken)
    return numbers


def _web_port(wanted: int | None, before: int | None, taken: set[int]) -> int:
    first = wanted or before or plan.DEFAULT_WEB_PORT
    for port in (first, *range(plan.DEFAULT_WEB_PORT, plan.DEFAULT_WEB_PORT + 50)):
        if ports.is_free(port):
            if port != first:
                _say(f"port {first} is in use: taking {port}")
            taken.add(port)
            return port
    port = ports.pick(taken=taken)
    _say(f"port {first} is in use: taking {port}")
    return port


# --- serving ----------------------------------------------------------------------------------------------------


def _serve(
    var: Path, keys: Keys, numbers: dict[str, int], began: float, say: Callable[[str], None], *, stay_words: str
) -> int:
    supervisor = Supervisor(
        var=var, keys=keys, numbers=numbers, parts=plan.parts(var=var, keys=keys, numbers=numbers), say=say
    )
    supervisor.listen()
    try:
        if supervisor.start():
            for line in _welcome(var, supervisor.environment, time.monotonic() - began, stay_words):
                say(line)
            say(READY)
            supervisor.watch()
            say("stopping …")
        return 0
    except Trouble as trouble:
        say(str(trouble))
        say(FAILED)
        return 1
    finally:
        supervisor.stop()
        _forget_processes(var)
        say("stopped")


def _forget_processes(var: Path) -> None:
    """The ports stay written down for the next start."""
    write_atomically(
        var / "run.json", json.dumps({"state": "stopped", "ports": _record(var).get("ports", {})}, indent=2) + "\n"
    )


def _welcome(var: Path, values: dict[str, str], took: float, stay_words: str) -> Iterator[str]:
    base = values["QUITS_BASE_URL"]
    yield f"\nQuits is ready ({took:.1f} s)\n"
    yield f"  back office    {base}/admin/"
    yield f"  API            {base}/api/v1/   documentation {base}/api/docs"
    yield f"  status stream  {values['QUITS_STREAM_URL']}"
    yield f"  simulator      {values['QUITS_SIMULATOR_URL']}"
    try:
        demo = json.loads((var / "demo.json").read_text())
    except (OSError, ValueError):
        demo = {}
    if demo.get("admin"):
        yield "\n  log in as"
    for login in demo.get("admin", []):
        yield f"    {login.get('role', ''):<18} {login.get('username', ''):<22} {login.get('password', '')}"
    if demo:
        yield f"\n  logins and API clients: {var / 'demo.json'}"
    yield f"  logs: {var / 'log'}\n  stop: {stay_words}\n"


def _detached(serve: Callable[[Callable[[str], None]], int], var: Path) -> int:
    """The supervisor goes on in a session of its own; this process relays its words until it is ready."""
    receiving, sending = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(receiving)
        _become_background(var)
        _sign(var)
        os._exit(_guarded(serve, _speaker(sending)))
    os.close(sending)
    return _relay(receiving, child)


def _guarded(serve: Callable[[Callable[[str], None]], int], say: Callable[[str], None]) -> int:
    """The supervisor's own mistakes are said to the waiting terminal too."""
    try:
        return serve(say)
    except BaseException:
        say(traceback.format_exc())
        say(FAILED)
        return 1


def _become_background(var: Path) -> None:
    os.setsid()
    log = os.open(make_private(var / "log") / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)


def _speaker(sending: int) -> Callable[[str], None]:
    """Lines go to the log, and to the waiting terminal until it was told the outcome."""
    pipe: list[int] = [sending]

    def say(line: str) -> None:
        _say(line if line in (READY, FAILED) else f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")
        if pipe:
            with contextlib.suppress(BrokenPipeError):
                os.write(pipe[0], (line + "\n").encode())
            if line == READY:
                os.close(pipe.pop())

    return say


def _relay(receiving: int, child: int) -> int:
    outcome = FAILED
    with os.fdopen(receiving, encoding="utf-8") as words:
        while True:
            try:
                for line in words:
                    if line.rstrip("\n") in (READY, FAILED):
                        outcome = line.rstrip("\n")
                    else:
                        _say(line.rstrip("\n"))
                break
            except KeyboardInterrupt:
                os.kill(child, signal.SIGTERM)
    return 0 if outcome == READY else 1


# --- bin/down ---------------------------------------------------------------------------------------------------


def down(arguments: list[str]) -> int:
    """Stop the house of this var directory and wait for its end; the warm test servers too."""
    parser = argparse.ArgumentParser(prog="bin/down", description="Stop Quits, and wait until it has stopped.")
    parser.add_argument("--purge", action="store_true", help="and throw its data away, wherever it lies")
    wanted = parser.parse_args(arguments)
    var = var_dir()
    ran = _stop_supervisor(var)
    with _only_supervisor(var) as mine:
        if not mine:
            raise Trouble(f"the supervisor still runs after {DOWN_SECONDS} s: see {var / 'log' / 'supervisor.log'}")
        left = processes.sweep(keys_of(var).house_id) if (var / "secrets.json").exists() else []
        tests = [bed.name for bed in (var / "test", var / "gate") if testbed.stop(bed)]
        if wanted.purge:
            for bed in (var / "test", var / "gate"):
                testbed.remove(bed)
            _start_over(var)
    if left:
        _say(f"ended what a killed supervisor left behind: {', '.join(left)}")
    if tests:
        _say("ended the warm test servers")
    _say("stopped" if ran or left else "Quits was not running")
    return 0


def _stop_supervisor(var: Path) -> bool:
    """Ask the holder of the lock to end, and wait until the lock is free."""
    asked = False
    deadline = time.monotonic() + DOWN_SECONDS
    while time.monotonic() < deadline:
        with _only_supervisor(var) as free:
            if free:
                return asked
            with contextlib.suppress(OSError, ValueError):
                holder = int((var / "up.lock").read_text())
                if not asked and _holds_lock(holder, var):
                    os.kill(holder, signal.SIGTERM)
                    asked = True
        time.sleep(0.05)
    return asked


def _holds_lock(pid: int, var: Path) -> bool:
    """Whether that very process has the lock file open: a reused pid has not."""
    lock = (var / "up.lock").resolve()
    try:
        opened = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    for link in opened:
        with contextlib.suppress(OSError):
            if link.resolve() == lock:
                return True
    return False


# --- bin/manage -------------------------------------------------------------------------------------------------


def manage(arguments: list[str]) -> int:
    """A management command in the environment of the house; its servers are started for the while when it is down."""
    environment.ensure(say=lambda line: print(line, file=sys.stderr, flush=True))
    var = var_dir()
    keys = keys_of(var)
    with _only_supervisor(var) as mine:
        if not mine:
            numbers = _record(var).get("ports")
            if not numbers:
                raise Trouble("Quits is just starting: try again when it is ready")
            return _manage(arguments, plan.environment(var=var, keys=keys, numbers=numbers))
        processes.sweep(keys.house_id)
        numbers = _choose_ports(var, None)
        supervisor = Supervisor(
            var=var,
            keys=keys,
            numbers=numbers,
            parts=plan.servers_only(var=var, keys=keys, numbers=numbers),
            say=lambda line: None,
        )
        try:
            supervisor.start()
            return _manage(arguments, supervisor.environment)
        finally:
            supervisor.stop()
            _forget_processes(var)


def _manage(arguments: list[str], values: dict[str, str]) -> int:
    running = subprocess.Popen([str(PYTHON), str(PROJECT / "manage.py"), *arguments], env=values)
    while True:
        try:
            return running.wait()
        except KeyboardInterrupt:  # the command got it too and decides
            continue
