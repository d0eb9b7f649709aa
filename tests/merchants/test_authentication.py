"""Signed requests: accepted once, in time, by the right key; refused otherwise, and each refusal typed."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import time_machine
from django.http import HttpResponse
from django.test import RequestFactory
from django.urls import path
from redis.exceptions import ConnectionError as RedisConnectionError
from rest_framework.response import Response
from rest_framework.views import APIView

from kernel import valkey
from kernel.http.problems import problem_response
from merchants import credentials, signing
from merchants.api import authentication
from merchants.api.authentication import authenticate
from merchants.commands.change_client import change_client
from merchants.commands.revoke_key import revoke_key
from merchants.commands.rotate_key import rotate_key
from merchants.commands.switch_merchant import switch_merchant
from tests.merchants.factories import a_client, a_merchant

pytestmark = pytest.mark.django_db(transaction=True)


class Echo(APIView):
    """A view of each kind of method under one scope."""

    scope = "orders"

    def get(self, request):
        return Response({"merchant": str(request.auth.merchant_id), "user": str(request.user)})

    def post(self, request):
        return Response({"got": request.data, "merchant": str(request.auth.merchant_id)}, status=201)


def hot(request):
    """A hand-written view."""
    try:
        auth = authenticate(request, scope="coupons")
    except authentication.Refusal as refusal:
        return problem_response(
            request, status=refusal.status, code=refusal.code, detail=str(refusal.message), **refusal.data
        )
    return HttpResponse(str(auth.merchant_id))


urlpatterns = [path("api/v1/echo", Echo.as_view()), path("api/v1/hot", hot)]


class Caller:
    """A backend of a merchant, with a clock of its own and nonces that do not repeat."""

    def __init__(self, client, issued, now):
        self.client, self.issued, self.now, self.count = client, issued, now, 0

    def header(self, method, target, body=b"", /, **changes):
        self.count += 1
        parts = {
            "key_id": self.issued.key_id,
            "secret": self.issued.secret,
            "method": method,
            "target": target,
            "timestamp": int(self.now.timestamp()),
            "nonce": f"nonce-{id(self)}-{self.count:08d}",
            "body": body,
        }
        return signing.header(**{**parts, **changes})

    def get(self, target="/api/v1/echo", /, **changes):
        return self.client.get(target, headers={"Authorization": self.header("GET", target, **changes)})

    def post(self, data, target="/api/v1/echo", /, **changes):
        raw = json.dumps(data, ensure_ascii=False).encode()
        header = self.header("POST", target, raw, **changes)
        return self.client.post(target, raw, content_type="application/json", headers={"Authorization": header})


@pytest.fixture(autouse=True)
def _views(settings):
    settings.ROOT_URLCONF = __name__
    credentials._KNOWN.clear()
    valkey.client().flushdb()


@pytest.fixture(autouse=True)
def clock(now):
    with time_machine.travel(now, tick=False) as traveller:
        yield traveller


@pytest.fixture
def merchant(now):
    return a_merchant(now=now)


@pytest.fixture
def caller(client, merchant, now):
    return Caller(client, a_client(merchant=merchant, now=now), now)


def refused(response, code, status=401):
    assert response.status_code == status, response.content
    assert response["Content-Type"].startswith("application/problem+json")
    body = response.json()
    assert body["code"] == code
    return body


def test_a_signed_request_acts_inside_its_merchant(caller, merchant):
    assert caller.get().json()["merchant"] == str(merchant.pk)
    assert caller.post({"a": "中"}).json() == {"got": {"a": "中"}, "merchant": str(merchant.pk)}


def test_the_query_is_signed_as_sent(caller):
    assert caller.get("/api/v1/echo?user_id=%E5%BC%A0&x=1").status_code == 200


def test_hand_written_views_use_the_same_door(caller, merchant):
    assert caller.get("/api/v1/hot").content.decode() == str(merchant.pk)
    refused(caller.get("/api/v1/hot", secret="x" * 43), "SIGNATURE_INVALID")


def test_without_a_signature(client):
    response = client.get("/api/v1/echo")

    refused(response, "NOT_AUTHENTICATED")
    assert response["WWW-Authenticate"] == "QUITS-HMAC-SHA256"


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "PUT"},
        {"target": "/api/v1/echo?x=2"},
        {"target": "/api/v1/other"},
        {"body": b'{"a": 2}'},
        {"secret": "s" * 43},
        {"key_id": "qk_unknown"},
    ],
)
def test_anything_altered_breaks_the_signature(caller, changes):
    refused(caller.post({"a": 1}, **changes), "SIGNATURE_INVALID")


def test_altered_timestamp_or_nonce_breaks_the_signature(caller, client, now):
    for part, other in (("timestamp", str(int(now.timestamp()) + 1)), ("nonce", "m" * 20)):
        header = caller.header("GET", "/api/v1/echo")
        start = header.index(f'{part}="') + len(part) + 2
        altered = header[:start] + other + header[header.index('"', start) :]
        refused(client.get("/api/v1/echo", headers={"Authorization": altered}), "SIGNATURE_INVALID")


@pytest.mark.parametrize(("seconds", "accepted"), [(-300, True), (300, True), (-301, False), (301, False)])
def test_the_clock_may_be_300_seconds_off(caller, now, seconds, accepted):
    response = caller.get(timestamp=int(now.timestamp()) + seconds)

    if accepted:
        assert response.status_code == 200
    else:
        assert refused(response, "TIMESTAMP_OUT_OF_RANGE")["data"] == {"server_time": int(now.timestamp())}


def test_a_nonce_counts_once(caller):
    assert caller.get(nonce="n" * 24).status_code == 200
    refused(caller.get(nonce="n" * 24), "NONCE_REPLAYED")


def test_a_nonce_is_remembered_as_long_as_its_timestamp_could_be_used(caller):
    caller.get(nonce="n" * 24)

    (key,) = valkey.client().keys("quits:nonce:*")
    assert 595 <= valkey.client().ttl(key) <= 600


def test_the_same_nonce_of_another_key_is_another_nonce(caller, client, merchant, now):
    other = Caller(client, a_client(merchant=merchant, name="second", now=now), now)

    assert caller.get(nonce="n" * 24).status_code == 200
    assert other.get(nonce="n" * 24).status_code == 200


def test_of_twenty_at_once_with_one_nonce_one_gets_in(caller):
    header = caller.header("GET", "/api/v1/hot", nonce="n" * 24)

    def once(_):
        request = RequestFactory().get("/api/v1/hot", headers={"Authorization": header})
        return hot(request).status_code

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(once, range(20)))

    assert sorted(answers) == [200] + [401] * 19


def test_a_refused_signature_uses_up_no_nonce_and_no_rate(caller):
    refused(caller.get(nonce="n" * 24, secret="x" * 43), "SIGNATURE_INVALID")

    assert valkey.client().keys("quits:nonce:*") == []
    assert valkey.client().keys("quits:rate:*") == []


def test_scopes(client, merchant, now):
    reader = Caller(client, a_client(merchant=merchant, scopes=["read"], now=now), now)

    assert reader.get().status_code == 200
    assert refused(reader.post({}), "SCOPE_MISSING", 403)["data"] == {"scope": "orders"}
    refused(reader.get("/api/v1/hot"), "SCOPE_MISSING", 403)


def test_two_merchants_do_not_meet(client, caller, merchant, now):
    other = a_merchant(code="nut-shop", name="坚果铺", now=now)
    stranger = Caller(client, a_client(merchant=other, now=now), now)

    assert stranger.get().json()["merchant"] == str(other.pk) != str(merchant.pk)
    refused(caller.get(secret=stranger.issued.secret), "SIGNATURE_INVALID")


def test_rotation_overlaps(client, caller, now, clock):
    fresh = Caller(client, rotate_key(client_id=caller.issued.client_id, overlap_seconds=60, now=now), now)

    assert caller.get().status_code == 200
    assert fresh.get().status_code == 200
    later = now + timedelta(seconds=60)
    clock.move_to(later)
    caller.now = fresh.now = later
    refused(caller.get(), "CREDENTIAL_DISABLED")
    assert fresh.get().status_code == 200


@pytest.mark.parametrize("how", ["revoke", "client", "merchant", "rotate"])
def test_what_is_ended_is_refused_at_once(caller, merchant, now, how):
    assert caller.get().status_code == 200, "known from here on"

    if how == "revoke":
        revoke_key(key_id=caller.issued.key_id, now=now)
    elif how == "client":
        change_client(client_id=caller.issued.client_id, is_active=False, now=now)
    elif how == "merchant":
        switch_merchant(merchant_id=merchant.pk, is_active=False, now=now)
    else:
        rotate_key(client_id=caller.issued.client_id, overlap_seconds=0, now=now)

    refused(caller.get(), "CREDENTIAL_DISABLED")


def test_another_process_hears_of_a_revocation_with_its_next_request(caller, now):
    caller.get()
    remembered = dict(credentials._KNOWN)
    revoke_key(key_id=caller.issued.key_id, now=now)
    credentials._KNOWN.update(remembered)  # as the memory of another process still has it

    refused(caller.get(), "CREDENTIAL_DISABLED")


@pytest.mark.parametrize("what", ["client", "merchant"])
def test_another_process_hears_at_once_of_what_is_switched_on_again(caller, merchant, now, what):
    def switch(is_active):
        if what == "client":
            change_client(client_id=caller.issued.client_id, is_active=is_active, now=now)
        else:
            switch_merchant(merchant_id=merchant.pk, is_active=is_active, now=now)

    switch(False)
    refused(caller.get(), "CREDENTIAL_DISABLED")
    remembered = dict(credentials._KNOWN)
    assert remembered
    switch(True)
    credentials._KNOWN.update(remembered)  # as the memory of another process still has it

    assert caller.get().status_code == 200


def test_a_narrowed_scope_holds_at_once(caller, now):
    caller.get()

    change_client(client_id=caller.issued.client_id, scopes=["read"], now=now)

    refused(caller.post({}), "SCOPE_MISSING", 403)


def test_a_known_key_costs_no_query(caller, django_assert_num_queries):
    caller.get()

    with django_assert_num_queries(0):
        assert caller.get().status_code == 200


def test_memory_ends_even_when_valkey_forgets(caller, now, clock):
    caller.get()
    remembered = dict(credentials._KNOWN)
    revoke_key(key_id=caller.issued.key_id, now=now)
    valkey.client().flushdb()
    credentials._KNOWN.update(remembered)
    assert caller.get().status_code == 200, "the one word was lost: the old memory still holds"

    caller.now = now + timedelta(seconds=credentials.SECONDS_KNOWN)
    clock.move_to(caller.now)

    refused(caller.get(), "CREDENTIAL_DISABLED")


def test_throttling_says_how_long_to_wait(client, merchant, now, clock):
    slow = Caller(client, a_client(merchant=merchant, requests_per_minute=60, now=now), now)
    answers = [slow.get() for _ in range(authentication.BURST_SECONDS + 1)]

    assert [answer.status_code for answer in answers] == [200] * authentication.BURST_SECONDS + [429]
    assert refused(answers[-1], "THROTTLED", 429)["data"] == {"retry_after_seconds": 1}
    assert answers[-1]["Retry-After"] == "1"

    slow.now = now + timedelta(seconds=1)
    clock.move_to(slow.now)
    assert slow.get().status_code == 200
    assert slow.get().status_code == 429


def test_a_throttled_nonce_may_be_used_later(client, merchant, now, clock):
    slow = Caller(client, a_client(merchant=merchant, requests_per_minute=60, now=now), now)
    for _ in range(authentication.BURST_SECONDS):
        slow.get()
    refused(slow.get(nonce="n" * 24), "THROTTLED", 429)

    clock.move_to(now + timedelta(seconds=2))
    assert slow.get(nonce="n" * 24).status_code == 200


def test_a_client_does_not_use_up_anothers_rate(client, caller, merchant, now):
    slow = Caller(client, a_client(merchant=merchant, name="slow", requests_per_minute=1, now=now), now)

    assert [slow.get().status_code for _ in range(2)] == [200, 429]
    assert caller.get().status_code == 200


def test_a_body_over_one_mebibyte_is_refused_before_it_is_read(caller):
    refused(caller.post({"a": "x" * authentication.BODY_LIMIT}), "BODY_TOO_LARGE", 413)


def test_without_valkey_nothing_is_accepted(caller, monkeypatch):
    caller.get()
    caller.client.raise_request_exception = False

    def away(*_):
        raise RedisConnectionError("gone")

    # The socket itself is cut: the client object stays the real one.
    monkeypatch.setattr(valkey.client().connection_pool, "get_connection", away)
    response = caller.get()

    refused(response, "SERVICE_AWAY", 503)
    assert response["Retry-After"] == "1"


def test_the_secret_is_stored_encrypted_only(caller):
    from django.db import connection

    from merchants.models import ApiKey

    key = ApiKey.objects.get(key_id=caller.issued.key_id)
    assert caller.issued.secret not in key.secret_encrypted
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_jsonb(k)::text FROM api_key k")
        assert all(caller.issued.secret not in row for (row,) in cursor.fetchall())
    assert caller.issued.secret not in repr(caller.issued)
