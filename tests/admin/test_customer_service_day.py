"""Customer service's day: an anomaly of each kind comes in, is read, taken and resolved, by somebody who is new."""

import pytest
from django.utils import translation
from playwright.sync_api import Page, expect

from merchants.models import StaffAction
from merchants.roles import Role
from orders.commands.open_anomaly import open_anomaly
from orders.legends import ANOMALIES
from orders.models import Anomaly, Order
from orders.tender import Answer
from tests.merchants.factories import a_person
from tests.orders.conftest import keys, now, shop, simulator, simulator_process  # noqa: F401
from tests.orders.factories import Shop, order_of
from tests.orders.test_callback_matrix import (
    answer_with,
    cancelled,
    closed_for_good,
    deliver_callback,
    paid,
    pending,
)
from tests.orders.test_coordinate_coupon import in_conflict

pytestmark = pytest.mark.django_db(transaction=True)
Kind = Anomaly.Kind
LINES = dict(ANOMALIES[0].lines)


def by_callbacks(shop: Shop) -> None:  # noqa: F811
    """The kinds that a payment callback brings, through the real commands and the simulator's wire."""
    for make in (closed_for_good, cancelled):
        cell = make(shop, make.__name__)
        trade = answer_with(cell, Answer.PAID_EQUAL, other_trade=False)
        deliver_callback(cell, trade_no=trade, amount_fen=cell.payment.amount_fen)
    other = pending(shop, "another amount")
    deliver_callback(other, trade_no=answer_with(other, Answer.PAID_DIFFERENT, other_trade=False), amount_fen=12345)
    twice = paid(shop, "twice")
    trade = answer_with(twice, Answer.PAID_EQUAL, other_trade=True)
    deliver_callback(twice, trade_no=trade, amount_fen=twice.payment.amount_fen)
    deliver_callback(pending(shop, "senseless"), trade_no="", amount_fen=None)
    behind = pending(shop, "refunded behind us")
    trade = answer_with(behind, Answer.REFUNDED, other_trade=False)
    deliver_callback(behind, trade_no=trade, amount_fen=1)


def by_themselves(shop: Shop) -> None:  # noqa: F811
    """The kinds that take hours or a broken channel to come about, with the evidence that their commands leave."""
    order = order_of(shop.paid(address={"street": "not handed over"}))
    stuck = order_of(shop.order(address={"street": "stuck"}))
    sides = {
        "ours": {"status": "SUCCESS", "amount_fen": 8833, "total_fen": 26000, "trade_no": "4200001"},
        "theirs": {"state": "SUCCESS", "amount_fen": 8800, "total_fen": 26000, "trade_no": "4200001"},
    }
    said = {"owner_kind": "order_payment", "owner_no": order.order_no, "order_no": order.order_no, "dead": True}
    rows: list[tuple[str, Order | None, dict, dict, str]] = [
        (Kind.DELIVERY_FAILED, order, {"while": "fulfilment"}, {"error": "StockAway: no answer"}, "stays_paid"),
        (
            Kind.REFUND_DRIFT,
            order,
            {"difference": "refund_amount_mismatch"},
            {"refund_no": "A1-0", **sides},
            "nothing was moved",
        ),
        (Kind.REFUND_FAILED, order, {}, {**said, "code": "CHANNEL_CLOSED"}, "needs a person"),
        (Kind.SUPERSEDED_GATEWAY_CLOSE_FAILED, stuck, {"while": "superseding"}, {"detail": "504"}, "stays_pending"),
        (
            Kind.ORDER_DISAPPEARED,
            None,
            {"notify_no": "EV-1"},
            {"facts": {"state": "SUCCESS", "amount_fen": 26000, "paid_at": shop.now.isoformat()}},
            "asked again later",
        ),
    ]
    for kind, about, facts, evidence, outcome in rows:
        open_anomaly(
            merchant_id=shop.id,
            kind=kind,
            order=about,
            out_trade_no="" if about else "Q20261130000001P1",
            facts=facts,
            evidence=evidence,
            outcome=outcome,
            now=shop.now,
        )


