"""Every beat job in one table. A run longer than its interval overlaps harmlessly: rows are claimed, not tables."""

from celery.schedules import crontab

EVERY = {
    # task: (seconds, queue)
    "kernel.tasks.relay_outbox": (1, "critical"),
    "kernel.tasks.consume_events": (2, "critical"),
    "kernel.tasks.retry_inbox": (2, "critical"),
    "kernel.tasks.redeliver_lost_events": (30, "bulk"),
    "aftersales.tasks.run_due_timers": (30, "default"),
    "coupons.tasks.release_overdue_leases": (5, "default"),
    "coupons.tasks.expire_overdue_coupons": (60, "bulk"),
    "ledgers.tasks.mature_commissions": (300, "bulk"),
    "orders.tasks.check_pending_orders": (5, "default"),
    "orders.tasks.complete_due_orders": (300, "bulk"),
    "orders.tasks.expire_quotes": (10, "default"),
    "orders.tasks.fulfil_paid_orders": (15, "default"),
    "orders.tasks.sign_due_shipments": (300, "bulk"),
    "payments.tasks.sweep_refunds": (2, "critical"),
    "payments.tasks.fetch_bills": (1800, "bulk"),
    "reconciliation.tasks.look_at_what_changed": (60, "bulk"),
    "reconciliation.tasks.reconcile_waiting": (1800, "bulk"),
}

DAILY: dict[str, tuple[int, int, str]] = {
    # task: (hour, minute in Asia/Shanghai, queue)
    "coupons.tasks.expire_all_overdue_coupons": (3, 20, "bulk"),
    "payments.tasks.ask_parked_refunds": (9, 10, "bulk"),
    "reconciliation.tasks.reconcile_yesterday": (10, 30, "bulk"),
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
