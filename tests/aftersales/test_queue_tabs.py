"""The tabs of the queue show what they say, and nothing else."""

import pytest

from kernel import clock
from merchants.roles import Role
from tests.aftersales.build import nut_and_tea
from tests.merchants.factories import a_merchant, a_person

QUEUE = "/admin/aftersales/aftersalesorder/"


@pytest.mark.django_db(transaction=True)
def test_a_tab_lists_only_its_claims(client):
    now = clock.now()
    paid = nut_and_tea(now, merchant=a_merchant(now=now))
    number = paid.apply(1, type=1, reason="damaged").after_sales_no
    client.force_login(
        a_person(role=Role.MERCHANT_OWNER, merchant=paid.merchant, now=now, username="lin").user,
        backend="django.contrib.auth.backends.ModelBackend",
    )
    listed = {
        tab: [claim.after_sales_no for claim in client.get(QUEUE, {"tab": tab}).context["cl"].result_list]
        for tab in ("audit", "refunding")
    }
    assert listed == {"audit": [number], "refunding": []}
