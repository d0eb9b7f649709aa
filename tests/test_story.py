"""The whole main job on a Quits of its own: over HTTP with the example client, and a merchant in a real browser.

Nothing is mocked: bin/up starts everything, the WeChat driver talks to the simulator's wire, workers do the work.
"""

from __future__ import annotations

import re
import sys
import time
from datetime import date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser

from tests.admin.conftest import browser_type_launch_args  # noqa: F401 (a fixture)
from tests.back_office import BackOffice, visits
from tests.house_in_a_box import ROOT, House

sys.path.insert(0, str(ROOT / "examples"))
from story import DELIVERED, PAID, Story, story_from, wait_until

CHINA = ZoneInfo("Asia/Shanghai")
pytestmark = pytest.mark.slow

NOTIFIES = "[[n.kind, n.verdict] for n in ChannelNotify.objects.filter(out_trade_no='{0}')]"
FORGED = (
    "ChannelNotify.objects.filter(verdict='FORGED', kind='payment').count()"  # whose it claims to be is not believed
)
LOG = "[g.command for g in OrderStatusLog.objects.filter(order__order_no='{0}').order_by('to_version')]"
PAYMENTS = "[[p.status, p.amount_fen, p.trade_no] for p in Payment.objects.filter(order_no='{0}')]"
REFUNDS = """[[a.number, a.status, a.amount_fen] for a in RefundAttempt.objects.filter(payment__order_no='{0}')
    .order_by('created_at')]"""
STOCK = """{{i.sku: [i.sellable, i.reserved, i.defect] for i in StockItem.objects.filter(merchant__code='yunwu',
    sku__in=['NUT-500G', 'TEA-250G'])}}"""
JOURNAL = """[[l.entry.kind, l.account, l.amount_fen] for l in
    JournalLine.objects.filter(entry__order_no='{0}').order_by('entry__posted_at', '-amount_fen')]"""
