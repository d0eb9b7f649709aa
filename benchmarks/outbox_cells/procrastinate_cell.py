"""How many no-op jobs a second Procrastinate's workers execute: filling the table is not timed, executing is."""

import logging
import time
from typing import Any

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from benchmarks.harness import FORK, server

CONCURRENCY = 8
"""Jobs in flight per worker process; more made it no faster."""


def arguments() -> dict[str, Any]:
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
    """No-op jobs executed a second by so many worker processes, each at its event loop."""
    barrier = FORK.Barrier(processes + 1)
    ended: Any = FORK.Queue()

    def work() -> None:
        app = application(PsycopgConnector(kwargs=arguments(), min_size=2, max_size=CONCURRENCY + 2))

        async def run() -> None:
            async with app.open_async():
                barrier.wait(60)
                await app.run_worker_async(wait=False, concurrency=CONCURRENCY, install_signal_handlers=False)

        import asyncio

        try:
            asyncio.run(run())
        finally:
            ended.put(time.perf_counter())

    workers = [FORK.Process(target=work) for _ in range(processes)]
    for worker in workers:
        worker.start()
    barrier.wait(60)
    began = time.perf_counter()
    last = max(ended.get(timeout=300) for _ in workers)
    for worker in workers:
        worker.join(10)
    return jobs / (last - began)


def done() -> int:
    """Jobs that were executed."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'")
        return int(cursor.fetchone()[0])
