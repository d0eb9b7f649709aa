"""The frame itself: bulk actions, counts that stop, dashboards, the sidebar, the search box, the languages."""

from datetime import timedelta

import pytest
from django.core.cache import cache
from django.db import OperationalError, connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from config.urls import server_error
from kernel.admin import charts, desk, filters, site
from kernel.models import InboxMessage
from merchants.models import Merchant, StaffAction
from merchants.roles import Role
from tests.admin.test_permissions import logged_in
from tests.merchants.factories import a_merchant

pytestmark = pytest.mark.django_db


def a_message(now, state="DEAD", **values) -> InboxMessage:
    return InboxMessage.objects.create(
        consumer="ledgers.post_payment",
        event_id="01a22d6f-9abf-7bd9-a250-4484f274ecbd",
        **{"event_name": "payment.succeeded", "state": state, "created_at": now, "available_at": now, **values},
    )


def messages(now, *states) -> list[InboxMessage]:
    made = []
    for number, state in enumerate(states):
        event_id = f"01a22d6f-9abf-7bd9-a250-{number:012d}"
        made.append(
            InboxMessage.objects.create(
                consumer="x",
                event_id=event_id,
                event_name="payment.succeeded",
                state=state,
                attempts=9,
                created_at=now,
                available_at=now,
                done_at=now if state == "DONE" else None,
            )
        )
    return made


def test_bulk_acts_on_each_row_by_itself(now):
    client = logged_in(Role.OPERATIONS, None, now)
    dead, done, also_dead = messages(now, "DEAD", "DONE", "DEAD")
    ticked = [dead.pk, done.pk, also_dead.pk]

    asked = client.post(
        reverse("admin:kernel_inboxmessage_changelist"), {"action": "revive", "_selected_action": ticked}
    )
    offered = {row["obj"].pk: row["allowed"] for row in asked.context["rows"]}
    assert offered == {dead.pk: True, done.pk: False, also_dead.pk: True}
    sent = {"once": asked.context["once"], "ids": [str(pk) for pk in ticked]}
    answer = client.post(reverse("admin:kernel_inboxmessage_bulk", args=["revive"]), sent)

    by_id = {row["obj"].pk: row for row in answer.context["results"]}
    assert {pk: row["ok"] for pk, row in by_id.items()} == {dead.pk: True, done.pk: False, also_dead.pk: True}
    assert answer.context["done"] == 2
    assert sorted(InboxMessage.objects.values_list("state", flat=True)) == ["DONE", "FAILED", "FAILED"]
    assert StaffAction.objects.filter(action="revive", outcome="done").count() == 2
    action = StaffAction.objects.filter(subject_id=str(dead.pk)).get()
    assert (action.before, action.after) == ({"state": "DEAD", "attempts": 9}, {"state": "FAILED", "attempts": 0})


def test_bulk_takes_a_limited_number_and_no_nonsense(now):
    client = logged_in(Role.OPERATIONS, None, now)
    (dead,) = messages(now, "DEAD")

    answer = client.post(
        reverse("admin:kernel_inboxmessage_bulk", args=["revive"]),
        {"once": "x", "ids": ["nonsense", str(dead.pk), "-1"]},
    )

    assert [row["ok"] for row in answer.context["results"]] == [True]
    assert client.get(reverse("admin:kernel_inboxmessage_bulk", args=["revive"])).status_code == 403
    assert client.post(reverse("admin:kernel_inboxmessage_bulk", args=["nothing"]), {}).status_code == 404


def test_waiting_counts_lead_to_the_list_behind_them(now):
    client = logged_in(Role.OPERATIONS, None, now)
    messages(now, "DEAD", "DEAD", "FAILED")

    answer = client.get(reverse("admin:index"))

    (row,) = [row for row in answer.context["waiting"] if row["item"].name == "kernel.dead_messages"]
    assert row["count"] == 2
    listed = client.get(row["url"]).context["cl"]
    assert listed.result_count == 2


@pytest.mark.parametrize("role", Role)
def test_every_number_on_a_dashboard_links_to_a_page_of_that_role(role, now):
    client = logged_in(role, a_merchant(now=now), now)

    answer = client.get(reverse("admin:index"))

    links = [row["url"] for row in [*answer.context["waiting"], *answer.context["figures"]] if row["url"]]
    links += [item.link.resolve() for _title, items in answer.context["groups"] for item in items]
    assert links
    for link in links:
        assert client.get(link).status_code == 200, link


def test_waiting_is_only_for_those_who_can_do_something(now):
    auditor = logged_in(Role.AUDITOR, None, now).get(reverse("admin:index"))

    assert "kernel.dead_messages" not in [row["item"].name for row in auditor.context["waiting"]]


