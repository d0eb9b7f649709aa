"""The coupons API over HTTP: every endpoint, signed, strict, idempotent, always inside the client's merchant."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

import pytest
import time_machine
from django.http import HttpResponse
from django.test import Client

from coupons.models import CouponOperation, CouponRefusal, UserCoupon
from kernel.numbers import uuid7
from merchants import credentials, signing
from merchants.commands.create_client import KeyIssued
from merchants.models import Merchant
from tests.coupons.factories import Shop, decide, make_shop, void
from tests.merchants.factories import a_client


class Backend:
    """A merchant's backend: signs and sends."""

    def __init__(self, issued: KeyIssued, now) -> None:
        self.issued, self.now, self.numbers, self.http = issued, now, count(1), Client()

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        raw: bytes = b"",
        kind: str = "application/json",
        secret: str = "",
    ) -> HttpResponse:
        target = f"/api/v1/coupons{path}"
        content = raw or (b"" if body is None else json.dumps(body).encode())
        number = next(self.numbers)
        headers = {
            "Authorization": signing.header(
                key_id=self.issued.key_id,
                secret=secret or self.issued.secret,
                method=method,
                target=target,
                timestamp=int(self.now.timestamp()),
                nonce=f"nonce-{id(self)}-{number:08d}",
                body=content,
            )
        }
        if method == "POST" and key != "":
            headers["Idempotency-Key"] = key or f"request-{number}"
        return self.http.generic(method, target, content, content_type=kind, headers=headers)

    def post(self, path: str, body: Any, **values: Any) -> HttpResponse:
        return self.send("POST", path, body, **values)

    def get(self, path: str) -> HttpResponse:
        return self.send("GET", path)


@pytest.fixture(autouse=True)
def _clock(now) -> Iterator[None]:
    credentials._KNOWN.clear()
    with time_machine.travel(now, tick=False):
        yield


@pytest.fixture
def backend(shop: Shop, now) -> Backend:
    return Backend(a_client(merchant=Merchant.objects.get(pk=shop.merchant_id), now=now), now)


@pytest.fixture
def stranger(now, shop: Shop) -> Backend:
    other = make_shop(now)
    return Backend(a_client(merchant=Merchant.objects.get(pk=other.merchant_id), now=now), now)


