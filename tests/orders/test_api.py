"""The orders API over HTTP: one test per endpoint and answer, and the callback endpoint under attack."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from django.test import Client

from orders.models import Order, OrderStatusLog
from payments.models import ChannelNotify, Payment
from tests.aftersales.backend import Backend
from tests.orders.factories import ADDRESS, PAYER, Shop, commands_of, drain, order_of, payment_of

LINES = [
    {"sku": "NUT", "title": "坚果礼盒", "unit_price_fen": 10000, "qty": 1, "freight_share_fen": 500},
    {"sku": "TEA", "title": "茶叶礼盒", "unit_price_fen": 20000, "qty": 1, "freight_share_fen": 500},
]
QUOTE = {"user_id": "user-1", "lines": LINES, "freight_fen": 1000, "address": ADDRESS}


@pytest.fixture
def backend(shop: Shop) -> Backend:
    return Backend(shop.merchant)


@pytest.fixture
def stranger(shop: Shop) -> Backend:
    """Another merchant's backend."""
    from tests.merchants.factories import a_merchant

    return Backend(a_merchant(now=shop.now, code="stranger", name="别家"))


def ordered_by(backend: Backend, **quote: Any) -> dict[str, Any]:
    quoted = backend.post("/quotes", {**QUOTE, **quote}).json()
    return backend.post("/orders", {"quote_id": quoted["quote_id"], "pay_method": "wechat"}).json()


def refusal(answer: Any) -> tuple[int, str]:
    assert answer["Content-Type"].startswith("application/problem+json")
    return answer.status_code, answer.json()["code"]


def test_quote(backend: Backend, stranger: Backend, shop: Shop) -> None:
    answer = backend.post("/quotes", {**QUOTE, "coupon_id": str(shop.coupon())}, key="quote-1")
    assert answer.status_code == 201
    body = answer.json()
    assert body["payable_fen"] == 26000
    assert [line["coupon_share_fen"] for line in body["lines"]] == [1667, 3333]
    again = backend.post("/quotes", {**QUOTE, "coupon_id": body["coupon"]["coupon_id"]}, key="quote-1")
    assert (again.status_code, again.content) == (201, answer.content)
    assert again["Idempotency-Replayed"] == "true"
    read = backend.get(f"/quotes/{body['quote_id']}")
    assert (read.status_code, read.json()) == (200, {**body, "state": "OPEN"})
    assert refusal(stranger.get(f"/quotes/{body['quote_id']}")) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"lines": []}, 400, "INVALID_INPUT"),
        ({"lines": [{**LINES[0], "qty": 0}]}, 400, "INVALID_INPUT"),
        ({"lines": [{**LINES[0], "qty": -1}]}, 400, "INVALID_INPUT"),
        ({"lines": [{**LINES[0], "unit_price_fen": -100}]}, 400, "INVALID_INPUT"),
        ({"lines": [{**LINES[0], "unit_price_fen": "100"}]}, 400, "INVALID_INPUT"),
        ({"lines": [{**LINES[0], "colour": "red"}]}, 400, "INVALID_INPUT"),
        ({"surprise": 1}, 400, "INVALID_INPUT"),
        ({"subsidy_fen": 30001}, 422, "DISCOUNT_EXCEEDS_GOODS"),
        ({"freight_fen": 999}, 422, "FREIGHT_SHARES_DO_NOT_ADD_UP"),
        ({"coupon_id": "01a22d57-b650-7153-ac37-ca2da1352c4f"}, 404, "NOT_FOUND"),
    ],
)
def test_quote_refused(backend: Backend, change: dict, status: int, code: str) -> None:
    assert refusal(backend.post("/quotes", {**QUOTE, **change})) == (status, code)


def test_order(backend: Backend, stranger: Backend, settings) -> None:
    settings.QUITS_STREAM_URL = "http://stream.example"
    quoted = backend.post("/quotes", QUOTE).json()
    asked = {"quote_id": quoted["quote_id"], "pay_method": "wechat"}
    assert refusal(stranger.post("/orders", asked)) == (404, "NOT_FOUND")
    answer = backend.post("/orders", asked, key="order-1")
    assert answer.status_code == 201
    body = answer.json()
    assert (body["order_no"], body["status"], body["reused"]) == (quoted["order_no"], 0, False)
    assert body["status_url"].endswith(f"/api/v1/orders/status/{body['order_token']}")
    assert body["events_url"] == f"http://stream.example/api/v1/orders/status/{body['order_token']}/events"
    again = backend.post("/orders", asked, key="order-1")
    assert (again.status_code, again.content, again["Idempotency-Replayed"]) == (201, answer.content, "true")
    assert refusal(backend.post("/orders", {**asked, "pay_method": "alipay"}, key="order-1")) == (
        422,
        "IDEMPOTENCY_KEY_REUSED",
    )
    assert refusal(backend.post("/orders", asked)) == (409, "QUOTE_USED")


