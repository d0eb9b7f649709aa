import re
import threading
from dataclasses import replace
from datetime import datetime
from uuid import UUID

import pytest
from django.db import connection, transaction
from psycopg._queries import PostgresQuery, _query2pg
from psycopg.adapt import Transformer

from kernel import numbers
from kernel.models import OutboxEvent
from kernel.statemachine import LONGEST_STATEMENT, Carry, Edge, StatementBroken, advance, edges_of
from tests.kernel.machine import CLOSE, OPEN, REOPEN, Door, DoorLog, open_with_next

MERCHANT = UUID(int=1)


@pytest.fixture
def doors(transactional_db):
    with connection.schema_editor() as editor:
        editor.create_model(Door)
        editor.create_model(DoorLog)
    yield
    with connection.schema_editor() as editor:
        editor.delete_model(DoorLog)
        editor.delete_model(Door)


@pytest.fixture
def door(doors) -> Door:
    return Door.objects.create(merchant_id=MERCHANT)


def params(now: datetime, **more):
    return {"expected": 1, "who": "ann", "now": now, **more}


def test_one_statement_moves_the_row_and_leaves_log_and_event(door: Door, now, django_assert_num_queries) -> None:
    with django_assert_num_queries(3), transaction.atomic():  # BEGIN, the statement, COMMIT
        row = advance(OPEN, pk=door.id, params=params(now))
    assert row == {"version": 2, "status": "OPEN", "opened_by": "ann"}
    log = DoorLog.objects.get()
    assert (log.door_id, log.to_version, log.note, log.ended) == (door.id, 2, "100%'s open", False)
    event = OutboxEvent.objects.get()
    assert (event.name, event.payload, event.merchant_id) == ("door.opened", {"by": "ann", "version": 2}, MERCHANT)
    assert event.state == "PENDING"


@pytest.mark.parametrize("wrong", [{"expected": 7}, {"who": "robot"}])
def test_a_guard_that_fails_writes_nothing(door: Door, now, wrong) -> None:
    assert advance(OPEN, pk=door.id, params=params(now, **wrong)) is None
    assert Door.objects.get().version == 1
    assert not DoorLog.objects.exists()
    assert not OutboxEvent.objects.exists()


def test_the_wrong_source_or_an_unknown_row_writes_nothing(door: Door, now) -> None:
    advance(OPEN, pk=door.id, params=params(now))
    assert advance(OPEN, pk=door.id, params=params(now, expected=2)) is None
    assert advance(OPEN, pk=numbers.uuid7(), params=params(now)) is None
    assert DoorLog.objects.count() == 1


def test_a_secondary_update_has_to_hit_exactly_one_row(door: Door, now) -> None:
    advance(OPEN, pk=door.id, params=params(now))
    assert advance(CLOSE, pk=door.id, params={"expected": 2, "now": now}) == {"version": 3}
    assert DoorLog.objects.get().ended
    advance(OPEN, pk=door.id, params=params(now, expected=3))
    DoorLog.objects.filter(to_version=4).delete()
    with pytest.raises(StatementBroken), transaction.atomic():
        advance(CLOSE, pk=door.id, params={"expected": 4, "now": now})
    assert Door.objects.get().status == "OPEN"


@pytest.fixture
def log(door: Door, now) -> DoorLog:
    return DoorLog.objects.create(door_id=door.id, to_version=1, at=now)


def test_a_first_update_and_the_row_move_together(door: Door, log: DoorLog, now) -> None:
    assert advance(REOPEN, pk=door.id, params={"expected": 1, "log_id": log.id, "now": now}) == {"version": 2}
    assert DoorLog.objects.get().ended
    assert OutboxEvent.objects.get().name == "door.reopened"


def test_a_first_update_that_misses_moves_nothing(door: Door, log: DoorLog, now) -> None:
    for wanted in ({"log_id": numbers.uuid7(), "expected": 1}, {"log_id": numbers.uuid7(), "expected": 7}):
        assert advance(REOPEN, pk=door.id, params={**wanted, "now": now}) is None
    DoorLog.objects.update(ended=True)
    assert advance(REOPEN, pk=door.id, params={"expected": 1, "log_id": log.id, "now": now}) is None
    assert Door.objects.get().version == 1
    assert not OutboxEvent.objects.exists()


def test_a_first_update_without_the_row_is_taken_back(door: Door, log: DoorLog, now) -> None:
    """Without a transaction around it: the statement itself must leave nothing."""
    with pytest.raises(StatementBroken):
        advance(REOPEN, pk=door.id, params={"expected": 7, "log_id": log.id, "now": now})
    assert not DoorLog.objects.get().ended
    assert Door.objects.get().version == 1
    assert not OutboxEvent.objects.exists()


