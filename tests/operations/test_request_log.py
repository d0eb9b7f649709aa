"""A request leaves one line in the log: under the id that its caller sees, with the address it came from."""

import logging

import pytest
from django.test import Client

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
