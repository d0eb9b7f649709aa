"""How every benchmark measures.

A *bench* builds its data once into a template database. Each *round* runs all its *cells* in shuffled order, each on
a fresh copy of the template, and turns their rates into ratios within the round: the machine's mood cancels out. The
figure is the median over the rounds, with its minimum and maximum beside it.

A cell runs `clients` forked processes that connect, warm up, meet at a barrier and then do a fixed count of
operations; or it is a pgbench script with the same count, whose first transactions are not counted either.
"""

import json
import multiprocessing
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from django.db import connection, connections

from kernel import dumps

FORK = multiprocessing.get_context("fork")
WARM_UP = 20
"""Operations of each client before the clock starts."""
CELL_SECONDS = 180
"""No cell may take longer: a benchmark that hangs says so."""


@dataclass(frozen=True)
class Work:
    """A cell of the product's own code: `prepare(client, clients)` gives a function that does operation number i."""

    prepare: Callable[[int, int], Callable[[int], object]]
    warm_up: int = WARM_UP


@dataclass(frozen=True)
class Pgbench:
    """A cell of plain SQL. `script(clients)` gives the text; `:client_id` and `:n` (from −1) are there to use."""

    script: Callable[[int], str]
    protocol: str = "prepared"


@dataclass(frozen=True)
class Cell:
    """One measured thing: a name, how many clients, how many operations each."""

    name: str
    clients: int
    operations: int
    what: Work | Pgbench


@dataclass
class Figures:
    """Ratios by name, one value per round."""

    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)

    def summary(self) -> dict[str, dict[str, float]]:
        return {
            name: {"median": statistics.median(each), "min": min(each), "max": max(each)}
            for name, each in self.values.items()
        }


def switch_database(name: str) -> None:
    """Point Django's default connection at another database of the same server."""
    connections["default"].close()
    connections["default"].settings_dict["NAME"] = name


def server() -> dict[str, Any]:
    """Address and login of the server, from the settings."""
    return connections["default"].settings_dict


def run_sql(statement: str, *, database: str) -> None:
    """One statement on a connection of its own (CREATE DATABASE and the like)."""
    subprocess.run(
        [str(program("psql")), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", statement],
        env={**libpq_environment(), "PGOPTIONS": "-c client_min_messages=error"},
        check=True,
        stdout=subprocess.DEVNULL,
    )


def program(name: str) -> Path:
    """A program of the embedded PostgreSQL, or of the PATH where there is none."""
    given = os.environ.get("QUITS_BENCH_PROGRAMS")
    return Path(given) / name if given else Path(name)


def libpq_environment() -> dict[str, str]:
    address = server()
    return {
        **os.environ,
        "PGHOST": address["HOST"],
        "PGPORT": str(address["PORT"] or 5432),
        "PGUSER": address["USER"],
        "PGPASSWORD": address["PASSWORD"],
    }


@dataclass
class Bench:
    """Template, cells, rounds. Use it as a context: its databases go when it ends.

    `like`: begin as a copy of another bench's template, before `fill`.
    """

    name: str
    fill: Callable[[], object]
    after: Callable[[str], None] | None = None
    like: "Bench | None" = None
    template: str = ""
    _home: str = ""

    def __enter__(self) -> "Bench":
        self._home = server()["NAME"]
        self.template = f"bench_{self.name}"
        copy_database(self.like.template if self.like else empty_database(), self.template, home=self._home)
        switch_database(self.template)
        self.fill()
        connection.close()
        run_sql("VACUUM ANALYZE", database=self.template)
        return self

    def __exit__(self, *_: object) -> None:
        switch_database(self._home)
        drop_database(self.template, home=self._home)

    def rate(self, cell: Cell) -> float:
        """Operations a second of one cell on a fresh copy of the template."""

        def measure() -> float:
            copy = server()["NAME"]
            seconds = _run_pgbench(cell, copy) if isinstance(cell.what, Pgbench) else run_work(cell)
            if self.after is not None:
                self.after(cell.name)
            return cell.clients * cell.operations / seconds

        return self.on_copy(measure)

    def in_place(self, cell: Cell) -> float:
        """Operations a second of one cell on the template itself (too large to copy); its rows stay as they end."""
        switch_database(self.template)
        try:
            return cell.clients * cell.operations / run_work(cell)
        finally:
            switch_database(self._home)

    def on_copy(self, measure: Callable[[], float]) -> float:
        """What `measure` returns, with Django pointed at a fresh copy of the template."""
        copy = f"{self.template}_round"
        switch_database(self._home)
        copy_database(self.template, copy, home=self._home)
        try:
            switch_database(copy)
            return measure()
        finally:
            switch_database(self._home)
            drop_database(copy, home=self._home)

    def round(self, cells: Sequence[Cell]) -> dict[str, float]:
        """All cells once, in shuffled order: {name: operations a second}."""
        order = list(cells)
        random.shuffle(order)
        rates = {cell.name: self.rate(cell) for cell in order}
        for cell in cells:
            print(f"    {cell.name:<40} {rates[cell.name]:>12,.0f} /s", flush=True)
        return rates


def copy_database(source: str, target: str, *, home: str) -> None:
    drop_database(target, home=home)
    run_sql(f'CREATE DATABASE "{target}" TEMPLATE "{source}" STRATEGY file_copy', database=home)


def drop_database(name: str, *, home: str) -> None:
    """A process of the cell that was ended may still have a server of its own for a moment."""
    dumps.drop_database(dumps.at(os.environ["DATABASE_OWNER_URL"], home), name)


@cache
def empty_database() -> str:
    """A database with the current schema and no rows, migrated once in a run."""
    name, home = "bench_empty", server()["NAME"]
    drop_database(name, home=home)
    run_sql(f'CREATE DATABASE "{name}"', database=home)
    migrate(name)
    return name


def migrate(database: str) -> None:
    """Bring a database to the current schema in a process of its own."""
    address = os.environ["DATABASE_OWNER_URL"]
    target = urlunsplit(urlsplit(address)._replace(path=f"/{database}"))
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity=0"],
        env={**os.environ, "DATABASE_URL": target, "DATABASE_OWNER_URL": target},
        check=True,
    )


