"""The virtual environment `.venv` with exactly the packages of the lock files, each checked by its hash."""

from __future__ import annotations

import ast
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from house.layout import DEV_LOCK, INSTALLER_LOCK, PROJECT, PYTHON, RUN_LOCK, VENV, Trouble

STAMP = VENV / "quits-installed.json"


def ensure(*, dev: bool = False, say=print) -> None:
    """Make `.venv` hold what the lock says. Nothing is done when it does already.

    `dev` adds what tests and the quality gate need; that lock contains the other one.
    """
    locks = {"run": _digest(RUN_LOCK), "dev": _digest(DEV_LOCK)}
    if _is_current(locks, dev):
        return
    with _only_one():
        if _is_current(locks, dev):
            return
        if not _is_usable():
            _create(say)
        wanted = DEV_LOCK if dev or _stamp().get("dev") else RUN_LOCK
        began = time.monotonic()
        say(f"installing the packages of {wanted.name} …")
        _install(wanted, say)
        kept = {"project": str(PROJECT), "run": locks["run"]}
        if wanted == DEV_LOCK:
            kept["dev"] = locks["dev"]
        STAMP.write_text(json.dumps(kept, indent=2) + "\n")
        say(f"installed in {time.monotonic() - began:.1f} s")


def without_recompiling(values: Mapping[str, str]) -> dict[str, str]:
    """The environment of our Python processes: compiled modules are kept, inside `.venv` and not in the tree.

    Where PYTHONDONTWRITEBYTECODE is set, every one of the house's processes would compile some 1,500 modules at
    every start, seconds of work each.
    """
    kept = {name: value for name, value in values.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(VENV / "bytecode")}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _stamp() -> dict[str, str]:
    try:
        return json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}


def _is_current(locks: dict[str, str], dev: bool) -> bool:
    stamp = _stamp()
    return (
        stamp.get("project") == str(PROJECT)
        and stamp.get("run") == locks["run"]
        and (not dev or stamp.get("dev") == locks["dev"])
        and PYTHON.exists()
    )


def _is_usable() -> bool:
    """A `.venv` whose interpreter is gone, or that came here with a moved project, is made anew."""
    if not PYTHON.exists() or _stamp().get("project", str(PROJECT)) != str(PROJECT):
        return False
    asked = subprocess.run([str(PYTHON), "-m", "pip", "--version"], capture_output=True, check=False)
    return asked.returncode == 0


@contextlib.contextmanager
def _only_one() -> Iterator[None]:
    """Two programs started at once install once."""
    with RUN_LOCK.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _create(say) -> None:
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise Trouble(_how_to_get_venv())
    if not os.access(PROJECT, os.W_OK):
        raise Trouble(f"{PROJECT} is not writable for this user, so .venv cannot be made in it")
    say("making .venv …")
    shutil.rmtree(VENV, ignore_errors=True)
    # The base interpreter, so that .venv does not hang on another virtual environment.
    interpreter = getattr(sys, "_base_executable", None) or sys.executable
    made = subprocess.run([interpreter, "-m", "venv", str(VENV)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        shutil.rmtree(VENV, ignore_errors=True)
        raise Trouble(f"{made.stdout}{made.stderr}".strip() + "\n" + _how_to_get_venv())


def _how_to_get_venv() -> str:
    """The exact line that installs the missing module."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    sudo = "" if os.geteuid() == 0 else "sudo "
    if shutil.which("apt-get"):
        package = "python3-venv" if sys.executable == "/usr/bin/python3" else f"python{version}-venv"
        line = f"{sudo}apt-get install -y {package}"
    elif shutil.which("dnf"):
        line = f"{sudo}dnf install -y python3"
    elif shutil.which("apk"):
        line = f"{sudo}apk add python3 py3-pip"
    else:
        line = f"{sys.executable} -m ensurepip"
    return (
        f"this Python {version} ({sys.executable}) lacks the module venv or ensurepip. Install it with:\n\n    {line}\n"
    )


def _install(lock: Path, say) -> None:
    """By uv, which takes seconds; by pip, which always works, when uv cannot."""
    if _run_pip("-r", str(INSTALLER_LOCK), quietly=True) and _run_uv(lock):
        return
    say("uv did not manage it here: taking pip, which needs half a minute")
    if not _run_pip("-r", str(lock), quietly=False):
        raise Trouble(f"the packages of {lock.name} could not be installed (see above)")


def _run_pip(*arguments: str, quietly: bool) -> bool:
    command = [str(PYTHON), "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--require-hashes"]
    done = subprocess.run(
        [*command, *arguments], check=False, capture_output=quietly, env={**os.environ, "PIP_NO_INPUT": "1"}
    )
    return done.returncode == 0


def _run_uv(lock: Path) -> bool:
    uv = VENV / "bin" / "uv"
    environment = {"UV_HTTP_TIMEOUT": "15", "UV_NO_PROGRESS": "1", **os.environ, **_pip_settings()}
    environment.pop("VIRTUAL_ENV", None)
    command = [str(uv), "pip", "install", "-qq", "--python", str(PYTHON), "--no-config", "--require-hashes"]
    try:
        done = subprocess.run(
            [*command, "-r", str(lock)], check=False, capture_output=True, env=environment, timeout=180, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _pip_settings() -> dict[str, str]:
    """Where pip was told to look for packages; uv does not read pip's configuration by itself."""
    asked = subprocess.run([str(PYTHON), "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    told: dict[str, str] = {}
    for line in asked.stdout.splitlines():
        name, _, value = line.partition("=")
        with contextlib.suppress(ValueError, SyntaxError):
            # Ordered global, user, site, environment: the later one wins.
            told[name.rpartition(".")[2]] = str(ast.literal_eval(value))
    settings = {}
    if "index-url" in told:
        settings["UV_DEFAULT_INDEX"] = told["index-url"]
    if "extra-index-url" in told:
        settings["UV_INDEX"] = " ".join(told["extra-index-url"].split())
    if "find-links" in told:
        settings["UV_FIND_LINKS"] = ",".join(told["find-links"].split())
    if "cert" in told:
        settings["SSL_CERT_FILE"] = told["cert"]
    # Every file is pinned by its hash, so it does not matter which index it comes from.
    settings["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return settings
