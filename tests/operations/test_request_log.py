"""A request leaves one line in the log: under the id that its caller sees, with the address it came from."""

import logging
from typing import Any

import pytest
from django.core.signals import got_request_exception
from django.test import Client
from rest_framework.request import Request

from kernel.errors import ServiceAway
from kernel.http.problems import ProblemHandler

pytestmark = pytest.mark.django_db


def test_one_line_with_the_answers_id_and_the_callers_address(caplog, settings) -> None:
    settings.QUITS_PROXY_COUNT = 1
    caplog.set_level(logging.INFO, logger="django_structlog")

    answer = Client().get("/api/v1/coupons", headers={"X-Forwarded-For": "198.51.100.7, 203.0.113.9"})

    lines = [record.msg for record in caplog.records if record.name.startswith("django_structlog")]
    assert [line["event"] for line in lines] == ["request_finished"]
    assert lines[0]["request_id"] == answer.headers["X-Request-ID"]
    assert (lines[0]["code"], lines[0]["ip"]) == (401, "203.0.113.9")


def test_the_callers_own_id_is_kept(caplog) -> None:
    caplog.set_level(logging.INFO, logger="django_structlog")

    answer = Client().get("/api/v1/coupons", headers={"X-Request-ID": "caller-0001"})

    assert answer.headers["X-Request-ID"] == "caller-0001"
    assert {record.msg["request_id"] for record in caplog.records if isinstance(record.msg, dict)} == {"caller-0001"}


def test_an_answer_of_503_is_no_crash_and_a_crash_is_one(rf, monkeypatch) -> None:
    """A refusal may say 503 (the channel is undecided); the log spoke of 500, with a traceback, at each of them."""
    heard: list[str] = []
    monkeypatch.setattr(got_request_exception, "send", lambda **values: heard.append("crash"))
    context: Any = {"request": Request(rf.get("/api/v1/orders")), "view": None, "args": (), "kwargs": {}}

    for error, status, crashes in ((ServiceAway(), 503, []), (ZeroDivisionError(), 500, ["crash"])):
        answer = ProblemHandler(error, context).run()
        assert (answer.status_code if answer else None, heard) == (status, crashes)
