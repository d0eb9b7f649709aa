"""A back-up is taken, restored beside the original, proved and dropped; what differs is noticed."""

from __future__ import annotations

import io
import os
from pathlib import Path

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from kernel import dumps
from tests.coupons.factories import make_shop


@pytest.fixture
def shop(transactional_db: None, now, settings):
    settings.DATABASE_OWNER_URL = dumps.at(os.environ["DATABASE_OWNER_URL"], connection.settings_dict["NAME"])
    made = make_shop(now)
    for _ in range(3):
        made.issue()
    return made


def rehearse(*arguments: str) -> str:
    said = io.StringIO()
    call_command("rehearse_restore", *arguments, stdout=said)
    return said.getvalue()


def scratch_databases() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_database WHERE datname LIKE 'quits_rehearsal_%%'")
        return cursor.fetchone()[0]


@pytest.mark.slow
def test_a_good_backup(shop, tmp_path: Path) -> None:
    said = rehearse("--keep", str(tmp_path / "kept.dump"))
    assert "the back-up can be restored" in said
    assert "every coupon is what its ledger says" in said
    assert (tmp_path / "kept.dump").stat().st_mode & 0o777 == 0o600
    assert scratch_databases() == 0
    with pytest.raises(CommandError, match="has one already"):
        rehearse("--backup", str(tmp_path / "kept.dump"), "--keep", str(tmp_path / "other"))


def test_a_broken_backup(shop, tmp_path: Path) -> None:
    (tmp_path / "broken.dump").write_bytes(b"PGDMP and nothing that follows")
    with pytest.raises(CommandError, match="pg_restore ended with"):
        rehearse("--backup", str(tmp_path / "broken.dump"))
    assert scratch_databases() == 0


def test_differences_are_seen(shop, tmp_path: Path) -> None:
    """One changed cell, one row less, one trigger less: each is said."""
    archive, source = tmp_path / "q.dump", dumps.at(os.environ["DATABASE_OWNER_URL"], connection.settings_dict["NAME"])
    dumps.dump(source, archive)
    with dumps.scratch_database(source, "quits_rehearsal_of_a_test") as scratch:
        dumps.restore(scratch, archive)
        with dumps.connect(scratch) as copy, dumps.connect(source) as original:
            assert dumps.contents(copy) == dumps.contents(original)
            assert dumps.shape(copy) == dumps.shape(original)
            copy.execute("ALTER TABLE coupon_operation DISABLE TRIGGER USER")
            copy.execute(
                "UPDATE coupon_operation SET actor = 'x' WHERE id = (SELECT min(id::text)::uuid FROM coupon_operation)"
            )
            copy.execute("DELETE FROM idempotency_key WHERE key = (SELECT min(key) FROM idempotency_key)")
            copy.execute("DROP INDEX outbox_pending")
            have, want = dumps.contents(copy), dumps.contents(original)
            assert {name for name in want if have[name] != want[name]} == {"coupon_operation", "idempotency_key"}
            assert len(dumps.shape(copy)["indexes"] ^ dumps.shape(original)["indexes"]) == 1


def test_a_database_that_someone_is_still_connected_to_goes_too(shop) -> None:
    source = dumps.at(os.environ["DATABASE_OWNER_URL"], connection.settings_dict["NAME"])
    with dumps.scratch_database(source, "quits_rehearsal_of_a_test") as scratch:
        lingering = dumps.connect(scratch)
    assert scratch_databases() == 0
    with pytest.raises(psycopg.OperationalError):
        lingering.execute("SELECT 1")
