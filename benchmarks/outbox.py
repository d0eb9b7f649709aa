"""The relay: events from the outbox to their consumers, against Celery's and Procrastinate's no-op tasks.

Ours is the whole way: rows marked in PostgreSQL, pages through the stream, inbox rows that make every effect happen
once, the page form of consumers. Theirs is executing tasks that do nothing, queued before the clock starts.
"""

from collections.abc import Callable
from random import shuffle

from benchmarks.harness import Bench, Figures
from benchmarks.outbox_cells import celery_cell, procrastinate_cell, relay_cell

PROCESSES = 2
EVENTS = 60_000
TASKS = 4_000
JOBS = 3_000


def run(*, figures: Figures, rounds: int) -> None:
    """Both figures of the relay, and the relay without its readers for comparison."""
    with Bench("outbox", fill) as bench, celery_cell.worker(PROCESSES):
        cells: dict[str, Callable[[], float]] = {
            "relay and consume": lambda: relay_cell.rate(EVENTS, PROCESSES, consume=True),
            "relay": lambda: relay_cell.rate(EVENTS, PROCESSES, consume=False),
            "celery": lambda: celery_cell.rate(TASKS),
            "procrastinate": noop_jobs,
        }
        for number in range(rounds):
            print(f"  round {number + 1}", flush=True)
            names = list(cells)
            shuffle(names)
            rates = {name: bench.on_copy(cells[name]) for name in names}
            for name in cells:
                print(f"    {name:<40} {rates[name]:>12,.0f} /s", flush=True)
            for name, figure in (("celery", "celery_noop"), ("procrastinate", "procrastinate")):
                figures.add(f"relay_vs_{figure}", rates["relay and consume"] / rates[name])
                figures.add(f"relay_alone_vs_{figure}", rates["relay"] / rates[name])
                figures.add(f"baseline_{name}_vs_relay", rates[name] / rates["relay"])
                figures.add(f"{name}_noop_per_second", rates[name])
            figures.add("relay_per_second", rates["relay and consume"])


def fill() -> None:
    relay_cell.fill(EVENTS)
    procrastinate_cell.fill(JOBS)


def noop_jobs() -> float:
    rate = procrastinate_cell.rate(JOBS, PROCESSES)
    if procrastinate_cell.done() != JOBS:
        raise RuntimeError(f"Procrastinate executed {procrastinate_cell.done()} of {JOBS} jobs")
    return rate
