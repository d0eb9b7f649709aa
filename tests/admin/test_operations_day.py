"""Operations' day: two risk marks are looked at, a case is decided, and a colleague was quicker once."""

import pytest
from playwright.sync_api import Page, expect

from aftersales.actors import By
from aftersales.commands.add_evidence import add_evidence
from aftersales.commands.decide_risk import decide_risk
from aftersales.models import Actor, AfterSalesOrder, ArbitrationCase, RiskReview
from kernel import clock
from merchants.models import StaffAction
from merchants.roles import Role
from tests.aftersales.build import BUYER, Line, a_key, a_paid_order, nut_and_tea
from tests.aftersales.test_arbitration import call_in
from tests.aftersales.test_evidence import a_png
from tests.aftersales.test_return import reject
from tests.aftersales.test_risk import apply, rule
from tests.merchants.factories import a_merchant, a_person

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def paid():
    now = clock.now()
    return nut_and_tea(now, merchant=a_merchant(now=now))


@pytest.fixture
def case(paid, settings, tmp_path) -> ArbitrationCase:
    """A refused return that the buyer brought before the platform, with an image of either side."""
    settings.QUITS_VAR = tmp_path / "var"
    paid.ship(1)
    paid.ship(2)
    number = paid.apply(2, type=2, description="茶叶受潮，有霉味").after_sales_no
    reject(paid, number, reason="发货前已验，看不出问题")
    opened = call_in(paid, number)
    for side, tint, note in ((By(Actor.BUYER, BUYER), 200, "开封后"), (By(Actor.MERCHANT, "lin"), 90, "出库前")):
        add_evidence(
            merchant_id=paid.merchant.pk,
            case_id=opened.case_id,
            content=a_png(60, 40, tint),
            note=note,
            by=side,
            key=a_key(paid.merchant.pk),
            now=paid.now,
        )
    return ArbitrationCase.objects.get(pk=opened.case_id)


def risky(paid, count: int) -> list[AfterSalesOrder]:
    """Claims of the same buyer that want nearly everything back without a return."""
    rule(paid.now, "all_back_without_return", percent=50)
    made = []
    for number in range(count):
        other = a_paid_order(paid.now, Line(8_000, sku=f"NUT-{number}"), merchant=paid.merchant)
        other.ship(1)
        made.append(apply(other, 1, goods_fen=7_000, reason_code="damaged"))
    return made


def send(page: Page) -> None:
    page.locator("form[data-once] button[type=submit]").click()


