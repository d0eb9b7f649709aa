"""A pytest plugin: takes a guarantee out of the test database, once it is made (QUITS_MUTANT_SQL, from run.py)."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def broken_schema(django_db_setup, django_db_blocker) -> None:
    from django.db import connection

    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(os.environ["QUITS_MUTANT_SQL"])
