"""What every test stands on: real PostgreSQL, real Valkey (a database of its own per xdist worker), a fixed clock."""

import os
from datetime import UTC, datetime

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
    if {"db", "transactional_db"} & set(request.fixturenames):
        from kernel import valkey

        valkey.client().flushdb()
    return