def test_order_list_and_page(backend: Backend, stranger: Backend) -> None:
    numbers = [ordered_by(backend, address={**ADDRESS, "street": str(n)})["order_no"] for n in range(3)]
    first = backend.get("/orders", user_id="user-1", status=0, limit=2)
    assert [row["order_no"] for row in first.json()["results"]] == numbers[::-1][:2]
    assert first.json()["next"]
    assert backend.get("/orders", user_id="nobody").json()["results"] == []
    assert stranger.get("/orders").json()["results"] == []
    page = backend.get(f"/orders/{numbers[0]}").json()
    assert [line["net_fen"] for line in page["lines"]] == [10000, 20000]
    assert page["status_name"] == "PENDING"
    assert refusal(stranger.get(f"/orders/{numbers[0]}")) == (404, "NOT_FOUND")
    assert refusal(backend.get("/orders", status=7)) == (400, "INVALID_INPUT")


def test_pay_ship_sign_receive_timeline(backend: Backend, stranger: Backend, shop: Shop) -> None:
    number = ordered_by(backend)["order_no"]
    asked = {"user_id": "user-1", "payer_ref": PAYER}
    assert refusal(stranger.post(f"/orders/{number}/pay", asked)) == (404, "NOT_FOUND")
    placed = backend.post(f"/orders/{number}/pay", asked, key="pay-1")
    assert placed.status_code == 201
    assert placed.json()["client_params"]["signType"] == "RSA"
    assert backend.post(f"/orders/{number}/pay", asked, key="pay-1")["Idempotency-Replayed"] == "true"
    assert refusal(backend.post(f"/orders/{number}/ship", {"carrier": "SF", "tracking_no": "1"})) == (
        409,
        "ILLEGAL_TRANSITION",
    )
    shop.simulator.pay(placed.json()["out_trade_no"], notify=False)
    assert refusal(backend.post(f"/orders/{number}/cancel", {"user_id": "user-1"})) == (409, "ORDER_ALREADY_PAID")

    parcel = {"carrier": "SF", "tracking_no": "SF1", "lines": [{"line_no": 1, "qty": 1}]}
    shipped = backend.post(f"/orders/{number}/ship", parcel)
    assert (shipped.status_code, shipped.json()["status"]) == (201, 10)
    rest = backend.post(f"/orders/{number}/ship", {"carrier": "SF", "tracking_no": "SF2"})
    assert rest.json()["status"] == 20
    assert refusal(stranger.post(f"/orders/{number}/sign", {})) == (404, "NOT_FOUND")
    signed = backend.post(f"/orders/{number}/sign", {})
    assert (signed.status_code, len(signed.json()["shipment_ids"])) == (201, 2)
    assert refusal(backend.post(f"/orders/{number}/confirm-receipt", {"user_id": "nobody"})) == (404, "NOT_FOUND")
    received = backend.post(f"/orders/{number}/confirm-receipt", {"user_id": "user-1"})
    assert (received.status_code, received.json()["status"]) == (201, 30)

    timeline = backend.get(f"/orders/{number}/timeline", user_id="user-1").json()
    assert [entry["command"] for entry in timeline["entries"]] == ["create", "confirm_paid", "deliver", "complete"]
    assert refusal(backend.get(f"/orders/{number}/timeline", user_id="nobody")) == (404, "NOT_FOUND")
    assert refusal(backend.get(f"/orders/{number}/timeline")) == (400, "INVALID_INPUT")


def test_cancel(backend: Backend) -> None:
    number = ordered_by(backend)["order_no"]
    answer = backend.post(f"/orders/{number}/cancel", {"user_id": "user-1", "reason": "太贵"})
    assert (answer.status_code, answer.json()["status"]) == (201, 50)
    assert refusal(backend.post(f"/orders/{number}/pay", {"user_id": "user-1", "payer_ref": PAYER})) == (
        409,
        "ORDER_NOT_PAYABLE",
    )


