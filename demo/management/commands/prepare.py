"""What bin/up runs between the servers and the applications: tables, static files, the demo once, demo.json."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles import finders
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from demo.access import demo_file_text
from demo.commands.seed_demo import seed_demo
from kernel import clock


class Command(BaseCommand):
    help = "Migrate, collect static files if they changed, seed the demo once, write demo.json."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--without-demo", action="store_true", help="tables and static files only")

    def handle(self, *args: Any, **options: Any) -> None:
        with self._timed("tables"):
            self._migrate()
        with self._timed("static files"):
            self._collect_static()
        if options["without_demo"]:
            return
        with self._timed("demo"):
            seeded = seed_demo(now=clock.now(), simulator_url=settings.QUITS_SIMULATOR_URL)
        if not seeded.replayed:
            self.stdout.write(f"the demo is there: {seeded.orders} orders, {seeded.claims} after-sales orders")
        self._write(settings.QUITS_VAR / "demo.json", demo_file_text())

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.stdout.write(f"{what}: {time.monotonic() - began:.1f} s")

    def _migrate(self) -> None:
        executor = MigrationExecutor(connection)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            call_command("migrate", interactive=False, verbosity=0, stdout=self.stdout)

    def _collect_static(self) -> None:
        """Only when a file was added, removed or touched since the last time."""
        root, state = Path(settings.STATIC_ROOT), self._static_state()
        note = root / ".collected"
        if note.exists() and note.read_text() == state:
            return
        call_command("collectstatic", interactive=False, clear=True, verbosity=0, stdout=self.stdout)
        note.write_text(state)

    @staticmethod
    def _static_state() -> str:
        digest = hashlib.sha256(settings.STORAGES["staticfiles"]["BACKEND"].encode())
        for finder in finders.get_finders():
            for path, storage in finder.list([]):
                found = Path(storage.path(path)).stat()
                digest.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    @staticmethod
    def _write(path: Path, text: str) -> None:
        """At once and for this user only: it holds passwords."""
        if path.exists() and path.read_text() == text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.new")
        fresh.touch(mode=0o600)
        fresh.write_text(text)
        fresh.replace(path)
