"""The after-sales API over HTTP: one test per endpoint and answer."""

import pytest

from aftersales.models import AfterSalesOrder
from kernel import clock
from tests.aftersales.backend import Backend
from tests.aftersales.build import BUYER, nut_and_tea

pytestmark = pytest.mark.django_db


@pytest.fixture
def paid():
    return nut_and_tea(clock.now())


@pytest.fixture
def backend(paid):
    return Backend(paid.merchant)


def wish(paid, *items, **more):
    items = items or ({"line_no": 2, "type": 1, "qty": 1, "reason_code": "changed_mind"},)
    return {"order_no": paid.order.order_no, "user_id": BUYER, "items": list(items), **more}


def applied(backend, paid) -> str:
    return backend.post("/after-sales", wish(paid)).json()["after_sales"][0]["after_sales_no"]


def test_preview_names_every_share_and_writes_nothing(paid, backend):
    paid.ship(2)
    answer = backend.post(
        "/after-sales/preview",
        wish(paid, {"line_no": 2, "type": 2, "qty": 1, "reason_code": "quality"}),
    )
    assert answer.status_code == 200
    shown = answer.json()
    assert shown["refund_fen"] == 17167
    (item,) = shown["items"]
    assert item["line"] == {
        "unit_price_fen": 20000,
        "qty": 1,
        "line_discount_fen": 0,
        "base_fen": 20000,
        "coupon_share_fen": 3333,
        "subsidy_share_fen": 0,
        "points_share_fen": 0,
        "net_fen": 16667,
        "freight_share_fen": 500,
    }
    assert (item["refund_if_merchant_liable_fen"], item["refund_if_buyer_liable_fen"]) == (17167, 16667)
    assert item["units"] == [
        {"ordinal": 1, "worth_fen": 16667, "earlier_fen": 0, "goods_fen": 16667, "freight_fen": 500}
    ]
    assert not AfterSalesOrder.objects.exists()


def test_preview_equals_the_application(paid, backend):
    body = wish(paid, *({"line_no": n, "type": 1, "qty": 1, "reason_code": "quality"} for n in (1, 2)))
    preview, done = backend.post("/after-sales/preview", body).json(), backend.post("/after-sales", body).json()
    assert preview["refund_fen"] == done["refund_fen"] == 26000


def test_apply_is_created_once_and_replayed(paid, backend):
    first = backend.post("/after-sales", wish(paid), key="k-1")
    again = backend.post("/after-sales", wish(paid), key="k-1")
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.content == again.content
    assert again.headers["Idempotency-Replayed"] == "true"
    assert AfterSalesOrder.objects.count() == 1
    other = backend.post(
        "/after-sales", wish(paid, {"line_no": 1, "type": 1, "qty": 1, "reason_code": "quality"}), key="k-1"
    )
    assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"qty": 0}, 400, "INVALID_INPUT"),
        ({"qty": -1}, 400, "INVALID_INPUT"),
        ({"goods_fen": -100}, 400, "INVALID_INPUT"),
        ({"qty": "1"}, 400, "INVALID_INPUT"),
        ({"line_no": 9}, 404, "NOT_FOUND"),
        ({"qty": 2}, 422, "UNITS_NOT_AVAILABLE"),
        ({"type": 2}, 422, "TYPE_DOES_NOT_FIT"),
        ({"reason_code": "nonsense"}, 400, "INVALID_INPUT"),
        ({"goods_fen": 16668}, 422, "REFUND_EXCEEDS_ENTITLEMENT"),
        ({"surprise": 1}, 400, "INVALID_INPUT"),
    ],
)
def test_a24_apply_refuses_and_writes_nothing(paid, backend, change, status, code):
    item = {"line_no": 2, "type": 1, "qty": 1, "reason_code": "quality", **change}
    answer = backend.post("/after-sales", wish(paid, item))
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert not AfterSalesOrder.objects.exists()


def test_no_items(paid, backend):
    assert backend.post("/after-sales", {**wish(paid), "items": []}).status_code == 400