def test_status_by_token_and_its_revocation(backend: Backend, client: Client) -> None:
    ordered = ordered_by(backend)
    path = f"/api/v1/orders/status/{ordered['order_token']}"
    answer = client.get(path)
    assert (answer.status_code, answer.json()["order_no"]) == (200, ordered["order_no"])
    assert answer["Cache-Control"] == "no-store"
    revoked = backend.post(f"/orders/{ordered['order_no']}/revoke-token", {"renew": True}).json()
    assert refusal(client.get(path)) == (404, "NOT_FOUND")
    assert client.get(f"/api/v1/orders/status/{revoked['order_token']}").status_code == 200
    backend.post(f"/orders/{ordered['order_no']}/revoke-token", {"renew": False})
    assert client.get(f"/api/v1/orders/status/{revoked['order_token']}").status_code == 404


def test_scopes(shop: Shop) -> None:
    reader = Backend(shop.merchant, scopes=["read"])
    assert refusal(reader.post("/quotes", QUOTE)) == (403, "SCOPE_MISSING")
    assert reader.get("/orders").status_code == 200
    assert Client().get("/api/v1/orders").status_code == 401


@pytest.fixture
def pending(shop: Shop, live_server, settings) -> tuple[Any, Payment]:
    """A placed order whose callbacks come to this server."""
    settings.QUITS_BASE_URL = live_server.url
    ordered, _placed = shop.placed(coupon_id=shop.coupon())
    return ordered, payment_of(ordered)


def test_the_same_callback_five_times_in_parallel_and_one_forged(shop: Shop, pending) -> None:
    ordered, payment = pending
    shop.simulator.pay(payment.out_trade_no)
    shop.simulator.wait_for_notify(out_trade_no=payment.out_trade_no)
    deliveries = shop.simulator.redeliver(out_trade_no=payment.out_trade_no, times=5, parallel=True)
    assert [each["status"] for each in deliveries] == [204] * 5
    [forged] = shop.simulator.forge(payment.out_trade_no, amount_fen=1)
    assert forged["status"] == 401
    drain()
    verdicts = list(ChannelNotify.objects.values_list("verdict", flat=True))
    assert sorted(verdicts) == ["FORGED", *["VERIFIED"] * 6]
    assert OrderStatusLog.objects.filter(order_id=ordered.order_id, to_status=10).count() == 1
    assert Payment.objects.filter(status="PAID").count() == 1
    assert commands_of(ordered) == ["create", "confirm_paid"]
    assert order_of(ordered).coupon_state == "redeemed"


@pytest.mark.parametrize(("how", "verdict"), [("forged", "FORGED"), ("stale", "STALE"), ("altered_body", "FORGED")])
def test_what_is_not_the_channels_word_moves_nothing(shop: Shop, pending, how: str, verdict: str) -> None:
    ordered, payment = pending
    [delivery] = shop.simulator.forge(payment.out_trade_no, how=how)
    assert delivery["status"] == 401
    drain()
    assert [row.verdict for row in ChannelNotify.objects.all()] == [verdict]
    assert order_of(ordered).status == 0


def test_no_channel_no_callback(client: Client, shop: Shop) -> None:
    assert client.post("/api/v1/orders/notify/cash", b"{}", content_type="application/json").status_code == 404
    answer = client.post("/api/v1/orders/notify/wechat", b"not json", content_type="text/plain")
    assert answer.status_code in (400, 401)
    assert Order.objects.count() == 0


def test_callbacks_are_acknowledged_before_they_are_worked_on(shop: Shop, pending, live_server) -> None:
    """Durable first: the acknowledgement does not wait for the order, nor for a channel that does not answer."""
    ordered, payment = pending
    shop.simulator.fault("wechat.query", "timeout", times=-1, seconds=30)
    shop.simulator.pay(payment.out_trade_no, amount_fen=1)
    notify = shop.simulator.wait_for_notify(out_trade_no=payment.out_trade_no)
    assert notify["state"] == "ACKED"
    assert order_of(ordered).status == 0


def test_many_at_once(shop: Shop, backend: Backend, live_server) -> None:
    ordered = ordered_by(backend)
    url = f"{live_server.url}/api/v1/orders/status/{ordered['order_token']}"

    def poll(_n: int) -> int:
        return httpx.get(url, trust_env=False, timeout=20).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(poll, range(40))) == {200}