REDEMPTIONS = "[r.ended_by_id is None for r in CouponRedemption.objects.filter(order_no='{0}')]"
ROLLBACKS = """sorted([r.after_sales.after_sales_no, r.system, r.state] for r in
    Rollback.objects.filter(after_sales__order_no='{0}'))"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory):
    mine = House(var=tmp_path_factory.mktemp("house"))
    mine.start()
    yield mine
    mine.stop()
    assert mine.processes() == {}, "bin/down left processes behind"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("screenshots")


def quiet(_text: str) -> None:
    """The tests need no running commentary."""


def stock_of(house: House) -> dict[str, list[int]]:
    return house.ask(STOCK.format())


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def day_of(text: str) -> date:
    return at(text).astimezone(CHINA).date()


def test_the_story(house: House, browser: Browser, pictures: Path) -> None:
    stock_before = stock_of(house)
    with visits(browser):
        desk = BackOffice.open(browser, house.demo["base_url"], house.login("merchant_owner"))
        story = story_from(house.demo, audit=desk.approve, inspect=desk.receive, say=quiet)
        buy_with_coupon(house, story)
        pay_with_five_callbacks_and_a_forged_one(house, story)
        story.ship_and_sign()
        assert story.read_order()["status"] >= DELIVERED
        assert stock_of(house)["TEA-250G"][0] == stock_before["TEA-250G"][0] - 1

        send_back(story, "tea", line_no=2, refund_fen=17167)
        assert story.read_coupon()["status"] == "USED"
        send_back(story, "nut", line_no=1, refund_fen=8833)
        assert desk.trouble == []
        look_at_every_page(browser, house, story, pictures)
    coupon = wait_until("the coupon", story.returned_coupon)
    assert at(coupon["valid_until"]) == at(story.coupon["valid_until"])
    everything_adds_up(house, story, stock_before)
    reconcile_with_the_channel(house, story)


def buy_with_coupon(house: House, story: Story) -> None:
    story.get_coupon()
    story.ask_price()
    quote = story.quote
    assert quote["payable_fen"] == 26000
    assert [(line["coupon_share_fen"], line["net_fen"], line["freight_share_fen"]) for line in quote["lines"]] == [
        (1667, 8333, 500),
        (3333, 16667, 500),
    ]
    leased = story.read_coupon()
    assert leased["status"] == "LOCKED" and leased["lease_order_no"] == quote["order_no"]
    story.place_order()
    renewed = story.read_coupon()
    assert renewed["state_version"] == leased["state_version"] + 1
    assert at(renewed["lease_expires_at"]) == at(story.order["pay_expires_at"]) > at(leased["lease_expires_at"])


def pay_with_five_callbacks_and_a_forged_one(house: House, story: Story) -> None:
    """The forged one comes first and pays nothing; then the real one, five times at once."""
    story.payment = story.quits.post(
        f"/orders/{story.order_no}/pay", {"user_id": story.user_id, "payer_ref": f"openid-{story.user_id}"}
    )
    number = story.payment["out_trade_no"]
    assert story.payment["client_params"]["paySign"]
    before = house.ask(FORGED)
    forged = story.simulator.post("/control/forge", {"out_trade_no": number})["deliveries"]
    assert [delivery["status"] for delivery in forged] == [401]
    assert house.ask(FORGED) == before + 1
    assert story.read_order()["status"] == 0

    story.simulator.post("/control/faults", {"operation": "notify.payment", "kind": "silent"})
    story.simulator.post("/control/pay", {"out_trade_no": number})
    delivered = story.simulator.post("/control/redeliver", {"out_trade_no": number, "times": 5})["deliveries"]
    assert [delivery["status"] for delivery in delivered] == [204] * 5
    story.wait_for_status(PAID)
    assert house.ask(NOTIFIES.format(number)) == [["payment", "VERIFIED"]] * 5
    assert house.ask(LOG.format(story.order_no)) == ["create", "confirm_paid"]
    payments = house.ask(PAYMENTS.format(story.order_no))
    assert [payment[:2] for payment in payments] == [["PAID", 26000]]
    coupon = story.read_coupon()
    assert coupon["status"] == "USED"
    assert house.ask(REDEMPTIONS.format(story.order_no)) == [True]


def send_back(story: Story, name: str, *, line_no: int, refund_fen: int) -> None:
    story.apply_for_return(name, line_no=line_no)
    story.approve(name)
    story.send_back(name)
    story.receive(name)
    claim = story.read_claim(name)
    assert claim["approved_goods_fen"] + claim["approved_freight_fen"] == refund_fen
    assert [(each["status"], each["amount_fen"]) for each in claim["refund_attempts"]] == [("SUCCESS", refund_fen)]


def everything_adds_up(house: House, story: Story, stock_before: dict[str, list[int]]) -> None:
    order_no = story.order_no
    refunds = house.ask(REFUNDS.format(order_no))
    assert [refund[1:] for refund in refunds] == [["SUCCESS", 17167], ["SUCCESS", 8833]]
    assert sum(refund[2] for refund in refunds) == 26000
    assert len(house.ask(PAYMENTS.format(order_no))) == 1
    wait_until("the rollbacks", lambda: all(row[2] == "DONE" for row in house.ask(ROLLBACKS.format(order_no))))
    assert len(house.ask(ROLLBACKS.format(order_no))) == 10
    assert stock_of(house) == stock_before
    assert house.ask(REDEMPTIONS.format(order_no)) == [False]
    assert house.ask(JOURNAL.format(order_no)) == [
        ["payment", "channel_clearing:wechat", 26000],
        ["payment", "sales", -26000],
        ["refund", "refunds", 17167],
        ["refund", "channel_clearing:wechat", -17167],
        ["refund", "refunds", 8833],
        ["refund", "channel_clearing:wechat", -8833],
    ]
    simulated = story.simulator.get(f"/control/orders/{story.payment['out_trade_no']}")
    assert [refund["amount_fen"] for refund in simulated["refunds"]] == [17167, 8833]
    assert len(simulated["charges"]) == 1


def reconcile_with_the_channel(house: House, story: Story) -> None:
    """The simulator's business clock moves to the next day after ten, when its bills are there."""
    order = story.read_order()
    days = {day_of(order["paid_at"]), *(day_of(story.read_claim(name)["finished_at"]) for name in story.claims)}
    morning = datetime.combine(max(days) + timedelta(days=1), datetime.min.time(), CHINA) + timedelta(
        hours=10, minutes=5
    )
    story.simulator.post("/control/clock", {"to": morning.isoformat()})
    items = matched = 0
    for day in sorted(days):
        done = house.manage("reconcile", "--date", day.isoformat())
        found = re.search(r": (?:DONE|WAITING), (\d+) items, (\d+) matched, \d+ timing, 0 findings", done.stdout)
        assert found, done.stdout + done.stderr
        # The other shop's Alipay day is empty, which is only known after noon of the real clock; nothing else may wait.
        assert {line.split()[1] for line in re.findall(r"no bill yet: (.*)", done.stdout + done.stderr)} <= {"alipay"}
        items, matched = items + int(found[1]), matched + int(found[2])
    assert items == matched >= 3
    assert "refunds yunwu wechat" in house.said[-1]
    again = house.manage("reconcile", "--date", max(days).isoformat())
    assert "0 findings (0 new)" in again.stdout


