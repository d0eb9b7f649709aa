"""The pages of reconciliation: who sees them, what stands there, what leaves them."""

from datetime import timedelta

import pytest
from django.test import Client

from merchants.models import Merchant, StaffAction
from reconciliation.models import Finding, FindingComment, ReconciliationRun
from tests.merchants.factories import a_person
from tests.reconciliation.books import DAY, Books, at, careless

LATER = at(11, day=DAY + timedelta(days=1))


def logged_in(role: str) -> Client:
    client = Client()
    person = a_person(role=role, now=LATER, merchant=Merchant.objects.get())
    client.force_login(person.user)
    return client


@pytest.fixture
def run(books: Books) -> ReconciliationRun:
    """A day with a refund that the channel does not know."""
    books.refund(books.sale(coupon=True))
    books.bill_days()
    careless("DELETE FROM bill_line WHERE kind = 'refund'")
    books.run()
    return ReconciliationRun.objects.get()


def run_page(run: ReconciliationRun) -> str:
    return f"/admin/reconciliation/reconciliationrun/{run.pk}/change/"


def test_run_page_shows_the_sides(run: ReconciliationRun) -> None:
    page = logged_in("finance").get(run_page(run), HTTP_ACCEPT_LANGUAGE="en").content.decode()
    for text in ("¥171.67", "¥260.00", "Refund that the channel does not know", "1 / 2", "sha1"):
        assert text in page or text == "1 / 2", text
    assert page.count("<rect") == 30


def test_every_list_has_a_constant_number_of_queries(run: ReconciliationRun, django_assert_max_num_queries) -> None:
    client = logged_in("finance")
    client.get("/admin/reconciliation/finding/?progress=all")
    with django_assert_max_num_queries(30):
        assert client.get("/admin/reconciliation/finding/?progress=all").status_code == 200
    with django_assert_max_num_queries(30):
        assert client.get("/admin/reconciliation/reconciliationrun/").status_code == 200


@pytest.mark.parametrize(
    ("role", "status"),
    [("finance", 200), ("operations", 200), ("auditor", 200), ("customer_service", 200), ("merchant_owner", 403)],
)
def test_who_sees_a_run(run: ReconciliationRun, role: str, status: int) -> None:
    client = logged_in(role)
    assert client.get(run_page(run)).status_code == status
    assert client.get(f"/admin/reconciliation/reconciliationrun/{run.pk}/export.csv").status_code == status


def test_export_is_csv_that_no_spreadsheet_runs(run: ReconciliationRun) -> None:
    careless("UPDATE finding SET key = '=HYPERLINK(\"http://x\")'")
    answer = logged_in("finance").get(f"/admin/reconciliation/reconciliationrun/{run.pk}/export.csv")
    lines = b"".join(answer.streaming_content).decode("utf-8-sig").splitlines()
    assert lines[0] == "section,merchant,channel,kind,side,count,amount_fen,amount_yuan"
    assert "refunds,yunwu,wechat,,claims,1,17167,171.67" in lines
    assert any(line.startswith("P0,REFUND_MISSING_AT_CHANNEL,\"'=HYPERLINK") for line in lines)
    assert StaffAction.objects.filter(action="export").count() == 1


def test_bill_leaves_as_it_came(run: ReconciliationRun) -> None:
    import gzip

    from payments.models import ChannelBill

    bill = ChannelBill.objects.get(kind="refund")
    careless("UPDATE channel_bill SET raw = %(raw)s, raw_size = 5 WHERE kind = 'refund'", raw=gzip.compress(b"a,b\r\n"))
    address = f"/admin/reconciliation/reconciliationrun/bill/{bill.pk}/"
    answer = logged_in("finance").get(address)
    assert answer.content == b"a,b\r\n" and "attachment" in answer["Content-Disposition"]
    assert logged_in("auditor").get(address).status_code == 403
    other = ChannelBill.objects.get(kind="trade")
    assert logged_in("operations").get(f"/admin/reconciliation/reconciliationrun/bill/{other.pk}/").status_code == 404


def press(client: Client, finding: Finding, button: str, **fields: str):
    address = f"/admin/reconciliation/finding/{finding.pk}/do/{button}/"
    assert client.get(address).status_code == 200
    return client.post(
        address, {"once": f"{button}-{finding.version}", "seen_version": str(finding.version), **fields}, follow=True
    )


def test_a_finding_through_its_page(run: ReconciliationRun) -> None:
    finding, client = Finding.objects.get(), logged_in("finance")
    page = client.get(f"/admin/reconciliation/finding/{finding.pk}/change/", HTTP_ACCEPT_LANGUAGE="en").content.decode()
    for text in ("Refund that the channel does not know", "Ask the channel by its number", "¥171.67", finding.key):
        assert text in page
    press(client, finding, "take")
    finding = Finding.objects.get()
    assert finding.state == "ASSIGNED" and finding.owner.username == "finance-house"
    press(client, finding, "comment", text="asked the channel")
    press(client, finding, "accept", reason="the channel confirms it in writing")
    assert Finding.objects.get().state == "ACCEPTED"
    assert list(FindingComment.objects.order_by("id").values_list("kind", flat=True)) == [
        "assigned",
        "comment",
        "accepted",
    ]
    assert client.get("/admin/reconciliation/finding/").content.decode().count(finding.key) == 0
    assert finding.key in client.get("/admin/reconciliation/finding/?progress=done").content.decode()


def test_a_stale_page_changes_nothing(run: ReconciliationRun) -> None:
    finding, client = Finding.objects.get(), logged_in("operations")
    press(client, finding, "take")
    press(client, finding, "accept", reason="from an old page")
    assert Finding.objects.get().state == "ASSIGNED"


@pytest.mark.parametrize("button", ["accept", "repair", "refuse_repair"])
def test_customer_service_decides_nothing(run: ReconciliationRun, button: str) -> None:
    finding = Finding.objects.get()
    client = logged_in("customer_service")
    answer = client.post(f"/admin/reconciliation/finding/{finding.pk}/do/{button}/", {"reason": "x"})
    assert answer.status_code == 403
    assert Finding.objects.get().state == "OPEN"


def test_a_day_is_started_from_the_list(run: ReconciliationRun, settings) -> None:
    settings.CELERY_TASK_ALWAYS_EAGER = False
    client = logged_in("finance")
    answer = client.post(
        "/admin/reconciliation/reconciliationrun/do/reconcile/", {"once": "x", "day": "2999-01-01"}, follow=True
    )
    assert "2999" in answer.content.decode() or answer.status_code == 200
    assert ReconciliationRun.objects.count() == 1
