"""A small machine of the tests' own, to try `advance` on: a door with its log."""

from django.db import models
from django_fsm import FSMField, transition

from kernel import numbers
from kernel.statemachine import Carry, Edge, Emit, Insert, New, P, Sql, Touch


class Door(models.Model):
    id = models.UUIDField(primary_key=True, default=numbers.uuid7)
    merchant_id = models.UUIDField()
    status = FSMField(default="CLOSED")
    version = models.BigIntegerField(default=1)
    opened_by = models.CharField(max_length=20, null=True)

    class Meta:
        app_label = "kernel"
        db_table = "test_door"
        managed = False

    @transition(field=status, source="CLOSED", target="OPEN")
    def open(self) -> None: ...

    @transition(field=status, source="OPEN", target="CLOSED")
    def close(self) -> None: ...

    @transition(field=status, source=["OPEN", "CLOSED"], target="GONE")
    def remove(self) -> None: ...


class DoorLog(models.Model):
    id = models.UUIDField(primary_key=True, default=numbers.uuid7)
    door_id = models.UUIDField()
    to_version = models.BigIntegerField()
    note = models.CharField(max_length=40, blank=True)
    at = models.DateTimeField()
    ended = models.BooleanField(default=False)

    class Meta:
        app_label = "kernel"
        db_table = "test_door_log"
        managed = False
        constraints = [models.UniqueConstraint(fields=["door_id", "to_version"], name="one_log_per_version")]


OPEN = Edge(
    Door,
    "open",
    guards={"version": P("expected"), "not a robot": Sql("%(who)s::text <> 'robot'")},
    changes={"version": Sql("t.version + 1"), "opened_by": P("who")},
    writes=[
        Insert(DoorLog, {"door_id": New("id"), "to_version": New("version"), "note": "100%'s open", "at": P("now")}),
    ],
    emit=Emit("door.opened", subject=Sql("left(u.id::text, 8)"), payload={"by": P("who"), "version": New("version")}),
    returning=["version", "status", "opened_by"],
)
CLOSE = Edge(
    Door,
    "close",
    guards={"version": P("expected")},
    changes={"version": Sql("t.version + 1"), "opened_by": None},
    writes=[
        Touch(
            DoorLog,
            where={"door": Sql("s.door_id = u.id"), "to_version": Sql("s.to_version = u.version - 1")},
            changes={"ended": True},
        ),
    ],
    returning=["version"],
)
REOPEN = Edge(
    Door,
    "open",
    guards={"version": P("expected")},
    changes={"version": Sql("t.version + 1")},
    writes=[
        Touch(
            DoorLog,
            first=True,
            where={"id": P("log_id"), "open": Sql("NOT s.ended")},
            changes={"ended": True},
        ),
    ],
    emit=Emit("door.reopened", subject=New("id"), payload={}),
    returning=["version"],
)
"""The log's row takes its lock before the door's."""


def open_with_next(*, optional: bool, who: str = "the first") -> Edge:
    """A door that opens another one with it, by that one's own edge."""
    return Edge(
        Door,
        "open",
        guards={"version": P("expected")},
        changes={"version": Sql("t.version + 1")},
        writes=[
            Carry(
                OPEN,
                name="next_one",
                where="t.id = %(next_id)s::uuid",
                bind={"expected": "u.version - 1", "who": f"'{who}'"},
                optional=optional,
            )
        ],
        returning=["version"],
    )
