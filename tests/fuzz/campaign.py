"""The fuzz: for every operation of our OpenAPI document, good requests, spoiled ones, ones that Schemathesis derives
from the schema (fitting and not fitting), and ones that are wrongly signed."""

from __future__ import annotations

import base64
import re
from collections import deque
from contextlib import suppress
from functools import cache
from itertools import count
from random import Random
from typing import Any

import requests
import schemathesis
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from requests.exceptions import InvalidHeader, InvalidURL
from schemathesis import Case, GenerationMode, Response
from schemathesis.schemas import APIOperation

from kernel import clock
from merchants.commands.create_client import KeyIssued
from tests.fuzz.hostile import JSON, VALUES, dumped, quoted, spoiled
from tests.fuzz.wire import BASE, InProcess, Signed, Tally, Unsigned
from tests.fuzz.world import Good

_keys = count(1)
NAMES = re.compile(r"{(\w+)}")
UNSENDABLE = (InvalidHeader, InvalidURL, UnicodeError, ValueError)
"""What `requests` refuses to put on a wire is not a request."""


@cache
def document() -> tuple[dict[str, Any], dict[str, APIOperation]]:
    """Our OpenAPI document, and its operations by their ids."""
    made = SchemaGenerator().get_schema(request=None, public=True)
    found = [result.ok() for result in schemathesis.openapi.from_dict(made).get_all_operations()]
    return made, {each.definition.raw["operationId"]: each for each in found}


