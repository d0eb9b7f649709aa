"""300 refunds while the channel times out, resets, fails, refuses for now, closes and parks, callbacks come twice,
late, out of order or never, and the workers are killed: every fen arrives once."""

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from urllib.parse import quote

import pytest
from django.conf import settings as django_settings
from django.db import connection

from kernel import stream
from payments.commands.query_refund import query_refund
from payments.commands.retry_refund import retry_refund
from payments.models import Payment, RefundAttempt, RefundFact, RefundRequest
from payments.simulator.client import SimulatorError
from tests.payments.channel import moment
from tests.payments.factories import events

ROOT = Path(__file__).resolve().parents[2]
PAYMENTS, EACH = 60, 5
KILLS = 5
SEED = 20261130


def environment() -> dict[str, str]:
    """The test database and this test's Valkey, for a process of its own."""
    database = connection.settings_dict
    who = quote(database["USER"], safe="") + (
        f":{quote(database['PASSWORD'], safe='')}" if database["PASSWORD"] else ""
    )
    port = f":{database['PORT']}" if database["PORT"] else ""
    url = f"postgresql://{who}@{quote(database['HOST'], safe='')}{port}/{database['NAME']}"
    return {
        **os.environ,
        "DATABASE_URL": url,
        "DATABASE_OWNER_URL": url,
        "REDIS_URL": django_settings.REDIS_URL,
        "QUITS_BASE_URL": django_settings.QUITS_BASE_URL,
        "QUITS_LOG_LEVEL": "CRITICAL",
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }


class Workers:
    """Two worker processes that are killed and replaced."""

    def __init__(self) -> None:
        self.running: list[subprocess.Popen] = []
        self.kills = 0

    def start(self) -> None:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tests.payments.refund_worker"],
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        self.running.append(worker)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "working\n"

    def kill_one(self) -> None:
        victim = self.running.pop(0)
        victim.kill()
        victim.wait(10)
        self.kills += 1
        self.start()

    def stop(self) -> None:
        for worker in self.running:
            worker.kill()
            worker.wait(10)


@pytest.fixture
def workers(live_server, settings, trader):
    settings.QUITS_BASE_URL = live_server.url
    settings.ALLOWED_HOSTS = ["*"]
    trader.pace(query_after_seconds=1, query_backoff_seconds=[1], retry_wait_seconds=[1])
    staff = Workers()
    try:
        staff.start()
        staff.start()
        yield staff
    finally:
        staff.stop()


FAULTS = [
    ("wechat.refund", "timeout_after", 0.08),
    ("wechat.refund", "reset_after", 0.08),
    ("wechat.refund", "server_error_after", 0.08),
    ("wechat.refund", "timeout", 0.04),
    ("wechat.refund", "reset", 0.05),
    ("wechat.refund", "not_enough", 0.08),
    ("wechat.refund", "rate_limited", 0.08),
    ("wechat.query_refund", "server_error", 0.05),
    ("notify.refund", "duplicate", 0.2),
    ("notify.refund", "out_of_order", 0.1),
    ("notify.refund", "silent", 0.15),
]


@pytest.mark.slow
def test_every_fen_arrives_once(trader, workers):
    chance = random.Random(SEED)
    trader.sim.post("faults", seed=SEED)
    payments = [trader.paid(50000) for _ in range(PAYMENTS)]
    for operation, kind, probability in FAULTS:
        trader.sim.fault(operation, kind, times=-1, probability=probability)
    wanted = Counter()
    for payment in payments:
        for number in range(EACH):
            fen = 10000 if number < EACH - 1 else chance.randint(1, 10000)
            trader.refund(payment, fen)
            wanted[payment.id] += fen
    asked = PAYMENTS * EACH
    assert RefundRequest.objects.count() == asked

    until = time.monotonic() + 240
    outcomes: Counter = Counter()
    parked: set[str] = set()
    while RefundRequest.objects.filter(status="SUCCEEDED").count() < asked:
        assert time.monotonic() < until, list(
            RefundAttempt.objects.exclude(status="SUCCESS").values_list("number", "status", "last_error", "sends")
        )
        settle_some(trader, chance, outcomes, parked)
        people_do_their_part(trader)
        done = RefundRequest.objects.filter(status="SUCCEEDED").count()
        if workers.kills < KILLS and done >= (workers.kills + 1) * asked // (KILLS + 2):
            workers.kill_one()
        time.sleep(0.1)
    trader.sim.clear_faults()
    stream.drain(now=moment())

    at_channel = [row for payment in payments for row in trader.at_channel(payment)]
    for number, fen, _state in at_channel:
        assert RefundAttempt.objects.get(number=number).amount_fen == fen
    assert len(at_channel) == len({number for number, *_ in at_channel}), "one refund per number"
    paid_back = Counter()
    for number, fen, state in at_channel:
        if state == "SUCCESS":
            attempt = RefundAttempt.objects.get(number=number)
            assert attempt.status == "SUCCESS"
            paid_back[attempt.payment_id] += fen
    assert paid_back == wanted
    ours = {row.id: row.refunded_fen for row in Payment.objects.all()}
    assert ours == dict(wanted)
    assert all(row.refund_committed_fen == row.refunded_fen for row in Payment.objects.all())
    assert len(events("refund.succeeded")) == asked
    successes = Counter(RefundAttempt.objects.filter(status="SUCCESS").values_list("request_id", flat=True))
    assert set(successes.values()) == {1}, "none paid twice"
    assert workers.kills == KILLS
    assert not RefundFact.objects.exclude(anomaly="").exists()
    report(trader, outcomes, at_channel)


def settle_some(trader, chance, outcomes, parked) -> None:
    """The channel's side: what it accepted ends one way or another. What it parked does not end by itself: only when
    people have read of it (`people_do_their_part`), or its late word would contradict the success, which is an anomaly.
    """
    accepted = RefundAttempt.objects.filter(sends__gt=0, status__in=["SENT", "PROCESSING"]).values_list(
        "number", flat=True
    )
    for number in sorted(set(accepted) - parked):
        to = chance.choices(["SUCCESS", "CLOSED", "ABNORMAL", "WAIT"], [50, 8, 5, 37])[0]
        if to == "WAIT":
            continue
        try:
            trader.sim.settle(number, to)
        except SimulatorError:
            continue
        outcomes[to] += 1
        if to == "ABNORMAL":
            parked.add(number)


def people_do_their_part(trader) -> None:
    """Closed: tried again. Parked: finished on the channel's own page, then asked about."""
    for request in RefundRequest.objects.filter(status="FAILED", failure_code="CHANNEL_CLOSED"):
        retry_refund(merchant_id=trader.merchant_id, refund_request_id=request.id, now=moment())
    for attempt in RefundAttempt.objects.filter(status="ABNORMAL"):
        with contextlib.suppress(SimulatorError):
            trader.sim.settle(attempt.number, "SUCCESS")
        query_refund(attempt_id=attempt.id, forced=True, now=moment())


def report(trader, outcomes, at_channel) -> None:
    sends = sum(RefundAttempt.objects.values_list("sends", flat=True))
    calls = trader.sim.get("state")
    print(
        f"\n{PAYMENTS * EACH} refunds, {len(at_channel)} numbers, {sends} sends, {KILLS} kills,"
        f" channel outcomes {dict(outcomes)},"
        f" attempts {dict(Counter(RefundAttempt.objects.values_list('status', flat=True)))}"
        f"\nfacts {dict(Counter(RefundFact.objects.values_list('source', 'state')))}"
        f"\n{calls.get('calls', '')}"
    )