def refused(answer: HttpResponse, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.content
    assert answer["Content-Type"].startswith("application/problem+json")
    body = json.loads(answer.content)
    assert body["code"] == code, body
    return body


def accepted(answer: HttpResponse, status: int = 201) -> dict[str, Any]:
    assert answer.status_code == status, answer.content
    return json.loads(answer.content)


def issue(backend: Backend, user: str = "user-1") -> str:
    return accepted(backend.post("/issue", {"user_id": user, "template_code": "off50"}))["coupon_id"]


def lock(backend: Backend, coupon_id: str, order: str = "A", **values: Any) -> dict[str, Any]:
    return accepted(backend.post(f"/{coupon_id}/lock", {"user_id": "user-1", "order_no": order, **values}))


def proof(lease: dict[str, Any]) -> dict[str, Any]:
    return {
        "order_no": lease["order_no"],
        "lock_token": lease["lock_token"],
        "expected_version": lease["state_version"],
    }


def test_from_issue_to_redeem(backend: Backend, now) -> None:
    coupon_id = issue(backend)
    lease = lock(backend, coupon_id)
    assert (lease["status"], lease["state_version"]) == ("LOCKED", 2)
    assert lease["expires_at"] == (now + timedelta(seconds=300)).isoformat()
    until = (now + timedelta(minutes=30)).isoformat()

    renewed = accepted(backend.post(f"/{coupon_id}/renew", {**proof(lease), "expires_at": until}))
    done = accepted(
        backend.post(f"/{coupon_id}/redeem", {**proof(lease), "expected_version": 3, "payment_no": "pay-1"})
    )

    assert (renewed["state_version"], renewed["expires_at"]) == (3, until)
    assert (done["status"], done["state_version"], done["payment_no"]) == ("USED", 4, "pay-1")
    found = accepted(backend.get(f"/{coupon_id}"), 200)
    assert (found["status"], found["state_version"]) == ("USED", 4)
    assert found["redemptions"][0]["redemption_id"] == done["redemption_id"]
    assert lease["lock_token"] not in json.dumps(found)
    actors = set(CouponOperation.objects.values_list("actor", flat=True))
    assert actors == {f"client:{backend.issued.key_id}"}


def test_release_return_and_void(backend: Backend, shop: Shop) -> None:
    coupon_id = issue(backend)
    first = lock(backend, coupon_id)
    released = accepted(backend.post(f"/{coupon_id}/release", {**proof(first), "reason": "closed"}))
    assert (released["status"], released["state_version"]) == ("AVAILABLE", 3)
    second = lock(backend, coupon_id, "B")
    done = accepted(backend.post(f"/{coupon_id}/redeem", {**proof(second), "payment_no": "p"}))
    decided = decide(shop, UUID(done["redemption_id"]))
    listed = accepted(backend.get(f"/{coupon_id}"), 200)["return_decisions"]
    assert [(row["decision_id"], row["decision"]) for row in listed] == [(str(decided.decision_id), "RETURN")]

    body = {"redemption_id": done["redemption_id"], "decision_id": str(decided.decision_id)}
    returned = accepted(backend.post(f"/{coupon_id}/return", body))
    voided = accepted(backend.post(f"/{coupon_id}/void", {"reason": "leaked", "expected_version": 6}))

    assert (returned["status"], returned["state_version"]) == ("AVAILABLE", 6)
    assert (voided["status"], voided["state_version"]) == ("VOID", 7)


def test_a_replay_is_the_first_answer_byte_for_byte(backend: Backend) -> None:
    coupon_id = issue(backend)
    body = {"user_id": "user-1", "order_no": "A"}
    first = backend.post(f"/{coupon_id}/lock", body, key="checkout-1")

    again = backend.post(f"/{coupon_id}/lock", body, key="checkout-1")
    newer = backend.post(f"/{coupon_id}/lock", {**body, "expected_version": 9}, key="checkout-1")
    other = backend.post(f"/{coupon_id}/lock", {**body, "order_no": "B"}, key="checkout-1")

    assert (again.status_code, again.content) == (201, first.content)
    assert again["Idempotency-Replayed"] == "true"
    assert not first.has_header("Idempotency-Replayed")
    assert newer.content == first.content, "the expected version is no part of what a key stands for"
    refused(other, 422, "IDEMPOTENCY_KEY_REUSED")


def test_replays_of_every_command(backend: Backend, shop: Shop, now) -> None:
    def twice(path: str, body: dict[str, Any]) -> dict[str, Any]:
        key = f"twice-{path}"
        first, again = (backend.post(path, body, key=key) for _ in range(2))
        assert (first.status_code, first.content) == (again.status_code, again.content)
        assert again["Idempotency-Replayed"] == "true"
        return accepted(first)

    coupon_id = twice("/issue", {"user_id": "user-1", "template_code": "off50"})["coupon_id"]
    lease = twice(f"/{coupon_id}/lock", {"user_id": "user-1", "order_no": "A"})
    until = (now + timedelta(hours=1)).isoformat()
    twice(f"/{coupon_id}/renew", {**proof(lease), "expires_at": until})
    done = twice(f"/{coupon_id}/redeem", {**proof(lease), "expected_version": 3, "payment_no": "p"})
    decided = decide(shop, UUID(done["redemption_id"]))
    ids = {"redemption_id": done["redemption_id"], "decision_id": str(decided.decision_id)}
    twice(f"/{coupon_id}/return", ids)
    twice(f"/{coupon_id}/void", {"reason": "x", "expected_version": 5})
    other = issue(backend)
    twice(f"/{other}/release", proof(lock(backend, other, "B")))


def test_refusals_say_what_may_be_done_next(backend: Backend, shop: Shop) -> None:
    coupon_id = issue(backend)
    lease = lock(backend, coupon_id)
    wrong = {**proof(lease), "payment_no": "p"}

    taken = refused(
        backend.post(f"/{coupon_id}/lock", {"user_id": "user-1", "order_no": "B"}), 409, "ILLEGAL_TRANSITION"
    )
    token = refused(backend.post(f"/{coupon_id}/redeem", {**wrong, "lock_token": "x" * 64}), 409, "TOKEN_MISMATCH")
    version = refused(backend.post(f"/{coupon_id}/redeem", {**wrong, "expected_version": 7}), 409, "VERSION_CONFLICT")
    owner = refused(backend.post(f"/{coupon_id}/lock", {"user_id": "user-2", "order_no": "B"}), 409, "NOT_OWNER")

    assert "choose_another_coupon" in taken["data"]["next_actions"]
    assert token["data"]["next_actions"][:2] == ["read_coupon", "coordinate_order"]
    assert version["data"] | {"next_actions": []} == {
        "command": "redeem",
        "coupon_id": coupon_id,
        "status": "LOCKED",
        "state_version": 2,
        "expected_version": 7,
        "next_actions": [],
    }
    assert "redeem" in version["data"]["next_actions"]
    assert owner["data"]["next_actions"] == ["choose_another_coupon"]
    assert CouponRefusal.objects.count() == 4


def test_limits_are_business_refusals(now, transactional_db) -> None:
    shop = make_shop(now, per_user_limit=1)
    backend = Backend(a_client(merchant=Merchant.objects.get(pk=shop.merchant_id), now=now), now)
    issue(backend)

    refused(backend.post("/issue", {"user_id": "user-1", "template_code": "off50"}), 422, "LIMIT_REACHED")
    refused(backend.post("/issue", {"user_id": "user-1", "template_code": "nope"}), 422, "NOT_ISSUABLE")


def test_another_merchants_coupon_is_not_found_anywhere(backend: Backend, stranger: Backend, now) -> None:
    coupon_id = issue(backend)
    lease = lock(backend, coupon_id)
    before = UserCoupon.objects.filter(pk=coupon_id).values().get()
    bodies = {
        "lock": {"user_id": "user-1", "order_no": "A"},
        "renew": {**proof(lease), "expires_at": (now + timedelta(hours=1)).isoformat()},
        "redeem": {**proof(lease), "payment_no": "p"},
        "release": proof(lease),
        "return": {"redemption_id": str(uuid7()), "decision_id": str(uuid7())},
        "void": {"reason": "x", "expected_version": 2},
    }

    for command, body in bodies.items():
        refused(stranger.post(f"/{coupon_id}/{command}", body), 404, "NOT_FOUND")
    refused(stranger.get(f"/{coupon_id}"), 404, "NOT_FOUND")
    refused(stranger.get(f"/{coupon_id}/timeline"), 404, "NOT_FOUND")
    assert accepted(stranger.get(""), 200)["results"] == []

    assert UserCoupon.objects.filter(pk=coupon_id).values().get() == before


@pytest.mark.parametrize(
    ("command", "change"),
    [
        ("lock", {"lock_tokn": "x"}),
        ("lock", {"user_id": ""}),
        ("lock", {"user_id": None}),
        ("lock", {"user_id": 7}),
        ("lock", {"order_no": "x" * 65}),
        ("lock", {"lease_seconds": 0}),
        ("lock", {"lease_seconds": "300"}),
        ("lock", {"lease_seconds": True}),
        ("lock", {"lease_seconds": 10**9}),
        ("lock", {"expected_version": 1.5}),
        ("redeem", {"expected_version": None}),
        ("redeem", {"lock_token": ""}),
        ("redeem", {"lock_token": "x" * 65}),
        ("redeem", {"payment_no": ["p"]}),
        ("renew", {"expires_at": "2026-12-01T00:00:00"}),
        ("renew", {"expires_at": 1790000000}),
        ("renew", {"expires_at": "soon"}),
        ("release", {"reason": "x" * 201}),
        ("void", {"reason": ""}),
        ("return", {"decision_id": "not-a-uuid"}),
    ],
)
def test_what_is_not_exactly_right_is_refused(backend: Backend, now, command: str, change: dict[str, Any]) -> None:
    lease = {"order_no": "A", "lock_token": "x" * 64, "expected_version": 2}
    right = {
        "lock": {"user_id": "user-1", "order_no": "A"},
        "renew": {**lease, "expires_at": (now + timedelta(hours=1)).isoformat()},
        "redeem": {**lease, "payment_no": "p"},
        "release": lease,
        "void": {"reason": "x", "expected_version": 1},
        "return": {"redemption_id": str(uuid7()), "decision_id": str(uuid7())},
    }[command]

    answer = backend.post(f"/{uuid7()}/{command}", {**right, **change})

    assert answer.status_code == 400, answer.content
    assert next(iter(change)) in answer.content.decode()
    assert backend.post(f"/{uuid7()}/{command}", right).status_code == 404, "the rest of the body is right"


@pytest.mark.parametrize("raw", [b"[]", b"{", b'"x"', b"null", b"\xff\xfe", b'{"user_id": "a", "user_id": '])
def test_what_is_no_json_object_is_refused(backend: Backend, raw: bytes) -> None:
    for command in ("lock", "redeem"):
        assert backend.post(f"/{uuid7()}/{command}", None, raw=raw).status_code == 400


def test_a_key_is_needed(backend: Backend) -> None:
    for key in ("", "x" * 129, "with blank"):
        answer = backend.post("/issue", {"user_id": "user-1", "template_code": "off50"}, key=key)
        assert answer.status_code == 400, key
    assert UserCoupon.objects.count() == 0


def test_the_scope_is_needed(shop: Shop, now) -> None:
    merchant = Merchant.objects.get(pk=shop.merchant_id)
    reader = Backend(a_client(merchant=merchant, now=now, name="reader", scopes=["read"]), now)
    mover = Backend(a_client(merchant=merchant, now=now, name="mover", scopes=["coupons"]), now)
    coupon_id = issue(mover)

    assert reader.get(f"/{coupon_id}").status_code == 200
    refused(reader.post(f"/{coupon_id}/lock", {"user_id": "user-1", "order_no": "A"}), 403, "SCOPE_MISSING")
    refused(reader.post("/issue", {"user_id": "user-1", "template_code": "off50"}), 403, "SCOPE_MISSING")


def test_unsigned(backend: Backend) -> None:
    answer = backend.http.post(f"/api/v1/coupons/{uuid7()}/lock", {}, content_type="application/json")

    refused(answer, 401, "NOT_AUTHENTICATED")


def test_lists_are_filtered_and_paged_by_key(backend: Backend, django_assert_num_queries: Callable) -> None:
    mine = [issue(backend) for _ in range(5)]
    issue(backend, "user-2")
    lock(backend, mine[0])

    page = accepted(backend.get("?user_id=user-1&limit=2"), 200)
    with django_assert_num_queries(1):
        accepted(backend.get("?user_id=user-1&limit=5"), 200)

    found = [row["coupon_id"] for row in page["results"]]
    while page["next"]:
        page = accepted(backend.get(page["next"].split("/api/v1/coupons", 1)[1]), 200)
        found += [row["coupon_id"] for row in page["results"]]
    assert len(found) == 5
    assert set(found) == set(mine), "every coupon once, although all were issued in one instant"
    locked = accepted(backend.get("?user_id=user-1&status=LOCKED"), 200)["results"]
    assert [row["coupon_id"] for row in locked] == [mine[0]]
    assert len(accepted(backend.get(""), 200)["results"]) == 6
    assert backend.get("?status=LOST").status_code == 400
    assert backend.get("?user_id=" + "x" * 65).status_code == 400


def test_the_timeline_with_refused_commands(backend: Backend, shop: Shop) -> None:
    coupon_id = issue(backend)
    lease = lock(backend, coupon_id)
    backend.post(f"/{coupon_id}/redeem", {**proof(lease), "lock_token": "x" * 64, "payment_no": "p"})
    accepted(backend.post(f"/{coupon_id}/release", proof(lease)))
    void(shop, UUID(coupon_id), expected_version=3)

    timeline = accepted(backend.get(f"/{coupon_id}/timeline"), 200)

    assert (timeline["status"], timeline["state_version"], timeline["gaps"]) == ("VOID", 4, [])
    operations = [entry for entry in timeline["entries"] if entry["kind"] == "operation"]
    assert [(entry["title"], entry["version"]) for entry in operations] == [
        ("ISSUE", 1),
        ("LOCK", 2),
        ("RELEASE", 3),
        ("VOID", 4),
    ]
    (no,) = [entry for entry in timeline["entries"] if entry["kind"] == "refusal"]
    assert (no["title"], no["detail"]["code"], no["detail"]["token_matched"]) == ("REDEEM", "TOKEN_MISMATCH", False)
    assert lease["lock_token"] not in json.dumps(timeline)


class TestBothWays:
    """The front of the hot commands against the view behind it: same status, same members, same headers."""

    def ask(self, backend: Backend, command: str, coupon_id: str, body: Any, *, slowly: bool, **values: Any) -> Any:
        """`slowly`: with a media type parameter that the front does not know, so that the view answers."""
        kind = "application/json; q=1" if slowly else "application/json"
        answer = backend.send("POST", f"/{coupon_id}/{command}", body, kind=kind, **values)
        content = json.loads(answer.content)
        for varying in ("request_id", "lock_id", "lock_token", "coupon_id", "redemption_id"):
            content.pop(varying, None)
            content.get("data", {}).pop(varying, None)
        headers = {
            name: value
            for name, value in answer.headers.items()
            if name
            not in ("X-Request-ID", "Content-Length", "Vary", "Allow", "Content-Language", "Cross-Origin-Opener-Policy")
        }
        return answer.status_code, content, headers

    def test_success_and_replay(self, backend: Backend, now) -> None:
        for command, extra in (
            ("lock", {}),
            ("lock", {"lease_seconds": 77, "expected_version": 1}),
            ("renew", {"expires_at": (now + timedelta(hours=1)).isoformat()}),
            ("renew", {"expires_at": "2026-12-24T10:00:00+08:00"}),
            ("redeem", {"payment_no": "p"}),
            ("release", {}),
            ("release", {"reason": "closed 关单"}),
        ):
            ways = []
            for slowly in (False, True):
                coupon_id = issue(backend)
                body: dict[str, Any] = {"user_id": "user-1", "order_no": "A"}
                if command != "lock":
                    body = proof(lock(backend, coupon_id))
                key = f"{command}-{coupon_id}"
                ways.append(
                    [
                        self.ask(backend, command, coupon_id, {**body, **extra}, slowly=slowly, key=key),
                        self.ask(backend, command, coupon_id, {**body, **extra}, slowly=not slowly, key=key),
                    ]
                )
            first, second = ways
            assert first == second
            assert first[0][0] == 201
            assert first[1][2]["Idempotency-Replayed"] == "true", "a key binds both ways"

    def test_refusals(self, backend: Backend, stranger: Backend, shop: Shop, now) -> None:
        held, used = issue(backend), issue(backend)
        lease, spent = lock(backend, held), lock(backend, used)
        accepted(backend.post(f"/{used}/redeem", {**proof(spent), "payment_no": "p"}))
        reader = Backend(
            a_client(merchant=Merchant.objects.get(pk=shop.merchant_id), now=now, name="reader", scopes=["read"]), now
        )
        tries = [
            (backend, "lock", held, {"user_id": "user-1", "order_no": "B"}, {}),
            (backend, "lock", held, {"user_id": "user-2", "order_no": "B"}, {}),
            (backend, "lock", used, {"user_id": "user-1", "order_no": "B"}, {}),
            (backend, "lock", str(uuid7()), {"user_id": "user-1", "order_no": "B"}, {}),
            (stranger, "lock", held, {"user_id": "user-1", "order_no": "B"}, {}),
            (backend, "redeem", held, {**proof(lease), "lock_token": "x", "payment_no": "p"}, {}),
            (backend, "redeem", held, {**proof(lease), "expected_version": 9, "payment_no": "p"}, {}),
            (backend, "release", used, proof(spent), {}),
            (backend, "renew", held, {**proof(lease), "expires_at": "2020-01-01T00:00:00Z"}, {}),
            (reader, "lock", held, {"user_id": "user-1", "order_no": "B"}, {}),
            (backend, "lock", held, {"user_id": "user-1", "order_no": "B"}, {"secret": "wrong"}),
        ]
        statuses = set()
        for who, command, coupon_id, body, values in tries:
            fast, slow = (self.ask(who, command, coupon_id, body, slowly=way, **values) for way in (False, True))
            assert fast == slow, (command, body)
            statuses.add(fast[0])
        assert statuses == {400, 401, 403, 404, 409}

    def test_the_front_is_in_use(self, backend: Backend, monkeypatch) -> None:
        from coupons.api import views

        monkeypatch.setattr(views.LockView, "post", None)

        assert lock(backend, issue(backend))["status"] == "LOCKED"
