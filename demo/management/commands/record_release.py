"""Keep a release's database for later: schema and demo, as the file from which tests/upgrade migrates."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from kernel import dumps, numbers

LARGEST_BYTES = 300_000
OUR_OWN = ("QUITS_", "DATABASE_", "REDIS_", "DJANGO_")


def recorded_in() -> Path:
    """Where the releases lie, `<version>.sql.gz` each."""
    return Path(settings.BASE_DIR) / "tests" / "upgrade" / "releases"


def environment(*, url: str, owner_url: str, var: Path) -> dict[str, str]:
    """The environment in which a recorded database can be worked with: the development keys, which everybody has, and
    a corner of Valkey that no other environment uses."""
    corner = settings.REDIS_URL.rsplit("/", 1)[0] + "/15"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OUR_OWN)}
    return {
        **kept,
        "QUITS_ENV": "development",
        "QUITS_VAR": str(var),
        "DATABASE_URL": url,
        "DATABASE_OWNER_URL": owner_url,
        "REDIS_URL": corner,
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }


class Command(BaseCommand):
    help = (
        "Record the present schema, with the demo in it, for the upgrade test of later releases. "
        "Done once for each release, before it lands."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--release", help="the release's number; the project's version unless given")

    def handle(self, *args: Any, **options: Any) -> None:
        project = tomllib.loads((Path(settings.BASE_DIR) / "pyproject.toml").read_text())
        target = recorded_in() / f"{options['release'] or project['project']['version']}.sql.gz"
        owner = settings.DATABASE_OWNER_URL
        name = f"quits_release_{numbers.uuid7().hex[-12:]}"
        try:
            with tempfile.TemporaryDirectory() as var, dumps.scratch_database(owner, name) as scratch:
                self._fill(environment(url=scratch, owner_url=scratch, var=Path(var)))
                text = dumps.run("pg_dump", "--no-owner", "--no-privileges", "--no-comments", url=scratch)
        except dumps.DumpFailed as error:
            raise CommandError(str(error)) from error
        packed = gzip.compress(text.encode(), compresslevel=9, mtime=0)
        if len(packed) > LARGEST_BYTES:
            raise CommandError(f"{len(packed):,} bytes are too many to keep: at most {LARGEST_BYTES:,}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(packed)
        self.stdout.write(f"{target.relative_to(settings.BASE_DIR)}: {len(packed):,} bytes")

    def _fill(self, values: dict[str, str]) -> None:
        done = subprocess.run(
            [sys.executable, str(settings.BASE_DIR / "manage.py"), "prepare"],
            env=values,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise CommandError(f"the demo could not be made:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