def test_a_first_update_takes_its_lock_first(door: Door, log: DoorLog, now) -> None:
    """While somebody holds the log's row, the statement that waits for it holds nothing of the door."""
    moved: list[object] = []

    def reopen() -> None:
        try:
            moved.append(advance(REOPEN, pk=door.id, params={"expected": 1, "log_id": log.id, "now": now}))
        finally:
            connection.close()

    waiting = threading.Thread(target=reopen)
    with transaction.atomic():
        DoorLog.objects.select_for_update().get()
        waiting.start()
        with connection.cursor() as cursor:
            for _ in range(500):
                cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
                if cursor.fetchone()[0]:
                    break
                cursor.execute("SELECT pg_sleep(0.01), pg_stat_clear_snapshot()")
        assert Door.objects.select_for_update(nowait=True).get().version == 1
    waiting.join(10)
    assert moved == [{"version": 2}]


@pytest.mark.parametrize("optional", [True, False])
def test_a_carried_row_moves_by_its_own_edge(door: Door, now, optional: bool) -> None:
    other = Door.objects.create(merchant_id=MERCHANT)
    row = advance(open_with_next(optional=optional), pk=door.id, params=params(now, next_id=other.id))
    assert row == ({"version": 2, "next_one": 1} if optional else {"version": 2})
    other.refresh_from_db()
    assert (other.status, other.version, other.opened_by) == ("OPEN", 2, "the first")
    assert [(log.door_id, log.to_version) for log in DoorLog.objects.all()] == [(other.id, 2)]
    event = OutboxEvent.objects.get()
    assert (event.name, event.subject, event.payload) == (
        "door.opened",
        str(other.id)[:8],
        {"by": "the first", "version": 2},
    )


@pytest.mark.parametrize("wrong", ["open already", "another version", "its guard says no", "unknown"])
def test_a_row_that_cannot_be_carried(door: Door, now, wrong: str) -> None:
    """Optional: the first one moves alone and says so. Otherwise neither moves."""
    other = Door.objects.create(
        merchant_id=MERCHANT,
        status="OPEN" if wrong == "open already" else "CLOSED",
        version=7 if wrong == "another version" else 1,
    )
    who = "robot" if wrong == "its guard says no" else "the first"
    asked = params(now, next_id=numbers.uuid7() if wrong == "unknown" else other.id)
    with pytest.raises(StatementBroken):
        advance(open_with_next(optional=False, who=who), pk=door.id, params=asked)
    assert Door.objects.get(pk=door.id).version == 1
    alone = advance(open_with_next(optional=True, who=who), pk=door.id, params=asked)
    assert alone == {"version": 2, "next_one": 0}
    assert Door.objects.get(pk=other.id).version == other.version
    assert not DoorLog.objects.exists()
    assert not OutboxEvent.objects.exists()


def test_what_carries_is_not_carried(doors) -> None:
    outer = replace(OPEN, writes=[Carry(open_with_next(optional=True), name="far", where="true")])
    with pytest.raises(ValueError, match="cannot be carried"):
        _ = outer.statement


def test_an_edge_takes_its_graph_from_the_machine() -> None:
    assert edges_of(Door, "remove") == {"OPEN": "GONE", "CLOSED": "GONE"}
    with pytest.raises(ValueError, match="several sources"):
        _ = Edge(Door, "remove").statement
    with pytest.raises(ValueError, match="no edge from GONE"):
        _ = Edge(Door, "remove", source="GONE").statement


def test_of_many_at_once_one_wins(door: Door, now) -> None:
    barrier = threading.Barrier(8)
    rows: list[object] = []

    def race() -> None:
        barrier.wait()
        with transaction.atomic():
            rows.append(advance(OPEN, pk=door.id, params=params(now)))
        connection.close()

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(row is not None for row in rows) == 1
    assert DoorLog.objects.count() == 1
    assert Door.objects.get().version == 2


def test_the_longest_statement_is_parsed_once(door: Door, now) -> None:
    """psycopg's own parser keeps what it parsed: the second call of any edge asks it nothing new."""
    from aftersales.commands._approve_as_applied import AS_APPLIED

    statement = AS_APPLIED.statement
    assert 4096 < len(statement.text) <= LONGEST_STATEMENT
    query = PostgresQuery(Transformer(connection.connection))
    values = dict.fromkeys(re.findall(r"%\((\w+)\)s", statement.text))
    query.convert(statement.text, values)
    before = _query2pg.cache_info()
    query.convert(statement.text, values)
    after = _query2pg.cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)
