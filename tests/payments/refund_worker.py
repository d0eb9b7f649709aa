"""A worker process for the campaigns: takes steps and delivers events until it is killed.

python -m tests.payments.refund_worker      (DATABASE_URL, REDIS_URL and DJANGO_SETTINGS_MODULE in the environment)
"""

import os
import time

import django

django.setup()

from kernel import clock, inbox, stream  # noqa: E402
from payments.commands.pick_due_refunds import pick_due_refunds  # noqa: E402
from payments.commands.pursue_refund import pursue_refund  # noqa: E402


def main() -> None:
    print("working", flush=True)
    employer = os.getppid()
    while os.getppid() == employer:
        picked = pick_due_refunds(limit=5)
        for attempt_id in picked:
            pursue_refund(attempt_id=attempt_id, now=clock.now())
        stream.drain(now=clock.now(), rounds=2)
        inbox.retry_due(now=clock.now(), limit=20)
        if not picked:
            time.sleep(0.05)


if __name__ == "__main__":
    main()
