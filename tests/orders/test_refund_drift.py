"""A refund that the channel tells differently (R14, R13): the queue of people gets it once, with both figures."""

from uuid import UUID

import pytest

from kernel import inbox, outbox
from merchants.models import Merchant
from orders.models import Anomaly

MERCHANT = UUID(int=7)


@pytest.mark.django_db
def test_a_refund_told_differently_waits_in_the_queue_once(now) -> None:
    Merchant.objects.create(id=MERCHANT, code="m7", name="M7", created_at=now)
    for _delivery in range(2):
        event = outbox.append(
            name="refund.anomaly",
            merchant_id=MERCHANT,
            subject="AS1-0",
            payload={
                "kind": "amount_differs",
                "order_no": "Q404",
                "refund_no": "AS1-0",
                "ours": {"amount_fen": 17167},
                "theirs": {"amount_fen": 17166},
            },
            now=now,
        )
        inbox.deliver(event.id, now=now)
        inbox.deliver(event.id, now=now)
    found = Anomaly.objects.get()
    assert (found.kind, found.state, found.seen) == ("refund_drift", "OPEN", 2)
    assert found.evidence["ours"] == {"amount_fen": 17167}
    assert found.evidence["theirs"] == {"amount_fen": 17166}