def test_risk_and_arbitration(page: Page, live_server, log_in, console, shot, paid, case):
    first, second, third = risky(paid, 3)
    log_in(a_person(role=Role.OPERATIONS, now=paid.now, username="ops"))
    waiting = "[data-waiting='aftersales.{}'] .q-card-number"
    expect(page.locator(waiting.format("risk"))).to_have_text("3")
    expect(page.locator(waiting.format("arbitration"))).to_have_text("1")
    shot("day-operations-zh")

    # One is harmless, one is not, and the third a colleague decides while she still reads.
    page.locator("[data-waiting='aftersales.risk']").click()
    expect(page.locator("#result_list tbody tr.data-row")).to_have_count(3)
    shot("risk-queue-zh")
    for claim, button, why in ((first, "clear", "老客户，首次破损"), (second, "confirm", "照片与商品不符")):
        page.goto(f"{live_server.url}/admin/aftersales/riskreview/{claim.risk_review.pk}/change/")
        page.locator(f"[data-button={button}]").click()
        page.fill("[name=reason]", why)
        send(page)
        expect(page.locator(f"[data-button={button}]")).to_have_count(0)
    shot("risk-decided-zh")
    page.goto(f"{live_server.url}/admin/aftersales/riskreview/{third.risk_review.pk}/do/confirm/")
    page.fill("[name=reason]", "金额偏高")
    decide_risk(
        merchant_id=paid.merchant.pk,
        after_sales_no=third.after_sales_no,
        clear=True,
        reason="已电话核实",
        by=By(Actor.PLATFORM, "chen"),
        key=a_key(paid.merchant.pk),
        now=clock.now(),
    )
    send(page)
    expect(page.locator("[data-button=confirm]")).to_have_count(0)
    states = {claim.after_sales_no: RiskReview.objects.get(after_sales=claim).state for claim in (first, second, third)}
    assert list(states.values()) == ["CLEARED", "CONFIRMED", "CLEARED"]
    assert [AfterSalesOrder.objects.get(pk=claim.pk).held_for_review for claim in (first, second)] == [False, True]

    # The case: both sides' images, large and by keyboard; then the decision, with what is left before it is sent.
    page.goto(f"{live_server.url}/admin/aftersales/arbitrationcase/{case.pk}/change/")
    expect(page.locator(".as-images img")).to_have_count(2)
    page.locator(".as-images a").first.click()
    expect(page.locator("dialog.q-viewer p")).to_contain_text("1 / 2")
    page.keyboard.press("ArrowRight")
    expect(page.locator("dialog.q-viewer p")).to_contain_text("出库前")
    page.keyboard.press("Escape")
    expect(page.locator("dialog.q-viewer")).to_have_count(0)
    shot("arbitration-case-zh")
    page.locator("[data-button=decide]").click()
    expect(page.locator(".q-question")).to_contain_text("¥171.67")
    page.fill("[name=goods_fen]", "9999")
    page.fill("[name=freight_fen]", "5")
    page.select_option("[name=responsible]", "merchant")
    page.fill("[name=decision]", "照片显示受潮，支持买家。")
    send(page)
    expect(page.locator("form[data-once]")).to_be_visible()
    assert ArbitrationCase.objects.get().state == "OPEN", "more than there is was refused"
    page.fill("[name=goods_fen]", "166.67")
    shot("arbitration-decide-zh")
    page.locator("form[data-once] button[type=submit]").dblclick()
    expect(page.locator("[data-button=decide]")).to_have_count(0)
    shot("arbitration-decided-zh")

    awarded = AfterSalesOrder.objects.get(origin="arbitration")
    assert (awarded.status, awarded.approved_total_fen) == ("REFUNDING", 17167)
    assert StaffAction.objects.filter(action="decide", outcome="done").count() == 1, "a double click decides once"
    page.goto(f"{live_server.url}/admin/")
    expect(page.locator(waiting.format("arbitration"))).to_have_text("0")
    page.goto(f"{live_server.url}/admin/aftersales/riskrule/")
    shot("risk-rules-zh")
    page.goto(f"{live_server.url}/admin/aftersales/aftersalesorder/{second.pk}/change/")
    shot("after-sales-risk-zh")
    assert console == []


def test_a_colleague_was_quicker_and_has_a_name(page: Page, client, live_server, log_in, paid, case):
    chen = a_person(role=Role.OPERATIONS, now=paid.now, username="chen")
    log_in(a_person(role=Role.OPERATIONS, now=paid.now, username="ops"))
    address = f"/admin/aftersales/arbitrationcase/{case.pk}/do/decide/"
    page.goto(f"{live_server.url}{address}")
    page.fill("[name=goods_fen]", "100")
    page.fill("[name=decision]", "支持买家")
    client.force_login(chen.user, backend="django.contrib.auth.backends.ModelBackend")
    entered = {
        "goods_fen": "0",
        "freight_fen": "0",
        "responsible": "buyer",
        "decision": "维持原判",
        "seen_version": "1",
    }
    assert client.post(address, {"once": "a" * 32, **entered}).status_code == 302
    send(page)
    expect(page.locator("body")).to_contain_text("chen")
    expect(page.locator("body")).to_contain_text("刚刚处理过")
    assert ArbitrationCase.objects.get().awarded_goods_fen == 0
