"""A Celery application that knows nothing of ours: one task that does nothing, Celery's own defaults."""

import os

from celery import Celery

QUEUE = "bench_noop"
app = Celery("noop", broker=os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0"))
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True, task_default_queue=QUEUE)


@app.task(name="noop")
def noop() -> None:
    """Nothing."""
