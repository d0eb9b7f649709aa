"""What every test stands on: real PostgreSQL, real Valkey (a database of its own per xdist worker), a fixed clock."""

import hashlib
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from django.conf import settings
from django.db import connection
from django.test import TransactionTestCase

NOW = datetime(2026, 11, 30, 4, 0, tzinfo=UTC)


def pytest_configure() -> None:
    """Give this xdist worker its own Valkey database."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    address = settings.REDIS_URL.rsplit("/", 1)[0] + f"/{int(worker.removeprefix('gw')) + 1}"
    settings.REDIS_URL = address
    settings.CELERY_BROKER_URL = address
    settings.CACHES["default"]["LOCATION"] = address


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the slow tests counted, in their own words: the gate's output is where people look for it."""
    for report in terminalreporter.stats.get("passed", []):
        said = [line for line in report.capstdout.splitlines() if line.strip()]
        if report.when == "call" and "slow" in report.keywords and said:
            terminalreporter.section(report.nodeid, sep="─")
            for line in said[:MOST_LINES]:
                terminalreporter.line(line[:1200])


MOST_LINES = 12
KEPT_TABLES = {"django_migrations", "django_content_type", "auth_permission"}


def _empty_what_was_filled(self: TransactionTestCase) -> None:
    """Truncate only the tables that hold rows, with the append-only triggers off.

    Django's own tear-down truncates every table and makes all permissions anew, half a second a test; and the tear-down
    of a test is the one place that may empty an append-only table.
    """
    with connection.cursor() as cursor:
        tables = [name for name in connection.introspection.table_names(cursor) if name not in KEPT_TABLES]
        filled = " UNION ALL ".join(
            f"SELECT {number} WHERE EXISTS (SELECT 1 FROM {connection.ops.quote_name(name)})"
            for number, name in enumerate(tables)
        )
        cursor.execute(filled)
        names = ", ".join(connection.ops.quote_name(tables[row[0]]) for row in cursor.fetchall())
        if not names:
            return
        cursor.execute("SELECT array_agg(DISTINCT tgname::text) FROM pg_trigger WHERE tgname LIKE 'pgtrigger_%'")
        triggers = cursor.fetchone()[0] or []
        cursor.execute("SELECT set_config('pgtrigger.ignore', %s, false)", ["{" + ",".join(triggers) + "}"])
        try:
            cursor.execute(f"TRUNCATE {names} CASCADE")
        finally:
            cursor.execute("SELECT set_config('pgtrigger.ignore', '{}', false)")


TransactionTestCase._fixture_teardown = _empty_what_was_filled


@pytest.fixture
def now() -> datetime:
    """The instant at which a test takes place."""
    return NOW


@pytest.fixture(autouse=True)
def _empty_valkey(request: pytest.FixtureRequest):
    """Tests that reach the database begin with an empty Valkey database."""
    marked = request.node.get_closest_marker("django_db") is not None
    if marked or {"db", "transactional_db"} & set(request.fixturenames):
        from kernel import valkey

        valkey.client().flushdb()
    return


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None) -> None:
    """Migrate once for all workers: each test database is a copy of a template named after the migrations."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.glob("*/migrations/*.py")):
        digest.update(path.read_bytes())
    name = f"quits_template_{digest.hexdigest()[:16]}"
    address = settings.DATABASES["default"]
    with psycopg.connect(
        host=address["HOST"],
        port=address["PORT"] or 5432,
        user=address["USER"],
        password=address["PASSWORD"],
        dbname=address["NAME"],
        autocommit=True,
    ) as server:
        server.execute("SELECT pg_advisory_lock(hashtext('quits test template'))")
        found = server.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
        if not found:
            server.execute(f'CREATE DATABASE "{name}_being_made"')
            try:
                _migrate(root, f"{name}_being_made")
                server.execute(f'ALTER DATABASE "{name}_being_made" RENAME TO "{name}"')
            finally:
                server.execute(f'DROP DATABASE IF EXISTS "{name}_being_made"')
    address.setdefault("TEST", {})["TEMPLATE"] = name


def _migrate(root: Path, database: str) -> None:
    owner = urlsplit(os.environ.get("DATABASE_OWNER_URL") or os.environ["DATABASE_URL"])
    target = urlunsplit(owner._replace(path=f"/{database}"))
    done = subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity=0"],
        cwd=root,
        env={**os.environ, "DATABASE_URL": target, "DATABASE_OWNER_URL": target},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.exit(f"migrating the test template failed:\n{done.stdout}{done.stderr}", returncode=3)
