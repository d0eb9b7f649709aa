"""Nobody has to guess: each list says what it is for, each status what it means, each queue why it waits."""

import pytest
from django.test import Client

from kernel.admin import desk, site
from merchants.roles import Role
from orders.models import Anomaly
from tests.admin.test_permissions import PAGES, logged_in

STATUSES = {"status", "state", "verdict", "decision"}


@pytest.mark.parametrize("model", PAGES, ids=lambda model: model._meta.label)
def test_a_list_says_what_it_is_for(model):
    assert str(site._registry[model].list_hint)


@pytest.mark.parametrize("model", PAGES, ids=lambda model: model._meta.label)
def test_each_status_has_its_line(model):
    lines = {legend.field: legend.lines for legend in site._registry[model].legends}
    for field in model._meta.concrete_fields:
        if field.choices and (field.name in STATUSES or (model is Anomaly and field.name == "kind")):
            assert set(lines.get(field.name, {})) == {value for value, _label in field.flatchoices}, field.name


@pytest.mark.parametrize("item", desk._WAITING.values(), ids=lambda item: item.name)
def test_each_queue_says_why_it_waits(item):
    assert str(item.hint)


@pytest.mark.django_db
def test_the_lines_are_on_the_pages(now):
    client: Client = logged_in(Role.OPERATIONS, None, now)
    page = client.get("/admin/orders/order/", headers={"Accept-Language": "en"}).content.decode()
    assert "Every unit was signed for or granted." in page and "What each status means" in page
    queue = client.get("/admin/orders/anomaly/?waiting=1", headers={"Accept-Language": "zh-CN"}).content.decode()
    assert "没有待处理的事" in queue
