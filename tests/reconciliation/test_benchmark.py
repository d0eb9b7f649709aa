"""The benchmark's books are honest, also when they are small; so its figures measure the real rules."""

import pytest

from benchmarks import reconciliation as bench
from benchmarks.reconciliation_cells.rows import Wanted, fill


@pytest.mark.django_db(transaction=True)
def test_small_books_are_honest(monkeypatch) -> None:
    monkeypatch.setattr(bench, "SAMPLE", 5)
    wanted = Wanted(orders=2_000, paid_on_day=900, refunded_on_day=400)
    with_keys = _keys()
    fill(wanted)
    try:
        with bench.Peak() as peak:
            assert bench._ours() > 0 and bench._grouped() > 0 and bench._rows(wanted) > 0
        assert 0 < peak.megabytes < bench.LIMIT
    finally:
        _restore(with_keys)


def _keys() -> list[tuple[str, str, str]]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'f'"
        )
        return cursor.fetchall()


def _restore(keys: list[tuple[str, str, str]]) -> None:
    """Empty the tables and put back the keys that the fill dropped: other tests run on this database."""
    from django.db import connection
    from django.test import TransactionTestCase

    TransactionTestCase._fixture_teardown(None)
    known = {name for _table, name, _definition in _keys()}
    with connection.cursor() as cursor:
        for table, name, definition in keys:
            if name not in known:
                cursor.execute(f'ALTER TABLE {table} ADD CONSTRAINT "{name}" {definition}')