def test_counts_stop(now, monkeypatch):
    messages(now, *["DEAD"] * 7)
    rows = InboxMessage.objects.all()

    with CaptureQueriesContext(
        connection,
    ) as seen:
        assert desk.capped(rows, cap=3) == 4
        monkeypatch.setattr(filters, "COUNT_CAP", 5)
        paginator = filters.CappedPaginator(rows.order_by("-id"), 2)
        assert paginator.count == 6 and paginator.is_capped
    assert all("LIMIT" in query["sql"] for query in seen.captured_queries)


def test_charts_have_thirty_days_and_are_kept_for_a_minute(now):
    asked = []

    def query(scope, first, last):
        asked.append((first, last))
        return [charts.Point(last, 5), charts.Point(last - timedelta(days=29), 2)]

    chart = charts.Chart("test.chart", "Test", query, Merchant, "count", lambda day: f"/x?{day}", "", 1)
    scope = desk.Scope(user=None, policy=site.policy, now=now, zone=site.policy.zone_of(None_user()), merchant_id=None)
    cache.clear()

    points = charts.points_of(chart, scope)
    assert charts.points_of(chart, scope) == points and len(asked) == 1
    assert [points[0].value, points[1].value, points[-1].value, len(points)] == [2, None, 5, 30]
    drawn = charts.draw(chart, points)
    assert (drawn["today"], drawn["sum"]) == ("5", "7")
    assert [bool(bar["url"]) for bar in (drawn["bars"][0], drawn["bars"][1], drawn["bars"][-1])] == [True, False, True]
    assert float(drawn["bars"][-1]["height"]) > float(drawn["bars"][0]["height"]) > 1.5


def None_user():
    from django.contrib.auth.models import AnonymousUser

    return AnonymousUser()


@pytest.mark.parametrize(
    ("value", "format", "text"),
    [(123456, "money", "¥1,234.56"), (None, "money", "–"), (999, "permille", "99.9 %"), (12345, "count", "12,345")],
)
def test_values_as_people_read_them(value, format, text):
    assert charts.shown(value, format) == text


def test_the_search_box_finds_nothing_kindly(now):
    client = logged_in(Role.OPERATIONS, None, now)

    answer = client.get(reverse("admin:find"), {"q": "no-such-thing"})

    assert answer.status_code == 200 and answer.context["hits"] == []
    assert client.get(reverse("admin:find")).status_code == 200


def test_both_languages(now):
    client = logged_in(Role.OPERATIONS, None, now)

    assert "工作台" in client.get("/admin/", headers={"Accept-Language": "zh-CN"}).content.decode()
    assert "Dashboard" in client.get("/admin/", headers={"Accept-Language": "en"}).content.decode()
    client.post(reverse("set_language"), {"language": "en", "next": "/admin/"})
    assert "Dashboard" in client.get("/admin/", headers={"Accept-Language": "zh-CN"}).content.decode()


def test_times_are_those_of_the_merchant(now):
    merchant = a_merchant(now=now, timezone="Asia/Urumqi")
    owner = logged_in(Role.MERCHANT_OWNER, merchant, now)

    page = owner.get(reverse("admin:merchants_merchant_change", args=[merchant.pk])).content.decode()

    assert "Asia/Urumqi" in page
    listed = owner.get(reverse("admin:merchants_merchant_changelist")).content.decode()
    assert f"{(now + timedelta(hours=6)):%m-%d %H:%M}" in listed


def test_strangers_see_the_login_page_only(db):
    for name in ("index", "find"):
        answer = Client().get(reverse(f"admin:{name}"))
        assert answer.status_code == 302 and "/admin/login/" in answer["Location"]
    assert Client().post(reverse("admin:reveal"), {}).status_code == 302


@pytest.mark.parametrize(
    ("path", "error", "status"),
    [
        ("/admin/", OperationalError("the server went away"), 503),
        ("/api/v1/x", OperationalError("the server went away"), 503),
        ("/admin/", ConnectionRefusedError("nobody listens"), 503),
        ("/admin/", KeyError("ours"), 500),
        ("/api/v1/x", KeyError("ours"), 500),
    ],
)
def test_a_service_that_is_away_is_no_mistake_of_ours(path: str, error: Exception, status: int) -> None:
    """What fault runs met at the desk while PostgreSQL was down: to be tried again, not a defect to look for."""
    try:
        raise error
    except Exception:  # as Django calls it: while the exception is being handled
        answer = server_error(RequestFactory().get(path))
    assert answer.status_code == status
    assert answer.has_header("Retry-After") == (status == 503)
