"""`bin/test mutants`: named defects, put into a copy of the project one at a time; each must turn a named test red.

First all the named tests run on the unharmed copy (a test that is red anyway notices nothing). Exit code 1 when a
mutant survives, or can no longer be made.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.catalogue import ALL, Mutant, SchemaMutant

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "var", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache")
SECONDS = 240
KILLED, GREEN, NO_TESTS = 1, 0, 5


@dataclass(frozen=True)
class Outcome:
    """What became of one mutant: killed (by these tests), survived, or not made."""

    name: str
    verdict: str
    by: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        return f"{self.verdict:<8} {self.seconds:5.1f} s  {self.name}" + (
            f"  ← {', '.join(self.by)}" if self.by else ""
        )


class Copy:
    """The scratch copy. The test database is kept between mutants, until one has harmed the schema."""

    def __init__(self, place: Path):
        self.place = place
        self.clock = time.time() - 10_000_000
        self.database_is_good = False
        shutil.copytree(ROOT, place, ignore=LEFT_OUT, symlinks=True)

    def pytest(self, tests: tuple[str, ...], *, harm: str = "", first_failure: bool = True) -> tuple[int, str]:
        keep = self.database_is_good and not harm
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", "--no-header", "-rf"),
            *(["-x"] if first_failure else []),
            *(["--reuse-db"] if keep else ["--reuse-db", "--create-db"]),
            *(["-p", "tests.mutants.schema"] if harm else []),
            *tests,
        ]
        self.database_is_good = not harm
        try:
            done = subprocess.run(
                command,
                cwd=self.place,
                env={**os.environ, "QUITS_MUTANT_SQL": harm},
                capture_output=True,
                text=True,
                timeout=SECONDS if first_failure else 10 * SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self.database_is_good = False
            return KILLED, "FAILED (the tests did not end in time)"
        return done.returncode, done.stdout + done.stderr

    def put(self, path: str, text: str) -> None:
        """Each version of a file has a time of its own: compiled modules are told apart by whole seconds."""
        self.clock += 10
        (self.place / path).write_text(text)
        os.utime(self.place / path, (self.clock, self.clock))

    def try_out(self, mutant: Mutant | SchemaMutant) -> Outcome:
        began = time.monotonic()
        if isinstance(mutant, SchemaMutant):
            code, said = self.pytest(mutant.tests, harm=mutant.sql)
        else:
            good = (ROOT / mutant.path).read_text()
            if good.count(mutant.old) != 1:
                return Outcome(mutant.name, "STALE", (f"{mutant.path} has it {good.count(mutant.old)} times",), 0.0)
            self.put(mutant.path, good.replace(mutant.old, mutant.new))
            try:
                code, said = self.pytest(mutant.tests)
            finally:
                self.put(mutant.path, good)
        took = time.monotonic() - began
        red = tuple(re.findall(r"^FAILED (\S+|\(.*\))", said, re.M))
        if code == KILLED and red:
            return Outcome(mutant.name, "killed", red, took)
        if code == GREEN:
            return Outcome(mutant.name, "SURVIVED", (), took)
        return Outcome(mutant.name, "BROKEN", (f"pytest ended with {code}", said.strip()[-600:]), took)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bin/test mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutants whose name contains one of these")
    parser.add_argument("--trust", action="store_true", help="do not run the tests on the unharmed copy first")
    wanted = parser.parse_args()
    chosen = [each for each in ALL if not wanted.words or any(word in each.name for word in wanted.words)]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="quits-mutants-") as scratch:
        copy = Copy(Path(scratch) / "quits")
        if not wanted.trust:
            tests = tuple(dict.fromkeys(test for each in chosen for test in each.tests))
            code, said = copy.pytest(tests, first_failure=False)
            print(f"the named tests on the unharmed copy: {said.strip().splitlines()[-1]}", flush=True)
            if code != GREEN:
                print(said[-3000:])
                return 1
        outcomes = []
        for mutant in chosen:
            outcomes.append(copy.try_out(mutant))
            print(outcomes[-1], flush=True)
    bad = [each for each in outcomes if each.verdict != "killed"]
    print(f"{len(outcomes) - len(bad)} of {len(outcomes)} killed in {time.monotonic() - began:.0f} s")
    for each in bad:
        print(each)
    return 1 if bad or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
