"""From each recorded release to this one, with its data in place and traffic on it."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.db import connection

from demo.management.commands.record_release import environment, recorded_in
from kernel import dumps, numbers
from tests.upgrade.gentle import rough

ROOT = Path(__file__).resolve().parents[2]
SYNTHETIC = ("next_note", "next_by_note")


@dataclass(frozen=True)
class Recorded:
    """A release's database, restored: the two roles' addresses, and the environment to run programs on it."""

    url: str
    owner_url: str
    values: dict[str, str]

    def run(self, *command: str, check: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            env={**self.values, **more},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert not check or done.returncode == 0, f"{command}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done

    def manage(self, *command: str, **more: str) -> str:
        return self.run("manage.py", *command, **more).stdout


def releases() -> list[Path]:
    return sorted(recorded_in().glob("*.sql.gz"), key=lambda path: [int(part) for part in path.name.split(".")[:3]])


@pytest.fixture(params=releases(), ids=lambda path: path.name.removesuffix(".sql.gz"))
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Recorded]:
    (tmp_path / "release.sql").write_bytes(gzip.decompress(request.param.read_bytes()))
    owner, app = os.environ["DATABASE_OWNER_URL"], os.environ["DATABASE_URL"]
    name = f"quits_upgrade_{numbers.uuid7().hex[-12:]}"
    with dumps.scratch_database(owner, name) as scratch:
        dumps.run("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(tmp_path / "release.sql"), url=scratch)
        url = dumps.at(app, name)
        yield Recorded(url, scratch, environment(url=url, owner_url=scratch, var=tmp_path))


@pytest.mark.slow
def test_migrating_under_traffic(recorded: Recorded, transactional_db: None) -> None:
    traffic = subprocess.Popen(
        [sys.executable, "-m", "tests.upgrade.traffic"],
        cwd=ROOT,
        env=recorded.values,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert traffic.stdout is not None
    first = traffic.stdout.readline()
    recorded.manage("migrate", "--verbosity", "0")
    recorded.manage("migrate", "--verbosity", "0", DJANGO_SETTINGS_MODULE="tests.upgrade.next_settings")
    said, log = traffic.communicate(timeout=300)

    assert first == "running\n", f"{first}{said}\n{log[-3000:]}"
    seen = json.loads(said)
    print(seen)
    assert (seen["failed"], seen["wrong"]) == ([], []), log[-3000:]
    assert min(seen["rounds"]) >= 5
    recorded.manage("verify_coupons")
    recorded.manage("shell", "--verbosity", "0", "-c", LOOK)
    assert recorded.manage("gate").split() == ["P0", "0", "P1", "0"]
    assert _differences(recorded) == {}


LOOK = """
from kernel import clock, stream
from reconciliation.commands.look_at_changes import look_at_changes
stream.drain(now=clock.now())
look_at_changes(now=clock.now())
"""


def _differences(recorded: Recorded) -> dict[str, set[str]]:
    """Where the upgraded schema is not what a new installation has."""
    address = {**connection.settings_dict}
    fresh_url = dumps.at(os.environ["DATABASE_OWNER_URL"], address["NAME"])
    with dumps.connect(recorded.owner_url) as upgraded, dumps.connect(fresh_url) as fresh:
        have, want = dumps.shape(upgraded), dumps.shape(fresh)
    different = {kind: have[kind] ^ want[kind] for kind in want}
    return {
        kind: left
        for kind, found in different.items()
        if (left := {one for one in found if not any(name in one for name in SYNTHETIC)})
    }


@pytest.mark.slow
def test_new_migrations_are_gentle(recorded: Recorded) -> None:
    with dumps.connect(recorded.owner_url) as server:
        done = {(row[0], row[1]) for row in server.execute("SELECT app, name FROM django_migrations")}
        tables = {row[0] for row in server.execute(dumps.TABLES)}
    fresh = [
        (path.parents[1].name, path.stem)
        for path in sorted(ROOT.glob("*/migrations/0*.py"))
        if (path.parents[1].name, path.stem) not in done
    ]
    for app, name in fresh:
        found = rough(recorded.manage("sqlmigrate", app, name), existing=tables)
        assert not found, f"{app} {name}: " + "\n".join(found)


@pytest.mark.parametrize(
    "statement",
    [
        'CREATE INDEX "i" ON "user_coupon" ("status");',
        'CREATE UNIQUE INDEX "i" ON "user_coupon" ("status");',
        'ALTER TABLE "user_coupon" ADD CONSTRAINT "c" CHECK ("x" > 0);',
        'ALTER TABLE "user_coupon" ADD CONSTRAINT "c" UNIQUE ("x");',
        'ALTER TABLE "user_coupon" ALTER COLUMN "x" TYPE bigint USING "x"::bigint;',
        'ALTER TABLE "user_coupon" ALTER COLUMN "x" SET NOT NULL;',
        'ALTER TABLE "user_coupon" DROP COLUMN "x" CASCADE;',
        'ALTER TABLE "user_coupon" RENAME COLUMN "x" TO "y";',
        'ALTER TABLE "user_coupon" RENAME TO "y";',
        'DROP TABLE "user_coupon" CASCADE;',
        "UPDATE user_coupon SET x = 1;",
    ],
)
def test_what_is_rough(statement: str) -> None:
    assert rough(statement, existing={"user_coupon"})
    assert not rough(statement, existing={"another"})


def test_what_is_gentle() -> None:
    text = (ROOT / "tests/upgrade/next_release/migrations/0001_gentle.py").read_text()
    said = ";\n".join(line.strip().strip('"') for line in text.splitlines() if "TABLE" in line or "INDEX" in line)
    body = "CREATE FUNCTION f() RETURNS trigger AS $$ BEGIN UPDATE user_coupon SET x = 1; END $$ LANGUAGE plpgsql;"
    drop = 'ALTER TABLE "user_coupon" DROP CONSTRAINT "c";'
    assert rough(f"{said};\n{body}\n{drop}", existing={"user_coupon"}) == []
