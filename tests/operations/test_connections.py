"""The connection that is kept between requests: looked at without asking the server, and never used when it is dead."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connections

LAST_ASKED = "SELECT query_start, query FROM pg_stat_activity WHERE pid = %s"


@pytest.fixture
def kept(db: None) -> Iterator[Any]:
    """A connection as a thread of the web server has it after its first request."""
    made = connections.create_connection("default")
    made.ensure_connection()
    yield made
    made.close()


@pytest.fixture
def watcher(db: None) -> Iterator[psycopg.Connection]:
    there = connections["default"].get_connection_params()
    names = ("host", "port", "dbname", "user", "password")
    with psycopg.connect(autocommit=True, **{name: there[name] for name in names if name in there}) as session:
        yield session


def a_request(connection: Any) -> None:
    """What Django does to a kept connection when a request begins."""
    connection.close_if_unusable_or_obsolete()
    connection.close_if_health_check_failed()


def ask(connection: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def test_a_live_connection_is_not_asked(kept: Any, watcher: psycopg.Connection) -> None:
    pid = ask(kept)
    before = watcher.execute(LAST_ASKED, [pid]).fetchone()

    a_request(kept)

    assert kept.is_usable()
    assert watcher.execute(LAST_ASKED, [pid]).fetchone() == before
    assert ask(kept) == pid


def test_a_connection_that_the_server_ended_is_replaced_before_it_is_used(kept: Any, watcher: Any) -> None:
    pid = ask(kept)
    watcher.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])

    a_request(kept)

    assert ask(kept) != pid


def test_a_closed_connection_is_not_usable(kept: Any) -> None:
    kept.connection.close()
    assert not kept.is_usable()
    kept.close()
    assert not kept.is_usable()
