"""`advance`: a transition is one statement.

The graph is django-fsm's: an `Edge` names a model's transition method (empty body) and takes source and target from
there. Together with guards, column changes, evidence rows and the outbox event it is compiled once into a single
SQL statement, a conditional UPDATE that feeds the INSERTs:

    WITH u AS (UPDATE … WHERE pk AND source status AND guards RETURNING …), i0 AS (INSERT … SELECT … FROM u), …
    SELECT … FROM u

Either exactly one row moves and everything it has to leave behind is written, or nothing is. Constants are inlined
(a parameter cannot use a partial index in a generic plan), parameters are few and typed, and the text is kept.
All parts of the statement share one snapshot, so an edge guards the version wherever it knows it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID

import psycopg
import psycopg._queries
from django.db import DataError, connection, models
from django.db.models.fields import NOT_PROVIDED

from kernel import numbers, outbox
from kernel.models import IdempotencyKey, OutboxEvent

DIVISION_BY_ZERO = "22012"

LONGEST_STATEMENT = 8192
psycopg._queries.MAX_CACHED_STATEMENT_LENGTH = LONGEST_STATEMENT
"""psycopg parses a statement of more than 4,096 bytes anew at every call, because such ones are usually an ORM's and
never come again. Ours are one per edge; parsing the longest took a third of its client's time."""


@dataclass(frozen=True)
class P:
    """A parameter of the statement, by name; `type` is its PostgreSQL type where the context names none."""

    name: str
    type: str | None = None


@dataclass(frozen=True)
class New:
    """A column of the row as the UPDATE left it."""

    column: str


@dataclass(frozen=True)
class Sql:
    """A fragment in the statement's own words: `t` is the row before, `u` the row after, parameters `%(name)s`."""

    text: str


@dataclass(frozen=True)
class Json:
    """A JSON object built inside the statement."""

    members: Mapping[str, Any]


@dataclass(frozen=True)
class Insert:
    """A row of evidence. Columns that are not named take their model default; ids are made when not named."""

    model: type[models.Model]
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Touch:
    """A second UPDATE that has to hit exactly one row (closing a lease, say), or the whole transition breaks.

    `s` is its row. With `first` it takes its lock before the moving row does, where the order of locks wants that;
    it cannot read `u` then, and when it misses the transition matches nothing. `beside` names tables (with aliases)
    that it reads as they were.
    """

    model: type[models.Model]
    where: Mapping[str, Any]
    changes: Mapping[str, Any]
    first: bool = False
    beside: str = ""


@dataclass(frozen=True)
class Emit:
    """The outbox event of the transition. The merchant is the row's own unless said otherwise."""

    name: str
    subject: Any
    payload: Mapping[str, Any]
    version: int = 1
    merchant_id: Any = New("merchant_id")


@dataclass(frozen=True)
class Carry:
    """Another row's edge, carried by this one's statement: that row moves along it, with its guards and all it leaves.

    `t` is that row; `where` ties it to `u` and to `beside` (further tables). `bind` says the edge's parameters in SQL
    over these; one that reads `t` sees the row before in guards and changes, and after in what it leaves. What is not
    bound stays a parameter. Unless `optional`, the row has to move or the whole transition breaks; whether an optional
    one did comes back under `name`, 0 or 1.
    """

    edge: "Edge"
    name: str
    where: str
    beside: str = ""
    bind: Mapping[str, str] = field(default_factory=dict)
    optional: bool = False


def key_row(**members: Any) -> Insert:
    """The business key with its result, bound by the statement that does the work (BusinessKey.params(), now)."""
    return Insert(
        IdempotencyKey,
        {
            "merchant_id": P("key_merchant_id"),
            "key": P("key"),
            "request_hash": P("request_hash"),
            "result": Json(members),
            "created_at": P("now"),
        },
    )


class StatementBroken(Exception):
    """A transition matched its row but a `Touch` or `Carry` did not hit exactly one, or a first `Touch` hit alone.

    The database took the statement back; a transaction around it has ended."""


@dataclass(frozen=True)
class Edge:
    """One edge of a model's machine with everything that travels along it. See the module's text."""

    model: type[models.Model]
    method: str
    guards: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    writes: Sequence[Insert | Touch | Carry] = ()
    emit: Emit | None = None
    returning: Sequence[str] = ()
    reads: Mapping[str, Sql] = field(default_factory=dict)
    """More to return, by name: scalar queries over `u` and over other tables as they were before the statement."""
    source: Any = None
    found_by_guards: bool = False
    """The guards name a unique key: no `pk` is given."""

    @property
    def statement(self) -> "Statement":
        """The compiled statement, made at first use and kept on the edge."""
        compiled = self.__dict__.get("_statement")
        if compiled is None:
            compiled = _Compiler(self).compile()
            self.__dict__["_statement"] = compiled
        return compiled


