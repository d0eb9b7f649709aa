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


_flush = TransactionTestCase._fixture_teardown


def _flush_with_triggers_off(self: TransactionTestCase) -> None:
    """Append-only tables refuse TRUNCATE; the tear-down of a test is the one place that may do it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT array_agg(DISTINCT tgname::text) FROM pg_trigger WHERE tgname LIKE 'pgtrigger_%'")
        names = cursor.fetchone()[0] or []
        cursor.execute("SELECT set_config('pgtrigger.ignore', %s, false)", ["{" + ",".join(names) + "}"])
        try:
            _flush(self)
        finally:
            cursor.execute("SELECT set_config('pgtrigger.ignore', '{}', false)")


TransactionTestCase._fixture_teardown = _flush_with_triggers_off


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
