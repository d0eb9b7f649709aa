"""Every endpoint under generated requests: no server error, nothing the OpenAPI document does not say, and books that
are clean afterwards. `bin/test fuzz` runs it with 20,000 requests."""

import os

import pytest

from coupons.verification import verify
from kernel import clock
from ledgers.commands.adjust_stock import adjust_stock
from merchants.commands.create_client import KeyIssued
from reconciliation.models import Finding
from tests.fuzz.campaign import Campaign
from tests.fuzz.world import World, listening
from tests.orders.factories import Shop, drain

REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "1500"))
SEED = int(os.environ.get("FUZZ_SEED", "20261130"))


@pytest.mark.slow
def test_every_endpoint(shop: Shop, issued: KeyIssued, reader: KeyIssued, settings, tmp_path) -> None:
    settings.QUITS_VAR = tmp_path
    for sku in ("NUT", "TEA", "BLUE"):
        adjust_stock(
            merchant_id=shop.id,
            sku=sku,
            delta=1_000_000,
            business_key=f"fuzz:{sku}",
            reference="fuzz",
            now=clock.now(),
        )
    campaign = Campaign(issued=issued, reader=reader, wanted=REQUESTS, number=SEED)
    with listening() as heard:
        settings.QUITS_BASE_URL = heard.base_url
        campaign.world = World(shop, heard, campaign.send)
        tally = campaign.run()
        campaign.world.carry_out()
    print("\n" + tally.table())

    assert not tally.failures, "\n\n".join([tally.table(), *tally.failures.values()])
    assert tally.server_errors == 0
    assert tally.requests >= REQUESTS
    assert tally.inside / tally.requests >= 0.6
    assert {label for label, row in tally.rows.items() if not row.good} == set(), tally.table()
    assert set(tally.rows) == {operation.label for operation in campaign.operations.values()}

    drain()
    assert [check.name for check in verify() if check.differences] == []
    assert not Finding.objects.filter(severity__in=("P0", "P1")).exists()
