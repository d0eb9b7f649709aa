"""The after-sales API over HTTP: one test per endpoint and answer."""

from datetime import timedelta

import pytest

from aftersales.commands.confirm_exchange import confirm_exchange
from aftersales.commands.ship_replacement import ship_replacement
from aftersales.models import AfterSalesOrder
from kernel import clock
from ledgers.commands.adjust_points import adjust_points
from orders.models import OrderLine
from tests.aftersales.backend import Backend
from tests.aftersales.build import BUYER, MERCHANT, a_key, nut_and_tea
from tests.aftersales.test_evidence import a_png
from tests.aftersales.test_return import reject

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


def refused(paid, backend) -> str:
    number = applied(backend, paid)
    reject(paid, number)
    return number


def test_arbitration_is_opened_argued_and_shown(paid, backend):
    number = refused(paid, backend)
    early = backend.post(f"/after-sales/{number}/arbitration", {"user_id": "u-2", "wish": "no"})
    assert early.status_code == 404
    opened = backend.post(f"/after-sales/{number}/arbitration", {"user_id": BUYER, "wish": "it is broken"})
    assert (opened.status_code, opened.json()["entitled_fen"]) == (201, 17167)
    case = opened.json()["case_id"]
    said = backend.post(f"/arbitrations/{case}/statements", {"user_id": BUYER, "text": "see the picture"})
    assert (said.status_code, said.json()["side"]) == (201, "buyer")
    again = backend.post(f"/after-sales/{number}/arbitration", {"user_id": BUYER, "wish": "again"})
    assert (again.status_code, again.json()["code"]) == (409, "ARBITRATION_ALREADY_OPEN")
    shown = backend.get(f"/after-sales/{number}").json()["arbitrations"]
    assert [(row["cause"], row["state"]) for row in shown] == [("rejected", "OPEN")]


def test_late_arbitration(paid, backend):
    paid.ship(1)
    wish = {"user_id": BUYER, "line_no": 1, "qty": 1, "wish": "it broke"}
    early = backend.post(f"/orders/{paid.order.order_no}/arbitration", wish)
    assert (early.status_code, early.json()["code"]) == (409, "NOTHING_TO_ARBITRATE")
    OrderLine.objects.filter(line_no=1).update(signed_at=clock.now() - timedelta(days=16))
    over = backend.post("/after-sales", wish_for_return(paid, 1))
    assert (over.status_code, over.json()["code"]) == (422, "WINDOW_OVER")
    assert backend.post(f"/orders/{paid.order.order_no}/arbitration", wish).status_code == 201


def wish_for_return(paid, line_no: int):
    return wish(paid, {"line_no": line_no, "type": 2, "qty": 1, "reason_code": "quality"})


def test_evidence_goes_up_and_comes_back_to_its_buyer_only(paid, backend, settings, tmp_path):
    settings.QUITS_VAR = tmp_path
    number = applied(backend, paid)
    first = backend.upload(f"/after-sales/{number}/evidence", {"user_id": BUYER, "note": "dent"}, a_png(), key="e-1")
    again = backend.upload(f"/after-sales/{number}/evidence", {"user_id": BUYER, "note": "dent"}, a_png(), key="e-1")
    other = backend.upload(
        f"/after-sales/{number}/evidence", {"user_id": BUYER, "note": "dent"}, a_png(tint=9), key="e-1"
    )
    assert (first.status_code, again.content, again.headers["Idempotency-Replayed"]) == (201, first.content, "true")
    assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    name = first.json()["evidence_id"]
    shown = backend.get(f"/evidence/{name}", user_id=BUYER)
    assert b"".join(shown.streaming_content) == a_png()
    assert (shown["Content-Type"], shown["X-Content-Type-Options"]) == ("image/png", "nosniff")
    assert backend.get(f"/evidence/{name}", user_id="u-2").status_code == 404
    assert Backend(nut_and_tea(clock.now()).merchant).get(f"/evidence/{name}", user_id=BUYER).status_code == 404
    assert [row["note"] for row in backend.get(f"/after-sales/{number}").json()["evidence"]] == ["dent"]


