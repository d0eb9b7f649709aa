"""A Celery worker whose clock is wrong: `python -m tests.faults.skewed_worker SECONDS worker -Q …`.

Everything of ours that asks for the time (and Django's own stamps) is told a wrong one. Celery itself is not, or it
would throw the expiring beat tasks away instead of working on them with the wrong time.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta


def main() -> None:
    skew = timedelta(seconds=float(sys.argv[1]))

    def now() -> datetime:
        return datetime.now(UTC) + skew

    import django.utils.timezone

    import kernel.clock

    django.utils.timezone.now = now
    kernel.clock.now = now
    from config.celery import app

    app.start(argv=sys.argv[2:])


if __name__ == "__main__":
    main()