PAGES = {
    "merchant_owner": {"dashboard": "/admin/", "queue": "/admin/aftersales/aftersalesorder/?tab=audit"},
    "finance": {
        "findings": "/admin/reconciliation/finding/",
        "runs": "/admin/reconciliation/reconciliationrun/",
    },
}


def look_at_every_page(browser, house: House, story: Story, pictures: Path) -> None:
    """Every page of the story at 1280 px and on a phone, in both languages: drawn, not cut off, no error."""
    for language in ("zh", "en"):
        for phone in (False, True):
            kind = f"{language}-{'phone' if phone else '1280'}"
            for role, pages in PAGES.items():
                desk = BackOffice.open(
                    browser, house.demo["base_url"], house.login(role), language=language, phone=phone
                )
                assert desk.page.locator("html").get_attribute("lang") == {"zh": "zh-hans", "en": "en"}[language]
                for name, path in pages.items():
                    desk.visit(path)
                    desk.picture(pictures / f"{name}-{kind}.png")
                if role == "merchant_owner":
                    desk.find_claim(story.claims["tea"])
                    desk.picture(pictures / f"claim-{kind}.png")
                else:
                    for name in ("finding", "reconciliationrun"):
                        desk.visit(f"/admin/reconciliation/{name}/")
                        desk.page.click("#result_list tbody a >> nth=0")
                        desk.picture(pictures / f"{name}-{kind}.png")
                assert desk.trouble == []
                desk.page.context.close()


@pytest.mark.parametrize("first", ["merchant_owner", "finance", "auditor"])
def test_each_role_has_a_dashboard(house: House, browser: Browser, first: str) -> None:
    with visits(browser):
        desk = BackOffice.open(browser, house.demo["base_url"], house.login(first), language="en")
        assert desk.trouble == []


def test_second_start_is_quick(tmp_path_factory: pytest.TempPathFactory, house: House) -> None:
    """On the same data, after an orderly end."""
    house.rest()
    assert house.processes() == {}
    took = house.start()
    assert took <= 8 * slowness(), f"the second start took {took:.1f} s"


def slowness() -> float:
    """How much slower than usual this machine is at the moment: a fixed piece of work against its usual time."""
    began = time.perf_counter()
    sum(number * number for number in range(2_000_000))
    return max(1.0, (time.perf_counter() - began) / 0.12)


def test_killed_in_the_middle(house: House, browser: Browser) -> None:
    """kill -9 of every part in mid-story; the story still ends right, and nothing happens twice."""
    before = stock_of(house)
    with visits(browser):
        desk = BackOffice.open(browser, house.demo["base_url"], house.login("merchant_owner"))
        story = story_from(house.demo, say=quiet)
        story.get_coupon()
        story.ask_price()
        story.place_order()
        story.pay()
        kill(house, "worker")
        story.ship_and_sign()
        story.apply_for_return("tea", line_no=2)
        desk.approve(story.claims["tea"])
        kill(house, "web", "beat")
        story.wait_for_claim("tea", "WAIT_BUYER_RETURN")
        story.send_back("tea")
        desk.receive(story.claims["tea"])
        kill(house, "valkey")
        story.wait_for_claim("tea", "REFUND_SUCCESS", seconds=90)
        story.apply_for_return("nut", line_no=1)
        desk.approve(story.claims["nut"])
        story.send_back("nut")
        desk.receive(story.claims["nut"])
        kill(house, "postgres")
        wait_until("every part to run again", lambda: sum(map(len, house.processes().values())) > 8, seconds=60)
        assert house.kill_everything() > 8
        house.start()
        story.wait_for_claim("nut", "REFUND_SUCCESS", seconds=90)
    wait_until("the coupon", story.returned_coupon, seconds=60)
    everything_adds_up(house, story, before)


def kill(house: House, *parts: str) -> None:
    for part in parts:
        assert house.kill(part), f"{part} did not run"
    house.run("up", "--detach", "--port", str(house.port), check=False)
    wait_until(f"{', '.join(parts)} to be back", lambda: is_ready(house), seconds=60)


def is_ready(house: House) -> bool:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(f"{house.demo['base_url']}/readyz", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False
