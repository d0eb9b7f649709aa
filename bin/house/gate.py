"""`bin/test`: the quality gate, or pytest alone."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from house import environment, testbed
from house.keys import Keys
from house.layout import PROJECT, PYTHON, VENV, Trouble

USAGE = """\
bin/test                 the whole quality gate, as continuous integration runs it
bin/test ARGUMENTS…      only pytest with these arguments, on servers kept warm between runs
bin/test mutants [ARGS]  tests/mutants/run.py: named defects, each must turn a test red
bin/test faults [ARGS]   tests/faults/run.py: kill -9 under load, then everything must converge (--seed, --runs)
bin/test fuzz [N] [SEED]  tests/fuzz/run.py: every endpoint under N generated requests (20,500)
bin/test stop            end the warm test servers of this var directory

QUITS_VAR=DIRECTORY gives a run servers of its own, so that several can run at once.
"""
# Long campaigns with a program of their own. Mutants run on the private servers of tests; a fault run starts houses.
CAMPAIGNS = {"mutants": "tests.mutants.run", "faults": "tests.faults.run", "fuzz": "tests.fuzz.run"}


def main(arguments: list[str]) -> int:
    if arguments in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    if arguments == ["stop"]:
        ended = [bed.name for bed in (testbed.directory("test"), testbed.directory("gate")) if testbed.stop(bed)]
        print(f"ended: {', '.join(ended)}" if ended else "no test servers were running")
        return 0
    if arguments and arguments[0] in CAMPAIGNS:
        return _campaign(arguments[0], arguments[1:])
    environment.ensure(dev=True, say=_say)
    return _pytest_alone(arguments) if arguments else _whole_gate()


def _say(line: str) -> None:
    print(line, flush=True)


def _campaign(name: str, arguments: list[str]) -> int:
    environment.ensure(dev=True, say=_say)
    command = [str(PYTHON), "-m", CAMPAIGNS[name], *arguments]
    if name == "faults" or {"-h", "--help"} & set(arguments):
        return follow(command, environment.without_recompiling(os.environ))
    directory = testbed.directory(name)
    try:
        with testbed.borrowed(directory) as (bed, keys):
            return follow(command, test_environment(bed, keys, directory))
    finally:
        testbed.stop(directory)


# --- pytest alone ---------------------------------------------------------------------------------------------


def _pytest_alone(arguments: list[str]) -> int:
    directory = testbed.directory()
    with testbed.borrowed(directory) as (bed, keys):
        values = test_environment(bed, keys, directory)
        if (chromium := find_chromium()) is not None:
            values["QUITS_CHROMIUM"] = chromium
        # The schema is kept between runs for as long as the migrations are the same files.
        fingerprint, kept = _migrations(), directory / "schema.sha256"
        same = kept.exists() and kept.read_text() == fingerprint
        kept.unlink(missing_ok=True)
        reuse = ["--reuse-db"] if same else ["--reuse-db", "--create-db"]
        code = follow([str(PYTHON), "-m", "pytest", *reuse, *arguments], values)
        if code in (0, 1):  # finished, with or without failures: the database was made
            kept.write_text(fingerprint)
        return code


def _migrations() -> str:
    digest = hashlib.sha256()
    for path in sorted(PROJECT.glob("*/migrations/*.py")):
        digest.update(str(path.relative_to(PROJECT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def test_environment(bed: testbed.Testbed, keys: Keys, directory: Path) -> dict[str, str]:
    """What the product needs to know, pointing at the private servers.

    Nothing of the surrounding shell gets through: a DATABASE_URL exported there may be somebody's real one.
    """
    foreign = ("QUITS_", "DATABASE_", "REDIS_", "DJANGO_", "PG")
    inherited = environment.without_recompiling(os.environ)
    kept = {n: value for n, value in inherited.items() if n == "QUITS_CHROMIUM" or not n.startswith(foreign)}
    return {
        **kept,
        "QUITS_ENV": "test",
        "QUITS_VAR": str(directory),
        "QUITS_SECRET_KEY": keys.secret_key,
        "QUITS_FIELD_KEYS": keys.field_keys,
        "QUITS_LEASE_KEYS": keys.lease_keys,
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "DATABASE_URL": bed.database_url,
        "DATABASE_OWNER_URL": bed.database_owner_url,
        "REDIS_URL": bed.redis_url,
        "PYTHONUNBUFFERED": "1",
    }


def follow(command: list[str], values: dict[str, str]) -> int:
    """Run in the foreground, with this terminal; Ctrl-C and SIGTERM go to the program, whose exit code counts."""
    running = subprocess.Popen(command, cwd=PROJECT, env=values)
    signal.signal(signal.SIGTERM, lambda *_: running.terminate())
    while True:
        try:
            return running.wait()
        except KeyboardInterrupt:
            continue


# --- the whole gate -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One line of the gate. Django steps get a database; production ones are told they are in production."""

    name: str
    command: list[str]
    extra: dict[str, str] | None = None


