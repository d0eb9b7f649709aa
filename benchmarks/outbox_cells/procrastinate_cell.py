"""How many no-op jobs a second Procrastinate's workers execute: filling the table is not timed, executing is."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import time
from typing import Any

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

CONCURRENCY = 8
"""Jobs in flight per worker process."""


def arguments() -> dict[str, Any]:
    from benchmarks.harness import server

    address = server()
    return {
        "host": address["HOST"],
        "port": address["PORT"] or 5432,
        "user": address["USER"],
        "password": address["PASSWORD"],
        "dbname": address["NAME"],
    }


def application(connector: Any) -> App:
    logging.getLogger("procrastinate").setLevel(logging.WARNING)  # two lines a job would be most of its time
    app = App(connector=connector)

    @app.task(name="noop")
    async def noop() -> None:
        """Nothing."""

    return app


def fill(jobs: int) -> None:
    """Its schema and so many jobs in the database that Django is connected to."""
    app = application(SyncPsycopgConnector(kwargs=arguments()))
    with app.open():
        app.schema_manager.apply_schema()
        app.tasks["noop"].configure().batch_defer(*({} for _ in range(jobs)))


def rate(jobs: int, processes: int) -> float:
    """No-op jobs executed a second by so many worker processes, each at its event loop. They are processes of their own
    (not forked from here): they say when they are connected, start together, and say when the table is empty."""
    environment = {**os.environ, "BENCH_DATABASE": json.dumps(arguments())}
    command = [sys.executable, "-m", "benchmarks.outbox_cells.procrastinate_cell"]
    workers = [
        subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    try:
        for worker in workers:
            _heard(worker, "ready")
        began = time.perf_counter()
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        for worker in workers:
            _heard(worker, "done")
        return jobs / (time.perf_counter() - began)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait(10)


def _heard(worker: "subprocess.Popen[str]", word: str) -> None:
    assert worker.stdout is not None
    if worker.stdout.readline().strip() != word:
        raise RuntimeError(f"Procrastinate's worker ended before it was {word}")


def done() -> int:
    """Jobs that were executed."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'")
        return int(cursor.fetchone()[0])


def work() -> None:
    """One worker process."""
    address = json.loads(os.environ["BENCH_DATABASE"])
    app = application(PsycopgConnector(kwargs=address, min_size=2, max_size=CONCURRENCY + 2))

    async def run() -> None:
        async with app.open_async():
            print("ready", flush=True)
            sys.stdin.readline()
            await app.run_worker_async(wait=False, concurrency=CONCURRENCY, install_signal_handlers=False)
            print("done", flush=True)

    asyncio.run(run())


if __name__ == "__main__":
    work()
