"""Every rule of the registry runs, finds nothing in empty books, and speaks to people."""

from datetime import date
from pathlib import Path

import pytest
from django.db import connection, transaction

from reconciliation.commands.look_at_changes import look_at_changes
from reconciliation.commands.run_reconciliation import run_reconciliation
from reconciliation.models import Finding, ReconciliationRun
from reconciliation.repairs import repair_named
from reconciliation.rules.coupons import CHANGED
from reconciliation.rules.registry import all_rules, comparison_of

DAY = date(2026, 11, 29)


@pytest.mark.parametrize("code", sorted(all_rules()))
def test_rule_is_complete(code: str) -> None:
    rule = all_rules()[code]
    assert rule.severity in ("P0", "P1", "P2", "P3")
    assert str(rule.title) and str(rule.advice)
    assert not rule.repair or repair_named(rule.repair), f"{rule.repair} is not registered"
    assert rule.gate == ("{changed}" in rule.sql)
    assert not rule.gate or code in CHANGED


PLANTED = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*_rules.py"))


@pytest.mark.parametrize("code", sorted(all_rules()))
def test_a_fault_is_planted_for_every_rule(code: str) -> None:
    """The tests that plant faults name the rule that has to find them: a new rule comes with its own."""
    assert f'"{code}"' in PLANTED


@pytest.mark.django_db
def test_empty_books_hold_no_findings(now) -> None:
    result = run_reconciliation(on_date=DAY, now=now)
    assert (result.state, result.items, result.findings_seen) == ("DONE", 0, 0)
    assert not Finding.objects.exists()


@pytest.mark.django_db
def test_empty_gate(now) -> None:
    assert look_at_changes(now=now).opened == 0
    assert look_at_changes(now=now).opened == 0
    assert ReconciliationRun.objects.get(kind="gate").checked_until_at == now


@pytest.mark.django_db
def test_no_comparison_leaves_its_table_behind(now) -> None:
    run_reconciliation(on_date=DAY, now=now)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relname LIKE '%%_item'")
        assert cursor.fetchone()[0] == 0


def test_every_comparison_owns_its_rules() -> None:
    assert all(comparison_of(rule) is None or rule.scope == "day" for rule in all_rules().values())