def test_evidence_that_is_none(paid, backend, settings, tmp_path):
    settings.QUITS_VAR = tmp_path
    number = applied(backend, paid)
    bad = backend.upload(f"/after-sales/{number}/evidence", {"user_id": BUYER}, b"<svg onload=alert(1)>")
    assert (bad.status_code, bad.json()["code"]) == (422, "EVIDENCE_REFUSED")
    large = backend.upload(f"/after-sales/{number}/evidence", {"user_id": BUYER}, b"\x00" * (10 * 1024 * 1024 + 70_000))
    assert large.status_code == 413


def test_carrier_events(paid, backend):
    event = {
        "carrier": "SF",
        "tracking_no": "SF1",
        "what": "moved",
        "happened_at": clock.now().isoformat(),
    }
    assert backend.post("/carrier-events", event).status_code == 201
    assert backend.post("/carrier-events", event).headers["Idempotency-Replayed"] == "true"
    assert backend.post("/carrier-events", {**event, "what": "vanished"}).status_code == 400


def test_an_exchange_over_http(paid, backend):
    paid.ship(2)
    replacement = {"sku": "blue", "title": "Blue", "unit_price_fen": 16667}
    item = {"line_no": 2, "type": 3, "qty": 1, "reason_code": "wrong_size"}
    assert backend.post("/after-sales", wish(paid, item)).status_code == 400
    number = backend.post("/after-sales", wish(paid, {**item, "replacement": replacement})).json()["after_sales"][0][
        "after_sales_no"
    ]
    paid.approve(number)
    paid.send_back(number)
    confirm_exchange(
        merchant_id=paid.merchant.pk,
        after_sales_no=number,
        expected_version=3,
        dispositions={"sellable": 1},
        by=MERCHANT,
        key=a_key(paid.merchant.pk),
        now=clock.now(),
    )
    nothing = backend.post(f"/after-sales/{number}/pay", {"user_id": BUYER, "payer_ref": "openid"})
    assert (nothing.status_code, nothing.json()["code"]) == (409, "ILLEGAL_TRANSITION")
    ship_replacement(
        merchant_id=paid.merchant.pk,
        after_sales_no=number,
        expected_version=4,
        carrier="SF",
        tracking_no="SF9",
        by=MERCHANT,
        key=a_key(paid.merchant.pk),
        now=clock.now(),
    )
    done = backend.post(f"/after-sales/{number}/confirm-receipt", {"user_id": BUYER})
    assert (done.status_code, done.json()["status"], done.json()["line_no"]) == (200, "COMPLETED", 3)
    assert backend.get(f"/after-sales/{number}").json()["exchange"]["credit_fen"] == 16667


def test_points_ledger(paid, backend):
    assert backend.get("/points/ledger", user_id=BUYER).json()["results"] == []
    adjust_points(
        merchant_id=paid.merchant.pk,
        user_id=BUYER,
        delta=50,
        business_key="welcome",
        reference="welcome",
        now=clock.now(),
    )
    assert [row["delta"] for row in backend.get("/points/ledger", user_id=BUYER).json()["results"]] == [50]
    assert backend.get("/points/ledger").status_code == 400


def test_commissions_are_declared_for_the_lines_of_an_order(paid, backend):
    url = f"/orders/{paid.order.order_no}/commissions"
    shares = [{"line_no": 2, "level": 1, "beneficiary": "agent-7", "rate_bp": 1250}]
    first = backend.post(url, {"shares": shares}, key="told")
    assert first.status_code == 201, first.content
    assert {"order_no": paid.order.order_no, "shares": 1, "booked_fen": 0}.items() <= first.json().items()
    assert backend.post(url, {"shares": shares}, key="told").headers["Idempotency-Replayed"] == "true"
    other = [{**shares[0], "beneficiary": "agent-8"}]
    assert backend.post(url, {"shares": other}).status_code in (409, 422)
    for wrong in ({"shares": []}, {"shares": [{**shares[0], "rate_bp": 10001}]}, {"shares": [{"line_no": 1}]}):
        assert backend.post(url, wrong).status_code == 400, wrong
    assert backend.post("/orders/Q404/commissions", {"shares": shares}).status_code == 404
