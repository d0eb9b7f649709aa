"""Every beat job in one table. A run longer than its interval overlaps harmlessly: rows are claimed, not tables."""

from celery.schedules import crontab

EVERY = {
    # task: (seconds, queue)
    "kernel.tasks.relay_outbox": (1, "critical"),
    "kernel.tasks.consume_events": (2, "critical"),
    "kernel.tasks.retry_inbox": (2, "critical"),
    "kernel.tasks.redeliver_lost_events": (30, "bulk"),
}

DAILY: dict[str, tuple[int, int, str]] = {
    # task: (hour, minute in Asia/Shanghai, queue)
}

BEAT_SCHEDULE = {
    **{
        task: {
            "task": task,
            "schedule": float(seconds),
            "options": {"queue": queue, "expires": max(10, seconds * 2)},
        }
        for task, (seconds, queue) in EVERY.items()
    },
    **{
        task: {"task": task, "schedule": crontab(hour=hour, minute=minute), "options": {"queue": queue}}
        for task, (hour, minute, queue) in DAILY.items()
    },
}
