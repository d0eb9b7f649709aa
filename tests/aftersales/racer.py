"""A process of its own that acts on claims when it is told to go, and says what came of each act.

python -m tests.aftersales.racer      (DATABASE_URL, REDIS_URL and DJANGO_SETTINGS_MODULE in the environment)

First line in: {"merchant_id", "user_id", "now", "acts": [["approve", after-sales number] | ["apply", order number]]}.
It answers "ready", waits for a line, and prints one JSON line: the outcome of every act, by name or code of refusal.
"""

import json
import sys
from datetime import datetime
from uuid import UUID

import django

django.setup()

from aftersales.actors import By  # noqa: E402
from aftersales.commands.apply_after_sales import apply_after_sales  # noqa: E402
from aftersales.commands.approve_after_sales import approve_after_sales  # noqa: E402
from aftersales.drafts import Item  # noqa: E402
from aftersales.models import Actor  # noqa: E402
from kernel import numbers  # noqa: E402
from kernel.errors import Refusal  # noqa: E402
from kernel.idempotency import business_key  # noqa: E402


def main() -> None:
    told = json.loads(sys.stdin.readline())
    merchant_id, now = UUID(told["merchant_id"]), datetime.fromisoformat(told["now"])
    known = {"merchant_id": merchant_id, "now": now}
    print("ready", flush=True)
    sys.stdin.readline()
    outcomes = []
    for what, number in told["acts"]:
        key = business_key(merchant_id=merchant_id, key=f"racer-{numbers.uuid7().hex}")
        try:
            if what == "approve":
                approve_after_sales(
                    **known, after_sales_no=number, expected_version=1, by=By(Actor.MERCHANT, "racer"), key=key
                )
            else:
                item = Item(line_no=1, qty=1, type=1, reason_code="quality")
                apply_after_sales(**known, order_no=number, user_id=told["user_id"], items=[item], key=key)
            outcomes.append("done")
        except Refusal as refusal:
            outcomes.append(refusal.code)
    print(json.dumps(outcomes), flush=True)


if __name__ == "__main__":
    main()
