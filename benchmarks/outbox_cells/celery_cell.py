"""How many no-op tasks a second Celery's prefork pool executes: filling the queue is not timed, executing is."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.outbox_cells.noop import QUEUE, app, noop
from kernel import valkey

START_SECONDS = 60
END_SECONDS = 120


@contextmanager
def worker(processes: int) -> Iterator[None]:
    """A prefork worker that is ready and listens to nothing yet."""
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.outbox_cells.noop", "worker", "-P", "prefork"]
    command += ["-c", str(processes), "-Q", "bench_idle", "-l", "ERROR", "--without-gossip", "--without-mingle"]
    # Without Django's settings Celery does not look after Django's connections around every task: at its fastest.
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    running = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _apart("wait")
        yield
    finally:
        running.terminate()
        running.wait(30)


def rate(tasks: int) -> float:
    """No-op tasks executed a second by the running worker."""
    return float(_apart("rate", str(tasks)))


def _apart(*arguments: str) -> str:
    """In a process of its own: what Celery's client leaves open would be read by processes forked from this one."""
    command = [sys.executable, "-m", __name__, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=END_SECONDS * 2).stdout


def _wait() -> None:
    until = time.monotonic() + START_SECONDS
    while not app.control.inspect(timeout=0.5).ping():
        if time.monotonic() > until:
            raise RuntimeError("Celery's worker did not start")


def _rate(tasks: int) -> float:
    client = valkey.client()
    client.delete(QUEUE)
    with app.pool.acquire(block=True) as connection, app.amqp.Producer(connection) as producer:
        for _ in range(tasks):
            noop.apply_async(producer=producer)
    if client.llen(QUEUE) != tasks:
        raise RuntimeError("the queue is not what was sent")
    began = time.perf_counter()
    app.control.add_consumer(QUEUE)
    while client.llen(QUEUE) or client.hlen("unacked"):
        if time.perf_counter() - began > END_SECONDS:
            raise RuntimeError("Celery's worker does not empty its queue")
        time.sleep(0.005)
    seconds = time.perf_counter() - began
    app.control.cancel_consumer(QUEUE, reply=True, timeout=2)
    return tasks / seconds


if __name__ == "__main__":
    if sys.argv[1] == "wait":
        _wait()
    else:
        print(_rate(int(sys.argv[2])))