def without_an_answer(shop: Shop) -> Anomaly:  # noqa: F811
    """The channel did not answer while an order was to be closed; meanwhile it does, and says paid."""
    cell = pending(shop, "no answer")
    opened = open_anomaly(
        merchant_id=shop.id,
        kind=Kind.GATEWAY_QUERY_FAILED,
        order=order_of(cell.ordered),
        out_trade_no=cell.payment.out_trade_no,
        facts={"while": "closing"},
        evidence={"detail": "timeout"},
        outcome="stays_pending",
        now=shop.now,
    )
    shop.simulator.pay(cell.payment.out_trade_no, notify=False)
    return Anomaly.objects.get(pk=opened.anomaly_id)


def test_an_anomaly_of_each_kind(page: Page, live_server, log_in, console, shot, shop: Shop):  # noqa: F811
    by_callbacks(shop)
    by_themselves(shop)
    in_conflict(shop)
    unheard = without_an_answer(shop)
    waiting = list(Anomaly.objects.order_by("created_at", "id"))
    assert {anomaly.kind for anomaly in waiting} == set(Kind.values)

    log_in(a_person(role=Role.CUSTOMER_SERVICE, now=shop.now, username="wen"))
    expect(page.locator("[data-waiting='orders.anomalies']")).to_contain_text(str(len(waiting)))
    shot("orders-desk-cs-zh")
    page.locator("[data-waiting='orders.anomalies']").click()
    expect(page.locator("#result_list tbody tr.data-row")).to_have_count(len(waiting))

    # The channel is back: asking it is all that this one needs.
    page.goto(f"{live_server.url}/admin/orders/anomaly/{unheard.pk}/change/")
    page.locator("[data-button=ask]").click()
    page.locator("form[data-once] button[type=submit]").click()
    expect(page.locator("[data-button=resolve]")).to_have_count(0)
    assert Order.objects.get(pk=unheard.order_id).status == Order.Status.PAID

    # All others become hers in one go.
    page.goto(f"{live_server.url}/admin/orders/anomaly/?waiting=1")
    page.locator("#action-toggle").first.check()
    expect(page.locator("#result_list input.action-select:checked")).to_have_count(len(waiting) - 1)
    page.select_option("select[name=action]", value="take")
    page.locator("#changelist-actions-wrapper button[type=submit]").click()
    page.locator("form[data-rows] button[type=submit]").click()
    expect(page.locator("[data-back]")).to_be_visible()
    expect(page.locator(".q-rows li[data-ok=yes]")).to_have_count(len(waiting) - 1)
    expect(page.locator("[data-done]")).to_contain_text(f"{len(waiting) - 1}")
    shot("day-taken-zh")

    # Then one by one: what it means stands there, the evidence is readable, and each ends with a word.
    for anomaly in waiting:
        if anomaly.pk == unheard.pk:
            continue
        kind = Kind(anomaly.kind)
        page.goto(f"{live_server.url}/admin/orders/anomaly/{anomaly.pk}/change/")
        with translation.override("zh-hans"):
            expect(page.locator(".q-status-lines")).to_contain_text(str(LINES[kind])[:12])
        said = page.locator("#content").inner_text()
        assert "{'" not in said and '{"' not in said and "None" not in said, said
        if kind in (Kind.COUPON_CONFLICT, Kind.REFUND_DRIFT):
            shot(f"day-anomaly-{kind}-zh")
        page.locator("[data-button=resolve]").click()
        page.fill("[name=resolution]", "已核对两边记录，并电话告知买家。")
        page.locator("form[data-once] button[type=submit]").click()
        expect(page.locator("[data-button=resolve]")).to_have_count(0)

    page.goto(f"{live_server.url}/admin/")
    expect(page.locator("[data-waiting='orders.anomalies'] .q-card-number")).to_have_text("0")
    page.locator("[data-waiting='orders.anomalies']").click()
    expect(page.locator(".q-empty")).to_contain_text("没有待处理的事")
    assert set(Anomaly.objects.values_list("state", flat=True)) == {"RESOLVED"}
    assert Anomaly.objects.exclude(pk=unheard.pk).filter(owner__username="wen").count() == len(waiting) - 1
    assert StaffAction.objects.filter(action="resolve", outcome="done").count() == len(waiting) - 1
    assert console == []
