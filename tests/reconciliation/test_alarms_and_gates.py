"""The world hears of findings: command line, gate, metrics, log and webhook."""

import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from kernel.models import InboxMessage, OutboxEvent
from reconciliation.commands.accept_finding import accept_finding
from reconciliation.models import Finding, ReconciliationRun
from reconciliation.queries import get_last_days, get_waiting_days
from tests.reconciliation.books import DAY, Books, at, careless

LATER = at(11, day=DAY + timedelta(days=1))


def break_stock() -> None:
    careless("UPDATE stock_item SET sellable = sellable + 1 WHERE sku = 'TEA-250G'", tables=("stock_item",))


def run_command(name: str, *arguments: str) -> tuple[int, str]:
    said = StringIO()
    try:
        call_command(name, *arguments, stdout=said, stderr=said)
    except SystemExit as end:
        return int(end.code or 0), said.getvalue()
    return 0, said.getvalue()


@pytest.fixture
def without_accounts(books: Books) -> Books:
    """Something was sold; since then there is no channel account, so that no bill is waited for."""
    books.sale()
    careless("UPDATE channel_account SET is_active = FALSE", tables=("channel_account",))
    return books


def test_reconcile_says_what_it_found_by_its_exit_code(without_accounts: Books) -> None:
    code, said = run_command("reconcile", "--date", DAY.isoformat())
    assert (code, "1 items, 1 matched" in said, "0 findings" in said) == (0, True, True), said
    assert "payments yunwu wechat: ours 1 ¥300.00 | channel 0 ¥0.00 | journal 1 ¥300.00" in said
    break_stock()
    code, said = run_command("reconcile", "--date", DAY.isoformat(), "--merchant", "yunwu")
    assert code == 1 and "P0 STOCK_DIFFERS TEA-250G OPEN" in said
    assert ReconciliationRun.objects.filter(kind="daily").count() == 2


def test_reconcile_says_that_a_bill_is_missing(books: Books) -> None:
    """Nothing of ours waits for it: it is only mentioned. As soon as something does, the exit code says so."""
    careless("UPDATE channel_account SET created_at = now()", tables=("channel_account",))
    code, said = run_command("reconcile", "--date", DAY.isoformat())
    assert code == 0 and "no bill yet: yunwu wechat trade" in said
    assert get_waiting_days(since=DAY) == [DAY]
    books.sale()
    code, said = run_command("reconcile", "--date", DAY.isoformat())
    assert code == 2 and "no bill yet: yunwu wechat trade" in said


@pytest.mark.parametrize("wrong", [["--date", "yesterday"], ["--merchant", "nobody"]])
def test_reconcile_refuses_nonsense(db, wrong: list[str]) -> None:
    with pytest.raises(CommandError):
        run_command("reconcile", *wrong)
    assert not ReconciliationRun.objects.exists()


def test_gate(without_accounts: Books, django_user_model) -> None:
    assert run_command("gate") == (0, "P0 0\nP1 0\n")
    break_stock()
    without_accounts.run()
    assert run_command("gate") == (1, "P0 1\nP1 0\nP0 STOCK_DIFFERS TEA-250G OPEN\n")
    finding = Finding.objects.get()
    mei = django_user_model.objects.create(username="mei")
    accept_finding(finding_id=finding.pk, author_id=mei.pk, reason="counted", expected_version=1, now=LATER)
    assert run_command("gate")[0] == 0
    careless("UPDATE finding SET state = 'OPEN', closed_at = NULL, severity = 'P1'")
    assert run_command("gate") == (1, "P0 0\nP1 1\nP1 STOCK_DIFFERS TEA-250G OPEN\n")
    careless("UPDATE finding SET severity = 'P2'")
    assert run_command("gate") == (0, "P0 0\nP1 0\n")


def test_metrics(without_accounts: Books) -> None:
    break_stock()
    without_accounts.run()
    text = Client(REMOTE_ADDR="127.0.0.1").get("/metrics").content.decode()
    assert 'quits_findings{severity="P0"} 1.0' in text
    assert 'quits_findings{severity="P1"} 0.0' in text
    assert "quits_reconciliation_done 1.0" in text


class Listener(BaseHTTPRequestHandler):
    heard: list[bytes] = []
    status = 200

    def do_POST(self) -> None:
        self.heard.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        return


@pytest.fixture
def webhook(settings):
    Listener.heard, Listener.status = [], 200
    server = HTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings.QUITS_ALARM_WEBHOOK = f"http://127.0.0.1:{server.server_port}/alarm"
    yield Listener
    server.shutdown()
    server.server_close()


def test_an_alarm_is_posted_once(without_accounts: Books, webhook) -> None:
    break_stock()
    without_accounts.run()
    without_accounts.run()
    assert len(webhook.heard) == 1
    assert b'"rule":"STOCK_DIFFERS"' in webhook.heard[0] and b'"opened":1' in webhook.heard[0]


def test_an_alarm_that_nobody_takes_is_tried_again(without_accounts: Books, webhook) -> None:
    webhook.status = 503
    break_stock()
    without_accounts.run()
    event = OutboxEvent.objects.get(name="finding.opened")
    assert InboxMessage.objects.get(event_id=event.pk).state == "FAILED"
    webhook.status = 200
    from kernel import inbox

    inbox.retry_due(now=LATER + timedelta(hours=1))
    assert InboxMessage.objects.get(event_id=event.pk).state == "DONE"
    assert len(webhook.heard) == 2


def test_thirty_days_at_a_glance(without_accounts: Books) -> None:
    without_accounts.run()
    days = get_last_days(until=DAY)
    assert len(days) == 30 and days[-1]["day"] == DAY
    assert (days[-1]["rate"], days[-1]["items"], days[0]["rate"], days[0]["run"]) == (100.0, 1, None, None)
