"""What people do with a finding: take it, speak about it, accept it, repair it with a second person."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User

from kernel.errors import IllegalTransition, NotFound, VersionConflict
from reconciliation.commands.accept_finding import ReasonMissing, accept_finding
from reconciliation.commands.assign_finding import assign_finding
from reconciliation.commands.comment_finding import NothingSaid, comment_finding
from reconciliation.commands.recheck_finding import recheck_finding
from reconciliation.commands.refuse_repair import refuse_repair
from reconciliation.commands.repair_finding import NoRepair, SecondPersonNeeded, repair_finding
from reconciliation.models import Finding, FindingComment
from reconciliation.repairs import register
from reconciliation.rules import STATE, Rule
from reconciliation.rules import registry as rules
from tests.reconciliation.books import DAY, Books, at, careless, new_id

LATER = at(11, day=DAY + timedelta(days=1))


@pytest.fixture
def people(transactional_db) -> list[User]:
    return [User.objects.create(username=name) for name in ("mei", "bo")]


@pytest.fixture
def finding(books: Books) -> Finding:
    """Stock that somebody changed by hand: P0, and no command repairs it."""
    books.bill_days()
    careless("UPDATE stock_item SET sellable = sellable + 1 WHERE sku = 'TEA-250G'", tables=("stock_item",))
    books.run()
    return Finding.objects.get()


def said(finding: Finding) -> list[str]:
    return list(FindingComment.objects.filter(finding=finding).order_by("id").values_list("kind", flat=True))


def test_taken_and_spoken_about(finding: Finding, people) -> None:
    moved = assign_finding(
        finding_id=finding.pk, owner_id=people[0].pk, author_id=people[1].pk, expected_version=1, now=LATER
    )
    assert (moved.state, moved.version) == ("ASSIGNED", 2)
    comment_finding(finding_id=finding.pk, author_id=people[0].pk, text="  I ask the warehouse. ", now=LATER)
    finding.refresh_from_db(fields=["owner", "version"])
    assert finding.owner == people[0] and finding.version == 2
    assert said(finding) == ["assigned", "comment"]
    assert FindingComment.objects.last().text == "I ask the warehouse."


def test_refusals_write_nothing(finding: Finding, people) -> None:
    author = people[0].pk
    with pytest.raises(VersionConflict):
        assign_finding(finding_id=finding.pk, owner_id=author, author_id=author, expected_version=7, now=LATER)
    with pytest.raises(NotFound):
        assign_finding(finding_id=new_id(), owner_id=author, author_id=author, expected_version=1, now=LATER)
    with pytest.raises(NothingSaid):
        comment_finding(finding_id=finding.pk, author_id=author, text=" ", now=LATER)
    with pytest.raises(ReasonMissing):
        accept_finding(finding_id=finding.pk, author_id=author, reason=" ", expected_version=1, now=LATER)
    with pytest.raises(NoRepair):
        repair_finding(finding_id=finding.pk, author_id=author, expected_version=1, now=LATER)
    with pytest.raises(IllegalTransition):
        refuse_repair(finding_id=finding.pk, author_id=author, reason="no", expected_version=1, now=LATER)
    assert said(finding) == []
    assert Finding.objects.get().version == 1


def test_accepted_stays_quiet_until_its_figures_change(books: Books, finding: Finding, people) -> None:
    accept_finding(
        finding_id=finding.pk, author_id=people[0].pk, reason="counted: one is right", expected_version=1, now=LATER
    )
    books.run()
    assert Finding.objects.get().state == "ACCEPTED"
    with pytest.raises(IllegalTransition):
        assign_finding(
            finding_id=finding.pk, owner_id=people[0].pk, author_id=people[0].pk, expected_version=2, now=LATER
        )
    careless("UPDATE stock_item SET sellable = sellable + 1 WHERE sku = 'TEA-250G'", tables=("stock_item",))
    books.run()
    reopened = Finding.objects.get()
    assert (reopened.state, reopened.times_opened, reopened.closed_at) == ("OPEN", 2, None)
    assert said(finding) == ["accepted", "reopened"]


def test_resolved_by_a_look_and_opened_again(books: Books, finding: Finding) -> None:
    careless("UPDATE stock_item SET sellable = sellable - 1 WHERE sku = 'TEA-250G'", tables=("stock_item",))
    assert recheck_finding(finding_id=finding.pk, now=LATER).state == "RESOLVED"
    assert recheck_finding(finding_id=finding.pk, now=LATER).state == "RESOLVED"
    careless("UPDATE stock_item SET sellable = sellable + 2 WHERE sku = 'TEA-250G'", tables=("stock_item",))
    books.run()
    assert Finding.objects.get().state == "OPEN"
    assert said(finding) == ["resolved", "reopened"]


def test_p0_needs_a_second_person(books: Books, people, monkeypatch) -> None:
    """One asks, another confirms; the same person twice is refused; the second may say no."""
    ran = []

    def mend(finding: Finding, now) -> dict:
        ran.append(finding.pk)
        careless("UPDATE stock_item SET sellable = sellable - 1 WHERE sku = 'TEA-250G'", tables=("stock_item",))
        return {"mended": True}

    name = f"test-mend-{new_id()}"
    register(name=name, title="mend it")(mend)
    known = rules.rule_named("STOCK_DIFFERS")
    assert known is not None
    mendable = Rule(**{**known.__dict__, "repair": name})
    monkeypatch.setitem(rules.all_rules(), "STOCK_DIFFERS", mendable)
    books.bill_days()
    careless("UPDATE stock_item SET sellable = sellable + 1 WHERE sku = 'TEA-250G'", tables=("stock_item",))
    books.run()
    finding, (mei, bo) = Finding.objects.get(), people

    def press(author: User, version: int) -> str:
        return repair_finding(finding_id=finding.pk, author_id=author.pk, expected_version=version, now=LATER).state

    assert press(mei, 1) == "REPAIR_REQUESTED" and ran == []
    with pytest.raises(SecondPersonNeeded):
        press(mei, 2)
    refuse_repair(finding_id=finding.pk, author_id=bo.pk, reason="count first", expected_version=2, now=LATER)
    assert press(mei, 3) == "REPAIR_REQUESTED" and ran == []
    assert press(bo, 4) == "RESOLVED" and ran == [finding.pk]
    assert said(finding) == ["repair_requested", "repair_refused", "repair_requested", "repaired", "resolved"]
    with pytest.raises(IllegalTransition):
        press(bo, Finding.objects.get().version)
    assert mendable.scope == STATE


def test_a_repair_that_does_not_help_opens_it_again(books: Books, people, monkeypatch) -> None:
    name = f"test-idle-{new_id()}"
    register(name=name, title="do nothing")(lambda finding, now: {})
    known = rules.rule_named("STOCK_DIFFERS")
    assert known is not None
    monkeypatch.setitem(
        rules.all_rules(), "STOCK_DIFFERS", Rule(**{**known.__dict__, "repair": name, "severity": "P1"})
    )
    books.bill_days()
    careless("UPDATE stock_item SET sellable = sellable + 1 WHERE sku = 'TEA-250G'", tables=("stock_item",))
    books.run()
    Finding.objects.update(severity="P1")
    finding = Finding.objects.get()
    done = repair_finding(finding_id=finding.pk, author_id=people[0].pk, expected_version=1, now=LATER)
    assert done.state == "OPEN"
    assert said(finding) == ["repaired", "reopened"]