# A deployment as config/settings.py expects one, with names that belong to nobody.
PRODUCTION = {
    "QUITS_ENV": "production",
    "QUITS_BASE_URL": "https://quits.example",
    "QUITS_STREAM_URL": "https://stream.quits.example",
    "QUITS_ALLOWED_HOSTS": "quits.example",
}


# A file stays on one worker: what its tests share (a whole house, a simulator, a browser) is made once.
IN_PARALLEL = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-p", "house.slow_first"]


def steps() -> list[Step]:
    manage = [str(PYTHON), "manage.py"]
    tool = VENV / "bin"
    return [
        Step("mypy", [str(PYTHON), "-m", "mypy", "."]),
        Step("ruff check", [str(tool / "ruff"), "check", "."]),
        Step("ruff format", [str(tool / "ruff"), "format", "--check", "."]),
        Step("floors of the house (import-linter)", [str(tool / "lint-imports")]),
        Step("migrations are complete", [*manage, "makemigrations", "--check", "--dry-run"]),
        Step("deploy check", [*manage, "check", "--deploy", "--fail-level", "WARNING"], PRODUCTION),
        Step(
            "OpenAPI without warnings",
            [*manage, "spectacular", "--fail-on-warn", "--validate", "--file", os.devnull],
        ),
        *_translations(manage),
    ]


def _translations(manage: list[str]) -> list[Step]:
    """Every command of the product named check_… is a step: translations without holes, diagrams up to date …"""
    found = sorted(PROJECT.glob("*/management/commands/check_*.py"))
    return [Step(path.stem.replace("_", " "), [*manage, path.stem]) for path in found]


def _whole_gate() -> int:
    began = time.monotonic()
    directory = testbed.directory("gate")
    testbed.stop(directory)
    chromium = require_chromium()
    try:
        with testbed.borrowed(directory) as (bed, keys):
            values = {
                **test_environment(bed, keys, directory),
                "QUITS_CHROMIUM": chromium,
                "PYTHONPATH": str(PROJECT / "bin"),  # for slow_first
            }
            failed = _run_steps(values)
            _say("── pytest " + "─" * 70)
            code = follow([str(PYTHON), "-m", "pytest", *IN_PARALLEL, "--create-db", "-q"], values)
            if code != 0:
                failed.append("pytest")
    finally:
        testbed.stop(directory)
    took = time.monotonic() - began
    _say("─" * 80)
    _say(f"FAILED: {', '.join(failed)} ({took:.0f} s)" if failed else f"everything passed ({took:.0f} s)")
    return 1 if failed else 0


def _run_steps(values: dict[str, str]) -> list[str]:
    """Two at a time; a line for each as it ends, its output when it failed. Returns the names that failed."""
    failed: list[str] = []
    speaking = threading.Lock()

    def run(step: Step) -> None:
        began = time.monotonic()
        done = subprocess.run(
            step.command,
            cwd=PROJECT,
            env={**values, **(step.extra or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        with speaking:
            good = done.returncode == 0
            _say(f"{'ok  ' if good else 'FAIL'}  {step.name:<45} {time.monotonic() - began:6.1f} s")
            if not good:
                failed.append(step.name)
                _say("\n".join(f"      {line}" for line in done.stdout.rstrip().splitlines()))

    with ThreadPoolExecutor(max_workers=2) as pool:
        for outcome in [pool.submit(run, step) for step in steps()]:
            outcome.result()
    return failed


# --- the browser ----------------------------------------------------------------------------------------------


def find_chromium() -> str | None:
    """Debian's Chromium, or the one QUITS_CHROMIUM names."""
    named = os.environ.get("QUITS_CHROMIUM")
    if named:
        if not os.access(named, os.X_OK):
            raise Trouble(f"QUITS_CHROMIUM={named} cannot be run")
        return named
    for name in ("/usr/bin/chromium", "chromium", "chromium-browser", "google-chrome"):
        if (path := shutil.which(name)) is not None:
            return path
    return None


def require_chromium() -> str:
    """The gate never skips the browser tests: install Chromium when that is possible, else say the line and fail."""
    if (path := find_chromium()) is not None:
        return path
    install = ["apt-get", "install", "-y", "--no-install-recommends", "chromium", "fonts-noto-cjk"]
    if os.geteuid() == 0 and shutil.which("apt-get"):
        _say("Chromium is missing, installing it …")
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update", "-q"], install):
            subprocess.run(command, check=False, env=quiet, stdout=subprocess.DEVNULL)
        if (path := find_chromium()) is not None:
            return path
    raise Trouble(
        "the browser tests need Chromium, which is not installed. Install it with:\n\n"
        f"    sudo {' '.join(install)}\n\nor name one with QUITS_CHROMIUM=/path/to/chromium"
    )