@dataclass(frozen=True)
class Statement:
    """SQL text, the parameters that `advance` makes itself, and the names of what comes back."""

    text: str
    made: tuple[str, ...]
    returning: tuple[str, ...]
    checked: bool
    emits: bool


def advance(edge: Edge, *, params: Mapping[str, Any], pk: Any = None) -> dict[str, Any] | None:
    """Move one row along an edge. The returned columns, or None when nothing matched and nothing was written.

    Joins the caller's transaction; without one the statement is a transaction of its own. Raises StatementBroken when
    a Touch missed, and database errors as they are: a unique violation ends the caller's transaction.
    """
    statement = edge.statement
    values = {name: value if type(value) in _AS_IT_IS else _plain(value) for name, value in params.items()}
    if not edge.found_by_guards:
        values["pk"] = _plain(pk)
    for name in statement.made:
        values[name] = numbers.uuid7()
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement.text, values)
            row = cursor.fetchone()
    except DataError as error:
        if statement.checked and getattr(error.__cause__, "sqlstate", None) == DIVISION_BY_ZERO:
            raise StatementBroken(f"{edge.model.__name__}.{edge.method}: a secondary update missed its row") from error
        raise
    if row is None:
        return None
    if statement.emits:
        outbox.wake_after_commit()
    return dict(zip(statement.returning, row, strict=False))


def edges_of(model: type[models.Model], method: str) -> dict[Any, Any]:
    """{source: target} of a transition method, as django-fsm holds it."""
    meta = getattr(model, method)._django_fsm
    return {_plain(source): _plain(found.target) for source, found in meta.transitions.items()}


_AS_IT_IS = frozenset({str, bytes, UUID, bool, datetime, type(None)})


def _plain(value: Any) -> Any:
    """Values as the statement wants them: integers travel as text, so that their size never changes the plan."""
    if value is None or isinstance(value, bool | bytes | UUID):
        return value
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value


