"""Where things are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
VENV = PROJECT / ".venv"
PYTHON = VENV / "bin" / "python"
RUN_LOCK = PROJECT / "requirements.txt"
DEV_LOCK = PROJECT / "requirements-dev.txt"
INSTALLER_LOCK = Path(__file__).with_name("installer.txt")


class Trouble(Exception):
    """Something the person at the keyboard can act on: shown as one message, without a traceback."""


def var_dir() -> Path:
    """`QUITS_VAR`, or `var` in the project; made when missing."""
    var = Path(os.environ.get("QUITS_VAR") or PROJECT / "var").expanduser().absolute()
    try:
        var.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Trouble(f"cannot make the directory {var}: {error.strerror}") from error
    if not os.access(var, os.W_OK | os.X_OK):
        raise Trouble(f"{var} is not writable for this user: set QUITS_VAR to a directory that is")
    return var


def make_private(path: Path) -> Path:
    """A directory for this user only."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def site_packages() -> Path:
    """The directory of `.venv` into which wheels are unpacked."""
    found = sorted(VENV.glob("lib/python3.*/site-packages"))
    if not found:
        raise Trouble(f"{VENV} holds no packages: remove it and start again")
    return found[-1]


def write_atomically(path: Path, text: str, *, mode: int = 0o600, durable: bool = True) -> None:
    """A reader sees the old file or the new one, and a kill in between leaves the old one."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        if durable:  # also when the machine goes down
            os.fsync(file.fileno())
    os.replace(fresh, path)


def run_main(main) -> None:
    """The frame of every program in bin/: troubles in one line, Ctrl-C without a traceback."""
    try:
        code = main(sys.argv[1:])
    except Trouble as trouble:
        print(f"{Path(sys.argv[0]).name}: {trouble}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        code = 130
    sys.stdout.flush()
    sys.exit(code)