def test_one_claim_with_everything_about_it(paid, backend):
    number = applied(backend, paid)
    paid.approve(number)
    paid.channel_says(f"{number}-0")
    shown = backend.get(f"/after-sales/{number}").json()
    assert (shown["status"], shown["version"]) == ("REFUND_SUCCESS", 3)
    assert [step["to_status"] for step in shown["timeline"]] == ["WAIT_AUDIT", "REFUNDING", "REFUND_SUCCESS"]
    assert [(a["number"], a["status"], a["amount_fen"]) for a in shown["refund_attempts"]] == [
        (f"{number}-0", "SUCCESS", 17167)
    ]
    assert {row["system"]: row["state"] for row in shown["rollbacks"]} == dict.fromkeys(
        ["stock", "coupon", "points", "commission", "sales"], "DONE"
    )


def test_lists_filter_and_page(paid, backend):
    first = applied(backend, paid)
    second = backend.post(
        "/after-sales", wish(paid, {"line_no": 1, "type": 1, "qty": 1, "reason_code": "quality"})
    ).json()["after_sales"][0]["after_sales_no"]
    page = backend.get("/after-sales", user_id=BUYER, limit=1).json()
    assert [row["after_sales_no"] for row in page["results"]] == [second]
    assert page["next"]
    assert [
        row["after_sales_no"] for row in backend.get("/after-sales", order_no=paid.order.order_no).json()["results"]
    ] == [
        second,
        first,
    ]
    assert backend.get("/after-sales", status="REFUNDING").json()["results"] == []
    assert backend.get("/after-sales", status="NONSENSE").status_code == 400
    assert backend.get("/after-sales", user_id="u-2").json()["results"] == []


def test_cancel(paid, backend):
    number = applied(backend, paid)
    assert backend.post(f"/after-sales/{number}/cancel", {"user_id": "u-2"}).status_code == 404
    done = backend.post(f"/after-sales/{number}/cancel", {"user_id": BUYER, "reason": "found it"})
    assert (done.status_code, done.json()) == (200, {"after_sales_no": number, "status": "CANCELED", "version": 2})
    late = backend.post(f"/after-sales/{number}/cancel", {"user_id": BUYER})
    assert (late.status_code, late.json()["code"]) == (409, "ILLEGAL_TRANSITION")


def test_return_shipment(paid, backend):
    paid.ship(2)
    number = backend.post(
        "/after-sales", wish(paid, {"line_no": 2, "type": 2, "qty": 1, "reason_code": "quality"})
    ).json()["after_sales"][0]["after_sales_no"]
    parcel = {"user_id": BUYER, "carrier": "SF", "tracking_no": "SF1"}
    early = backend.post(f"/after-sales/{number}/return-shipment", parcel)
    assert (early.status_code, early.json()["code"]) == (409, "ILLEGAL_TRANSITION")
    paid.approve(number)
    stale = backend.post(f"/after-sales/{number}/return-shipment", {**parcel, "expected_version": 1})
    assert (stale.status_code, stale.json()["code"]) == (409, "VERSION_CONFLICT")
    done = backend.post(f"/after-sales/{number}/return-shipment", parcel)
    assert (done.status_code, done.json()["status"]) == (201, "WAIT_MERCHANT_RECEIVE")


def test_another_merchant_sees_nothing(paid, backend):
    number = applied(backend, paid)
    stranger = Backend(nut_and_tea(clock.now()).merchant)
    assert stranger.get(f"/after-sales/{number}").status_code == 404
    assert stranger.get("/after-sales").json()["results"] == []
    assert stranger.post(f"/after-sales/{number}/cancel", {"user_id": BUYER}).status_code == 404
    assert stranger.post("/after-sales", wish(paid)).status_code == 404


def test_scopes_and_signatures(paid, backend):
    reader = Backend(paid.merchant, scopes=["read"])
    assert reader.get("/after-sales").status_code == 200
    assert reader.post("/after-sales", wish(paid)).status_code == 403
    assert backend.http.get("/api/v1/after-sales").status_code == 401
