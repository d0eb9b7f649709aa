"""Hostile inputs, on every endpoint that the OpenAPI document names: each is refused as documented, and nothing is
written."""

from __future__ import annotations

import io
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from django.db import connection
from schemathesis import Response

from ledgers.commands.adjust_stock import adjust_stock
from merchants.commands.create_client import KeyIssued
from tests.fuzz.campaign import Campaign
from tests.fuzz.hostile import CURSORS, JSON, dumped, nested
from tests.fuzz.wire import BASE, InProcess, Signed
from tests.fuzz.world import Good, World, listening
from tests.merchants.factories import a_client, a_merchant
from tests.orders.factories import Shop

MIB = 1024 * 1024
MAY_BE_EMPTY = {"order_sign", "order_revoke_token"}
SOME = "01a22d57-b650-7153-ac37-ca2da1352c4f"
PATH = {"coupon_id": SOME, "case_id": SOME, "order_no": "1", "after_sales_no": "1"}
EVIDENCE = {"coupon_refusal", "channel_notify"}
"""What a refusal or a forged callback leaves behind on purpose."""


@pytest.fixture
def campaign(shop: Shop, issued: KeyIssued, reader: KeyIssued, settings, tmp_path) -> Iterator[Campaign]:
    settings.QUITS_VAR = tmp_path
    for sku in ("NUT", "TEA", "BLUE"):
        adjust_stock(
            merchant_id=shop.id, sku=sku, delta=1000, business_key=f"hostile:{sku}", reference="test", now=shop.now
        )
    made = Campaign(issued=issued, reader=reader, wanted=0, number=1)
    with listening() as heard:
        settings.QUITS_BASE_URL = heard.base_url
        made.world = World(shop, heard, made.send)
        yield made
    assert not made.tally.failures, "\n\n".join(made.tally.failures.values())


@pytest.fixture
def stranger(shop: Shop) -> Signed:
    other = a_client(merchant=a_merchant(now=shop.now, code="stranger", name="别家"), now=shop.now)
    return Signed(other.key_id, other.secret)


def rows() -> dict[str, int]:
    """How many rows each table holds."""
    with connection.cursor() as cursor:
        tables = [name for name in connection.introspection.table_names(cursor) if name not in EVIDENCE]
        cursor.execute(
            " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {connection.ops.quote_name(name)}" for name in tables)
        )
        return dict(cursor.fetchall())


def signed_operations(campaign: Campaign) -> list[str]:
    return [name for name, operation in campaign.operations.items() if campaign.needs_key(operation)]


def takes_json(campaign: Campaign, name: str) -> bool:
    operation = campaign.operations[name]
    return operation.method != "get" and campaign.needs_key(operation) and not name.endswith("evidence")