class _Compiler:
    """Turns an Edge into text. Runs once per edge, so it may be slow and strict."""

    def __init__(self, edge: Edge, *, row: str = "u", bind: Mapping[str, str] | None = None) -> None:
        self.edge = edge
        self.meta = edge.model._meta
        self.row = row
        self.bind = bind or {}
        self.made: list[str] = []
        self.reads: dict[str, str] = {}
        self.first: dict[str, str] = {}
        self.parts: list[str] = []
        self.checks: list[str] = []
        self.emits = False

    def compile(self) -> Statement:
        edge = self.edge
        column, source, target = self._transition()
        where = [] if edge.found_by_guards else [f't."{self.meta.pk.column}" = {self._cast("%(pk)s", self.meta.pk)}']
        where.append(f't."{self._field(edge.model, column).column}" = {literal(source)}')
        where += [self._condition(edge.model, name, value) for name, value in edge.guards.items()]
        self._compile_writes()
        returned = [self._field(edge.model, name).column for name in edge.returning]
        self.reads.update({name: each.text for name, each in edge.reads.items()})
        columns = [f'u."{name}"' for name in returned] + [f"({text})" for text in self.reads.values()]
        wanted = ", ".join(columns + (self.checks or ["1"]))
        rest = "".join(f", {part}" for part in self.parts) + f" SELECT {wanted} FROM u"
        # Joined, so that they lock before this row does; what they did alone is taken back.
        joined = f" FROM {', '.join(self.first)}" if self.first else ""
        for name in self.first:
            hit = f"(SELECT count(*) FROM {name})"
            nothing = "".join(["NULL, "] * (len(columns) + len(self.checks or [1]) - 1))
            rest += f" UNION ALL SELECT {nothing}{self._unless(f'{hit} = 0')} WHERE {hit} > 0"
            rest += " AND NOT EXISTS (SELECT FROM u)"
        text = (
            f"WITH {''.join(f'{part}, ' for part in self.first.values())}u AS"
            f' (UPDATE "{self.meta.db_table}" t SET {self._settings(column, target)}{joined}'
            f" WHERE {' AND '.join(where)} RETURNING {self._kept(rest)})" + rest
        )
        checked = bool(self.first or self.checks)
        return Statement(text, tuple(self.made), (*edge.returning, *self.reads), checked, self.emits)

    def _settings(self, column: str, target: Any) -> str:
        changes = {column: target, **self.edge.changes}
        model = self.edge.model
        return ", ".join(
            f'"{self._field(model, name).column}" = {self._value(value, self._field(model, name))}'
            for name, value in changes.items()
        )

    def _compile_writes(self) -> None:
        """Parts and checks of everything that the row leaves behind."""
        writes = [*self.edge.writes, *([self.edge.emit] if self.edge.emit else [])]
        prefix = "" if self.row == "u" else f"{self.row}_"
        for index, write in enumerate(writes):
            if isinstance(write, Touch):
                name = f"{prefix}k{index}"
                text = f"{name} AS ({self._touch(write)})"
                if write.first:
                    self.first[name] = text
                else:
                    self.parts.append(text)
                    once = "1" if self.row == "u" else f"(SELECT count(*) FROM {self.row})"
                    self.checks.append(self._unless(f"(SELECT count(*) FROM {name}) = {once}"))
            elif isinstance(write, Carry):
                self._carry(write)
            else:
                self.emits |= isinstance(write, Emit)
                row = self._event(write) if isinstance(write, Emit) else write
                self.parts.append(f"{prefix}i{index} AS ({self._insert(row, f'{prefix}made_{index}')})")

    def _carry(self, carry: Carry) -> None:
        if any(isinstance(write, Carry) or (isinstance(write, Touch) and write.first) for write in carry.edge.writes):
            raise ValueError(f"{carry.edge.method} cannot be carried: it carries or precedes something itself")
        here = _Compiler(carry.edge, row="t", bind=carry.bind)
        column, source, target = here._transition()
        status = here._field(carry.edge.model, column).column
        where = [f't."{status}" = {literal(source)}', f"({carry.where})"]
        where += [here._condition(carry.edge.model, name, value) for name, value in carry.edge.guards.items()]
        left = _Compiler(carry.edge, row=carry.name, bind={name: f"{carry.name}.{_bound(name)}" for name in carry.bind})
        left._compile_writes()
        kept = left._kept(" ".join(left.parts)) + "".join(f", {text} AS {_bound(n)}" for n, text in carry.bind.items())
        self.parts.append(
            f'{carry.name} AS (UPDATE "{here.meta.db_table}" t SET {here._settings(column, target)}'
            f" FROM {', '.join(filter(None, ['u', carry.beside]))} WHERE {' AND '.join(where)} RETURNING {kept})"
        )
        self.parts += left.parts
        self.checks += left.checks
        self.made += left.made
        self.emits |= left.emits
        moved = f"SELECT count(*) FROM {carry.name}"
        if carry.optional:
            self.reads[carry.name] = moved
        else:
            self.checks.append(self._unless(f"({moved}) = 1"))

    @staticmethod
    def _unless(good: str) -> str:
        """1, or a division by zero: the statement takes everything back itself."""
        return f"1 / CASE WHEN {good} THEN 1 ELSE 0 END"

    def _kept(self, text: str) -> str:
        """The columns of the moved row that the rest of the statement reads: wide ones are not carried in vain."""
        read = set(re.findall(rf'\b{self.row}\."?(\w+)', text))
        kept = [str(each.column) for each in self.meta.concrete_fields if each.column in read or each.primary_key]
        return ", ".join(f't."{name}"' for name in kept)

    def _transition(self) -> tuple[str, Any, Any]:
        edge = self.edge
        meta = getattr(edge.model, edge.method)._django_fsm
        known = edges_of(edge.model, edge.method)
        source = _plain(edge.source)
        if source is None:
            if len(known) != 1:
                raise ValueError(f"{edge.model.__name__}.{edge.method} has several sources: name one")
            source = next(iter(known))
        if source not in known or source in ("*", "+"):
            raise ValueError(f"{edge.model.__name__}.{edge.method} has no edge from {source}")
        name = meta.field if isinstance(meta.field, str) else meta.field.name
        numeric = isinstance(self._field(edge.model, name), models.IntegerField)
        target = known[source]
        return name, int(source) if numeric else source, int(target) if numeric else target

    def _insert(self, write: Insert, made: str) -> str:
        meta = write.model._meta
        named = {self._field(write.model, name).name: value for name, value in write.values.items()}
        columns, values = [], []
        for each in meta.concrete_fields:
            if each.name in named:
                value = named[each.name]
            elif each.primary_key and isinstance(each, models.UUIDField):
                value = P(made)
                self.made.append(made)
            elif isinstance(each, models.AutoField) or self._has_database_default(each):
                continue
            else:
                value = self._default(write.model, each)
            columns.append(f'"{each.column}"')
            values.append(self._value(value, each))
        return f'INSERT INTO "{meta.db_table}" ({", ".join(columns)}) SELECT {", ".join(values)} FROM {self.row}'

    def _touch(self, write: Touch) -> str:
        settings = ", ".join(
            f'"{self._field(write.model, name).column}" = {self._value(value, self._field(write.model, name))}'
            for name, value in write.changes.items()
        )
        where = " AND ".join(self._condition(write.model, name, value, "s") for name, value in write.where.items())
        sources = ", ".join(filter(None, ["" if write.first else self.row, write.beside]))
        found = f"{' FROM ' if sources else ''}{sources} WHERE {where} RETURNING 1"
        return f'UPDATE "{write.model._meta.db_table}" s SET {settings}{found}'

    def _event(self, emit: Emit) -> Insert:
        return Insert(
            OutboxEvent,
            {
                "name": emit.name,
                "version": emit.version,
                "merchant_id": emit.merchant_id,
                "subject": emit.subject,
                "payload": Json(emit.payload),
                "created_at": P("now"),
                "available_at": P("now"),
            },
        )

    def _condition(self, model: type[models.Model], name: str, value: Any, alias: str = "t") -> str:
        if isinstance(value, Sql):
            return f"({self._said(value)})"
        target = self._field(model, name)
        if value is None:
            return f'{alias}."{target.column}" IS NULL'
        return f'{alias}."{target.column}" = {self._value(value, target)}'

    def _value(self, value: Any, target: "models.Field[Any, Any] | None") -> str:
        if isinstance(value, Sql):
            return f"({self._said(value)})"
        if isinstance(value, New):
            column = self._field(self.edge.model, value.column).column
            return f'{self.row}."{column}"' if target is not None else f'to_jsonb({self.row}."{column}")'
        if isinstance(value, Json):
            members = ", ".join(f"{literal(name)}, {self._value(item, None)}" for name, item in value.members.items())
            return f"jsonb_build_object({members})"
        if isinstance(value, P):
            text = f"({self.bind[value.name]})" if value.name in self.bind else f"%({value.name})s"
            return f"{text}::{value.type}" if value.type is not None else self._cast(text, target)
        if isinstance(value, dict | list):
            return f"{literal(json.dumps(value, ensure_ascii=False))}::jsonb"
        return literal(value)

    def _said(self, value: Sql) -> str:
        """A fragment in the words of this row: its alias, and what stands for its parameters."""
        if self.row == "u":
            return value.text
        text = re.sub(r"\bu\.", f"{self.row}.", value.text)
        return re.sub(r"%\((\w+)\)s", lambda m: f"({self.bind[m[1]]})" if m[1] in self.bind else m[0], text)

    @staticmethod
    def _cast(text: str, target: "models.Field[Any, Any] | None") -> str:
        if target is None:
            return f"{text}::text"
        kind = target.rel_db_type(connection) if target.primary_key else target.db_type(connection)
        kind = (kind or "text").split(" ")[0] if kind != "timestamp with time zone" else "timestamptz"
        return f"{text}::{'text' if kind.startswith('varchar') else kind}"

    @staticmethod
    def _has_database_default(each: "models.Field[Any, Any]") -> bool:
        return getattr(each, "db_default", NOT_PROVIDED) is not NOT_PROVIDED

    @staticmethod
    def _default(model: type[models.Model], each: "models.Field[Any, Any]") -> Any:
        if each.has_default():
            value = each.get_default()
            if callable(each.default) and not isinstance(value, dict | list):
                raise ValueError(f"{model.__name__}.{each.name} has a computed default: name its value")
            return value
        if each.null:
            return None
        if isinstance(each, models.CharField | models.TextField) and each.blank:
            return ""
        raise ValueError(f"{model.__name__}.{each.name} needs a value")

    @staticmethod
    def _field(model: type[models.Model], name: str) -> "models.Field[Any, Any]":
        for each in model._meta.concrete_fields:
            if name in (each.name, each.attname):
                return each
        raise ValueError(f"{model.__name__} has no column {name}")


def _bound(name: str) -> str:
    """The column under which a carried row's statement finds a bound parameter."""
    return f"bound_{name}"


def literal(value: Any) -> str:
    """A constant as SQL text, safe inside a statement that has parameters."""
    if isinstance(value, Enum):
        value = value.value
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''").replace("%", "%%") + "'"
    raise ValueError(f"no SQL constant for {value!r}")