def run_work(cell: Cell) -> float:
    """Seconds from the barrier to the last client's end."""
    assert isinstance(cell.what, Work)
    connections.close_all()
    barrier = FORK.Barrier(cell.clients + 1)
    results: Any = FORK.Queue()

    def client(number: int) -> None:
        failed = "the client ended early"
        try:
            operation = cell.what.prepare(number, cell.clients)  # type: ignore[union-attr]
            warm_up = min(cell.what.warm_up, cell.operations)  # type: ignore[union-attr]
            for index in range(warm_up):
                operation(-1 - index)
            barrier.wait(120)
            for index in range(cell.operations):
                operation(index)
            failed = ""
        except Exception as error:
            failed = repr(error)
            barrier.abort()
        finally:
            results.put((time.perf_counter(), failed))
            connections.close_all()

    workers = [FORK.Process(target=client, args=(number,)) for number in range(cell.clients)]
    for worker in workers:
        worker.start()
    try:
        barrier.wait(120)
    except Exception as error:
        raise RuntimeError(f"{cell.name}: {[results.get(timeout=10)[1] for _ in workers]}") from error
    began = time.perf_counter()
    ended = [results.get(timeout=CELL_SECONDS) for _ in workers]
    for worker in workers:
        worker.join(10)
    wrong = [failed for _, failed in ended if failed]
    if wrong:
        raise RuntimeError(f"{cell.name}: {wrong[0]}")
    return max(at for at, _ in ended) - began


def _run_pgbench(cell: Cell, database: str) -> float:
    """Seconds that the cell's operations took once every client had done its warm-up."""
    assert isinstance(cell.what, Pgbench)
    with tempfile.TemporaryDirectory(dir=os.environ.get("QUITS_VAR")) as folder:
        script = Path(folder) / "script.sql"
        script.write_text(cell.what.script(cell.clients))
        done = subprocess.run(
            [
                str(program("pgbench")),
                *("-n", "-M", cell.what.protocol, "-c", str(cell.clients), "-j", str(min(cell.clients, 2))),
                *("-t", str(cell.operations + WARM_UP), "-D", "n=-1", "-f", str(script)),
                *("--log", f"--log-prefix={folder}/log", database),
            ],
            env=libpq_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=CELL_SECONDS,
        )
        wanted = cell.clients * (cell.operations + WARM_UP)
        if done.returncode or f"{wanted}/{wanted}" not in done.stdout:
            raise RuntimeError(f"pgbench {cell.name}: {done.stdout}{done.stderr}")
        ended = _transactions(Path(folder))
    began = max(each[WARM_UP - 1] for each in ended.values())
    counted = sum(at > began for each in ended.values() for at in each)
    return cell.clients * cell.operations * (max(each[-1] for each in ended.values()) - began) / counted


def _transactions(folder: Path) -> dict[str, list[float]]:
    """When each client's transactions ended, from pgbench's log (client, number, time, script, second, µs)."""
    ended: dict[str, list[float]] = {}
    for log in folder.glob("log*"):
        for line in log.read_text().splitlines():
            client, _number, _time, _script, second, micro = line.split()[:6]
            ended.setdefault(client, []).append(int(second) + int(micro) / 1e6)
    return {client: sorted(each) for client, each in ended.items()}


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        version = cursor.fetchone()[0]
        cursor.execute("SHOW fsync")
        fsync = cursor.fetchone()[0]
    return {
        "cores": os.cpu_count(),
        "memory_mib": memory,
        "system": platform.platform(),
        "python": platform.python_version(),
        "postgresql": version,
        "fsync": fsync,
    }


def report(
    figures: Mapping[str, Mapping[str, float]],
    goals: Mapping[str, tuple[str, float]],
    baselines: Mapping[str, tuple[str, float]],
) -> None:
    """The figures as a table, with the goal beside each; void where the baseline was slower than it has to be."""
    print(f"\n{'figure':<34} {'median':>9} {'min':>9} {'max':>9}   goal")
    for name, each in sorted(figures.items()):
        sign, bound = goals.get(name, ("", 0.0))
        met = "met" if (each["median"] >= bound) == (sign == "≥") else "NOT MET"
        baseline, least = baselines.get(name, ("", 0.0))
        if baseline in figures and figures[baseline]["median"] < least:
            met = f"VOID: {baseline} is {figures[baseline]['median']:.2f}, less than {least:g}"
        goal = f"{sign} {bound:g}  {met}" if sign else ""
        print(f"{name:<34} {each['median']:>9.2f} {each['min']:>9.2f} {each['max']:>9.2f}   {goal}")


def write_json(path: Path, *, figures: Mapping[str, Any], rounds: int) -> None:
    path.write_text(json.dumps({"machine": machine(), "rounds": rounds, "figures": figures}, indent=2) + "\n")