def code(answer: Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_what_belongs_to_another_merchant_is_not_there(campaign: Campaign, stranger: Signed) -> None:
    """Each request is right in everything but who asks. The answer is 404, or one's own empty list."""
    own = {"record_carrier_event", "wallet_read"}  # one's own parcel, one's own (empty) wallet
    wrong = []
    for name in set(signed_operations(campaign)) - own:
        good = campaign.world.good(name)
        before = rows()
        answer = campaign.send(name, good, auth=stranger)
        body = answer.json()
        nothing_there = answer.status_code == 404 or (answer.status_code == 200 and body.get("results") == [])
        if name == "coupon_issue":
            nothing_there = answer.status_code in (404, 422)
        if not nothing_there or rows() != before:
            wrong.append(f"{name}: {answer.status_code} {answer.content[:200]!r}")
    assert wrong == []


def test_a_request_counts_once(campaign: Campaign, issued: KeyIssued) -> None:
    """The same signed bytes again are no second request, even under another idempotency key."""
    again = Signed(issued.key_id, issued.secret, nonce="the-same-nonce-twice")
    assert campaign.send("coupon_list", Good(), auth=again).status_code == 200
    wrong = []
    for name in signed_operations(campaign):
        good = campaign.world.good(name)
        before = rows()
        for auth, said in (
            (again, "NONCE_REPLAYED"),
            (Signed(issued.key_id, issued.secret, timestamp=1_000_000_000), "TIMESTAMP_OUT_OF_RANGE"),
            (Signed(issued.key_id, issued.secret, body=b"another"), "SIGNATURE_INVALID"),
        ):
            answer = campaign.send(name, good, auth=auth)
            if code(answer) != (401, said):
                wrong.append(f"{name}: {answer.status_code} {answer.content[:200]!r}")
        if rows() != before:
            wrong.append(f"{name} wrote something")
    assert wrong == []


def test_bodies_that_are_too_large(campaign: Campaign) -> None:
    before = rows()
    for name in campaign.operations:
        if takes_json(campaign, name):
            answer = campaign.send(name, Good(path=PATH, raw=b'{"a": "' + b"x" * MIB + b'"}'))
            assert code(answer) == (413, "BODY_TOO_LARGE"), name
    for name in ("payment_notify", "refund_notify"):
        answer = campaign.send(name, Good(path={"channel": "wechat"}, raw=b"x" * (12 * MIB)))
        assert answer.status_code == 413, (name, answer.content[:200])
    assert rows() == before


ODD = {
    "nested in objects": nested(5_000),
    "nested in lists": nested(100_000, opening="[", closing="]"),
    "a member twice": b'{"user_id": "a", "user_id": "b"}',
    "a member twice, deep down": b'{"x": {"y": [{"z": 1, "z": 2}]}}',
    "NaN": b'{"user_id": NaN}',
    "infinity": b'{"user_id": -Infinity}',
    "too large for a float": b'{"user_id": 1e999}',
    "5,000 digits": b'{"user_id": ' + b"9" * 5000 + b"}",
    "a lone surrogate": b'{"user_id": "\\ud800"}',
    "a surrogate as a name": b'{"\\udfff": 1}',
    "NUL": b'{"user_id": "a\\u0000b"}',
    "NUL as a name": b'{"\\u0000": 1}',
    "NUL as a byte": b'{"user_id": "a\x00b"}',
    "not UTF-8": b'{"user_id": "\xff"}',
    "UTF-16": '{"user_id": "a"}'.encode("utf-16"),
    "UTF-8 with a mark": b'\xef\xbb\xbf{"user_id": "a"}',
    "cut off": b'{"user_id": "a',
    "two values": b"{}{}",
    "comments": b'{/* */"user_id": "a"}',
    "nothing": b"",
    "a list": b"[]",
    "null": b"null",
    "a text": b'"x"',
}


def test_what_is_not_the_json_we_take(campaign: Campaign) -> None:
    before = rows()
    for what, raw in ODD.items():
        for name in filter(lambda name: takes_json(campaign, name), campaign.operations):
            answer = campaign.send(name, Good(path=PATH, raw=raw))
            # No body at all is an empty object, which two endpoints take.
            expected = (404, "NOT_FOUND") if not raw and name in MAY_BE_EMPTY else (400, "INVALID_INPUT")
            assert code(answer) == expected, (what, name, answer.content[:300])
    assert rows() == before


def test_the_hot_commands_refuse_the_same(campaign: Campaign) -> None:
    """A good body with one member twice: the fast way in front of the view is not more lenient than the view."""
    for name in ("coupon_lock", "coupon_renew", "coupon_redeem", "coupon_release"):
        good = campaign.world.good(name)
        text = dumped(good.body)
        before = rows()
        twice = text[:-1] + b', "order_no": "other"}'
        assert code(campaign.send(name, Good(path=good.path, raw=twice))) == (400, "INVALID_INPUT")
        assert rows() == before
        assert campaign.send(name, good).status_code == 201


NUMBERS = [-1, 0, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 1.0, 1.5, True, "1", None, [1], {"a": 1}]


def test_numbers_that_cannot_be(campaign: Campaign) -> None:
    """In every place of a quote and a claim that takes a positive integer."""
    before = rows()
    for value in NUMBERS:
        for name, body in _asked_with(value):
            answer = campaign.send(name, Good(body=body))
            allowed = (400, 404, 422) if type(value) is int else (400,)
            assert answer.status_code in allowed, (body, answer.content[:300])
    assert rows() == before


def _asked_with(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    line = {"sku": "NUT", "title": "x", "unit_price_fen": 100, "qty": 1}
    quote = {"user_id": "u", "lines": [line]}
    item = {"line_no": 1, "type": 1, "qty": 1, "reason_code": "quality"}
    claim = {"order_no": "1", "user_id": "u", "items": [item]}
    yield "quote_create", {**quote, "lines": [{**line, "qty": value}]}
    yield "quote_create", {**quote, "points": {"used": value, "worth_fen": 1}}
    yield "quote_create", {**quote, "points": {"used": 1, "worth_fen": value}}
    for name in ("line_no", "type", "qty"):
        yield "apply_after_sales", {**claim, "items": [{**item, name: value}]}
    if not _fits_fen(value):
        for name in ("freight_fen", "subsidy_fen"):
            yield "quote_create", {**quote, name: value}


def _fits_fen(value: Any) -> bool:
    return type(value) is int and 0 <= value <= 10**12


SPLITTING = ["abc\r\nSet-Cookie: stolen=1", "abc\nX: y", "\r\n\r\n<script>", "x" * 100, "é" * 10, "a b c d e f"]


def test_headers_that_would_write_headers(campaign: Campaign, issued: KeyIssued) -> None:
    """Header values go straight into WSGI here, past the checks of `requests` and of a web server."""
    for value in SPLITTING:
        request = requests.Request("GET", f"{BASE}/api/v1/coupons", auth=Signed(issued.key_id, issued.secret)).prepare()
        for name in ("X-Request-ID", "Idempotency-Key", "Accept-Language", "Referer", "User-Agent"):
            dict.__setitem__(request.headers._store, name.lower(), (name, value))
        answer = InProcess().send(request)
        assert answer.status_code == 200
        assert not any("stolen" in text or "\n" in text for pair in answer.headers.items() for text in pair)
        assert answer.headers["X-Request-ID"] != value
        posted = requests.Request(
            "POST", f"{BASE}/api/v1/coupons/issue", data=b"{}", headers={"Content-Type": JSON}
        ).prepare()
        Signed(issued.key_id, issued.secret)(posted)
        dict.__setitem__(posted.headers._store, "idempotency-key", ("Idempotency-Key", value))
        assert InProcess().send(posted).status_code == 400


LENGTHS = ["", "abc", "-1", "1e3", "²", "9" * 30, "0", "3"]


def test_lengths_that_lie(campaign: Campaign, issued: KeyIssued) -> None:
    for length in LENGTHS:
        request = requests.Request(
            "POST",
            f"{BASE}/api/v1/coupons/issue",
            data=dumped({"user_id": "user-1", "template_code": "off50"}),
            headers={"Content-Type": JSON, "Idempotency-Key": "lies"},
            auth=Signed(issued.key_id, issued.secret),
        ).prepare()
        before = rows()
        answer = Lying(length).send(request)
        assert answer.status_code in (400, 401, 413), answer.content
        assert rows() == before


class Lying(InProcess):
    """Announces another length than it sends."""

    def __init__(self, length: str) -> None:
        super().__init__()
        self.length = length

    def _answer(self, request: requests.PreparedRequest, environ: dict[str, Any]) -> requests.Response:
        body = environ["wsgi.input"].getvalue()
        return super()._answer(request, {**environ, "CONTENT_LENGTH": self.length, "wsgi.input": io.BytesIO(body)})


WITH_NUL = ["/api/v1/wallets/a%00b", "/api/v1/orders/status/%00", "/api/v1/coupons?x=%00", "/admin/?q=%00"]


def test_nul_in_the_address(campaign: Campaign, issued: KeyIssued) -> None:
    for path in WITH_NUL:
        request = requests.Request("GET", BASE + path, auth=Signed(issued.key_id, issued.secret)).prepare()
        answer = InProcess().send(request)
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_INPUT")


def test_users_and_cursors_in_the_address(campaign: Campaign) -> None:
    values = ["\x00", "%00", "\ud800".encode("utf-8", "surrogatepass"), "x" * 5000, "' OR 1=1 --", "é", "../.."]
    for name, query in (
        ("coupon_list", "user_id"),
        ("coupon_list", "cursor"),
        ("coupon_list", "status"),
        ("order_list", "user_id"),
        ("order_list", "cursor"),
        ("list_after_sales", "user_id"),
        ("list_after_sales", "order_no"),
        ("list_after_sales", "cursor"),
        ("list_points", "user_id"),
        ("list_points", "cursor"),
    ):
        for value in values:
            answer = campaign.send(name, Good(query={"user_id": "u", query: value}))
            assert answer.status_code in (200, 400, 404), (name, query, value, answer.content[:300])


def test_cursors_that_no_page_gave(campaign: Campaign) -> None:
    """On every list: what is in the cursor makes no sense for its column, and is 404 or a page."""
    lists = [
        name
        for name, operation in campaign.operations.items()
        if "cursor" in {one["name"] for one in operation.definition.raw.get("parameters", [])}
    ]
    assert len(lists) == 4
    for name in lists:
        for cursor in CURSORS:
            answer = campaign.send(name, Good(query={"user_id": "user-1", "cursor": cursor}))
            assert answer.status_code in (200, 404), (name, b64decode(cursor), answer.content[:300])


def test_other_methods(campaign: Campaign, issued: KeyIssued) -> None:
    """What an address does not do is 405 with a problem document, for whoever may come in; nothing is written."""
    before = rows()
    for operation in campaign.operations.values():
        path = operation.path
        for name in ("coupon_id", "quote_id", "case_id", "evidence_id", "account_id"):
            path = path.replace("{" + name + "}", SOME)
        path = path.replace("{channel}", "wechat").replace("{", "").replace("}", "")
        documented = {method.upper() for method in campaign.document["paths"][operation.path]}
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "TRACE", "QUERY"} - documented:
            request = requests.Request(method, BASE + path, auth=Signed(issued.key_id, issued.secret)).prepare()
            answer = InProcess().send(request)
            expected = {405} if not (method == "HEAD" and "GET" in documented) else {200, 400, 404}
            assert answer.status_code in expected, (method, path, answer.content[:200])
    assert rows() == before


ACCEPTED = ["text/html", "application/xml;q=0.9", "nonsense", "", "*/*;q=0"]


def test_answers_are_json_whatever_is_accepted(campaign: Campaign) -> None:
    """A 406 would only hide the answer; and a channel's callback is taken with any header."""
    for accept in ACCEPTED:
        good = campaign.world.payment_notify()
        good.headers["Accept"] = accept
        assert campaign.send("payment_notify", good).status_code == 204
        listed = campaign.send("coupon_list", Good(query={"format": "html"}), headers={"Accept": accept})
        assert (listed.status_code, listed.headers["content-type"]) == (200, ["application/json"])