class Campaign:
    """`run` sends about `wanted` requests, repeatably by `number`."""

    def __init__(self, *, issued: KeyIssued, reader: KeyIssued, wanted: int, number: int) -> None:
        self.issued, self.reader, self.wanted, self.number = issued, reader, wanted, number
        self.chance = Random(number)
        self.tally = Tally()
        self.session = requests.Session()
        self.session.mount(BASE, InProcess())
        self.document, self.operations = document()
        self.world: Any = None
        self.unsendable = 0

    # -- one request -------------------------------------------------------------------------------------------

    def signed(self) -> Signed:
        return Signed(self.issued.key_id, self.issued.secret)

    def needs_key(self, operation: APIOperation) -> bool:
        return bool(operation.definition.raw.get("security"))

    def send(
        self, operation_id: str, good: Good, *, auth: Any = None, headers: dict[str, str] | None = None
    ) -> Response:
        """A hand-made request, counted and checked."""
        operation = self.operations[operation_id]
        path = operation.path
        for name, value in good.path.items():
            path = path.replace("{" + name + "}", quoted(value))
        sent: dict[str, Any] = {"headers": {"Idempotency-Key": f"fuzz-{next(_keys)}", **good.headers}}
        kind = next(iter(operation.get_request_payload_content_types()), None) if operation.body else None
        if good.raw is not None:
            sent["data"] = good.raw
            sent["headers"].setdefault("Content-Type", JSON)
        elif kind == "multipart/form-data":
            sent |= _multipart(good.body)
        elif operation.method != "get":
            sent["data"] = dumped(good.body)
            sent["headers"]["Content-Type"] = JSON
        sent["headers"] |= headers or {}
        if good.query:
            sent["params"] = good.query
        if self.needs_key(operation):
            sent["auth"] = auth or self.signed()
        request = requests.Request(operation.method.upper(), BASE + path, **sent)
        answer = Response.from_any(self.session.send(self.session.prepare_request(request)))
        self.tally.see(operation.Case(path_parameters=dict.fromkeys(NAMES.findall(operation.path), "x")), answer)
        return answer

    def try_to_send(self, operation_id: str, good: Good, **more: Any) -> None:
        try:
            self.send(operation_id, good, **more)
        except UNSENDABLE:
            self.unsendable += 1

    # -- all of them -------------------------------------------------------------------------------------------

    def run(self) -> Tally:
        each = self.wanted // len(self.operations)
        for operation_id in self.operations:
            before = self.tally.requests
            fresh = self.by_hand(operation_id, each * 45 // 100)
            self.by_schema(operation_id, fresh, each * 30 // 100, GenerationMode.POSITIVE)
            self.by_schema(operation_id, fresh, each * 15 // 100, GenerationMode.NEGATIVE)
            while self.tally.requests - before < each:
                self.outside(operation_id, fresh)
        return self.tally

    def by_hand(self, operation_id: str, many: int) -> deque[Good]:
        """Good requests and spoiled copies of them; returns the last good ones."""
        kept: deque[Good] = deque(maxlen=4)
        for number in range(max(many, 2)):
            if number % 12 == 0:
                kept.append(self.world.good(operation_id))
                if number % 24 == 0:
                    self.world.do(operation_id, kept[-1])
            else:
                bad, headers = spoiled(self.chance.choice(list(kept)), self.chance)
                self.try_to_send(operation_id, bad, headers=headers)
        return kept

    def by_schema(self, operation_id: str, fresh: deque[Good], many: int, mode: GenerationMode) -> None:
        """What Schemathesis makes of the schema; most path parameters and some members are of objects that exist."""
        operation = self.operations[operation_id]
        if many == 0:
            return

        @seed(self.number)
        @settings(
            max_examples=many,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def attempt(case: Case) -> None:
            good = self.chance.choice(list(fresh))
            if self.chance.random() < 0.85:
                case.path_parameters = dict(good.path)
            if mode == GenerationMode.POSITIVE:
                self._mix(case, good)
            if self.chance.random() < 0.9:
                case.headers["Idempotency-Key"] = f"fuzz-{next(_keys)}"
            self._call(case)

        with suppress(Unsatisfiable):  # nothing does not fit a path that takes any text
            attempt()

    def _mix(self, case: Case, good: Good) -> None:
        if isinstance(case.body, dict) and isinstance(good.body, dict):
            for name, value in good.body.items():
                if self.chance.random() < 0.6:
                    case.body[name] = value
        for name, value in good.query.items():
            if self.chance.random() < 0.6:
                case.query[name] = value

    def _call(self, case: Case) -> None:
        auth = self.signed() if self.needs_key(case.operation) else None
        try:
            answer = case.call(base_url=BASE, session=self.session, **({"auth": auth} if auth else {}))
        except UNSENDABLE:
            self.unsendable += 1
            return
        self.tally.see(case, answer)

    def outside(self, operation_id: str, fresh: deque[Good]) -> None:
        """Everything right except who asks."""
        now = int(clock.now().timestamp())
        right = (self.issued.key_id, self.issued.secret)
        spoilt = [
            Signed(self.issued.key_id, "not the secret"),
            Signed("qk_nobody", self.issued.secret),
            Signed(self.reader.key_id, self.reader.secret),
            Signed(*right, timestamp=now - 301),
            Signed(*right, timestamp=now + 301),
            Signed(*right, timestamp=10**11),
            Signed(*right, nonce="used-before-0000000"),
            Signed(*right, body=b"another body"),
            Signed(*right, method="DELETE"),
            Signed(*right, target="/api/v1/orders"),
            Unsigned(),
            Unsigned("Bearer x"),
            Unsigned("QUITS-HMAC-SHA256 " + "x" * 9000),
            Unsigned('QUITS-HMAC-SHA256 key_id="' + "é" * 9 + '"'),
            Unsigned("Basic " + base64.b64encode(b"admin:admin").decode()),
        ]
        self.try_to_send(operation_id, self.chance.choice(list(fresh)), auth=self.chance.choice(spoilt))


def _multipart(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        return {"data": dumped(body)}
    fields = {name: _field(value) for name, value in body.items() if name != "file"}
    file = body.get("file", b"")
    return {"data": fields, "files": {"file": ("a.png", file if isinstance(file, bytes) else dumped(file))}}


def _field(value: Any) -> str:
    text = value if isinstance(value, str) else dumped(value).decode()
    return text.encode("utf-8", "replace").decode()


__all__ = ["VALUES", "Campaign"]
