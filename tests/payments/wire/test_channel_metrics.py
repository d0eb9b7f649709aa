"""What Prometheus sees of the channels: how long calls take and how they end."""

from __future__ import annotations

import pytest
from django.test import Client

from kernel import valkey
from payments.channels import measures
from payments.channels.wechat import WechatGateway, operation_of
from payments.gateway import ChannelUnknown
from payments.simulator.client import SimulatorClient
from tests.payments.wire.conftest import new_no, now


def sample(text: str, **labels: str) -> float:
    wanted = [f'{name}="{value}"' for name, value in labels.items()]
    for line in text.splitlines():
        if line.startswith("quits_channel_call_seconds_count") and all(each in line for each in wanted):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


@pytest.mark.django_db
def test_calls_are_counted_by_their_end(gateway: WechatGateway, sim: SimulatorClient, client: Client) -> None:
    valkey.client().delete(measures.KEY)
    for _ in range(3):
        gateway.query_payment(out_trade_no=new_no(), now=now())
    sim.fault("wechat.query", "server_error")
    with pytest.raises(ChannelUnknown):
        gateway.query_payment(out_trade_no=new_no(), now=now())
    text = client.get("/metrics").content.decode()
    assert sample(text, channel="wechat", operation="query", outcome="refused") == 3, "404 is a signed no"
    assert sample(text, channel="wechat", operation="query", outcome="server_error") == 1
    assert 'le="+Inf"' in text


def test_without_valkey_calls_go_on(
    gateway: WechatGateway, sim: SimulatorClient, monkeypatch: pytest.MonkeyPatch, settings
) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(measures, "_silent_until", 0.0)
    gateway.query_payment(out_trade_no=new_no(), now=now())
    assert measures._silent_until > 0
    assert list(measures.ChannelCalls().collect()) == []


@pytest.mark.parametrize(
    ("method", "target", "operation"),
    [
        ("POST", "/v3/pay/transactions/jsapi", "prepay"),
        ("POST", "/v3/pay/transactions/out-trade-no/Q1/close", "close"),
        ("GET", "/v3/pay/transactions/out-trade-no/Q1?mchid=1", "query"),
        ("GET", "/v3/pay/transactions/id/42?mchid=1", "query"),
        ("POST", "/v3/refund/domestic/refunds", "refund"),
        ("GET", "/v3/refund/domestic/refunds/AS1-0", "query_refund"),
        ("POST", "/v3/refund/domestic/refunds/5/apply-abnormal-refund", "abnormal_refund"),
        ("GET", "/v3/bill/tradebill?bill_date=2026-01-01", "bill"),
        ("GET", "/v3/else", "other"),
    ],
)
def test_operations_hold_no_number(method: str, target: str, operation: str) -> None:
    assert operation_of(method, target) == operation
