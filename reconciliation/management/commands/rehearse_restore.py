"""A back-up that was never restored is a hope. This takes one, restores it beside the original, proves it, drops it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from kernel import dumps, numbers

PROOFS = (
    ("migrations are those of this release", ("migrate", "--check")),
    ("every coupon is what its ledger says", ("verify_coupons",)),
)


class Command(BaseCommand):
    help = (
        "Back up the database, restore it into a scratch database, prove that both are equal and that the ledgers "
        "agree, drop the scratch database. Ends with 1 when anything differs. Runs beside live traffic."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--backup", type=Path, help="rehearse with this archive of pg_dump instead of a fresh one")
        parser.add_argument("--keep", type=Path, help="keep the fresh archive under this name")
        parser.add_argument("--jobs", type=int, default=2, help="parallel jobs of pg_restore")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["backup"] and options["keep"]:
            raise CommandError("--keep is for a fresh archive; --backup has one already")
        source = settings.DATABASE_OWNER_URL
        if not source:
            raise CommandError("DATABASE_OWNER_URL or DATABASE_URL has to be set")
        began = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="quits-rehearsal-") as place:
                wrong = self._rehearse(source, Path(place), options)
        except dumps.DumpFailed as error:
            raise CommandError(str(error)) from error
        if wrong:
            raise CommandError("the rehearsal failed:\n" + "\n".join(f"  {line}" for line in wrong), returncode=1)
        self.stdout.write(f"the back-up can be restored ({time.monotonic() - began:.1f} s in all)")

    def _rehearse(self, source: str, place: Path, options: dict[str, Any]) -> list[str]:
        archive: Path = options["backup"] or options["keep"] or place / "quits.dump"
        before = None
        if not options["backup"]:
            with self._timed("backed up"):
                before = self._take(source, archive)
        size = archive.stat().st_size
        self.stdout.write(f"  archive: {size:,} bytes")
        with dumps.scratch_database(source, f"quits_rehearsal_{numbers.uuid7().hex[-12:]}") as scratch:
            with self._timed("restored"):
                dumps.restore(scratch, archive, jobs=options["jobs"])
            return [*self._compare(before, scratch), *self._prove(scratch)]

    def _take(self, source: str, archive: Path) -> tuple[dict[str, tuple[int, str]], dict[str, set[str]]]:
        """Archive and digests of one and the same snapshot, so traffic does not matter."""
        with dumps.connect(source) as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            row = connection.execute("SELECT pg_export_snapshot()").fetchone()
            assert row is not None
            dumps.dump(source, archive, snapshot=row[0])
            archive.chmod(0o600)
            return dumps.contents(connection), dumps.shape(connection)

    def _compare(self, before: Any, scratch: str) -> list[str]:
        with self._timed("compared"), dumps.connect(scratch) as connection:
            contents, shape = dumps.contents(connection), dumps.shape(connection)
        rows = sum(count for count, _digest in contents.values())
        said = ", ".join(f"{len(found)} {kind}" for kind, found in shape.items())
        self.stdout.write(f"  {len(contents)} tables, {rows:,} rows, {said}")
        if before is None:
            return []
        wrong = [
            f"table {name}: {before[0].get(name)} in the original, {contents.get(name)} in the copy (rows, digest)"
            for name in sorted(before[0].keys() | contents.keys())
            if before[0].get(name) != contents.get(name)
        ]
        for kind, found in before[1].items():
            wrong += [f"{kind}: only in the original or only in the copy: {one[:200]}" for one in found ^ shape[kind]]
        return wrong

    def _prove(self, scratch: str) -> list[str]:
        wrong = []
        for what, command in PROOFS:
            with self._timed(what):
                done = subprocess.run(
                    [sys.executable, str(settings.BASE_DIR / "manage.py"), *command],
                    env={**os.environ, "DATABASE_URL": scratch, "DATABASE_OWNER_URL": scratch},
                    capture_output=True,
                    text=True,
                    check=False,
                )
            if done.returncode != 0:
                wrong.append(f"not true: {what}\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
        return wrong

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.stdout.write(f"{what}: {time.monotonic() - began:.1f} s")
