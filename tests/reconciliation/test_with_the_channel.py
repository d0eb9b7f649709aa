"""Reconciliation against real bills of the simulator, and repairs that ask it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from kernel import clock
from kernel.clock import channel_day
from kernel.models import OutboxEvent
from payments.commands.download_bill import download_bill
from payments.commands.save_account import save_account
from payments.models import BillLine, ChannelBill, Payment, RefundAttempt
from payments.queries import BILL_KINDS
from payments.simulator.client import SimulatorClient
from payments.simulator.keys import alipay_account, wechat_account
from reconciliation.commands.reconcile_day import reconcile_day
from reconciliation.commands.repair_finding import repair_finding
from reconciliation.models import Finding, FindingSighting, ReconciliationRun, TimingItem
from tests.payments.wire.conftest import Running
from tests.reconciliation.books import DAY, Books, at, careless

ROOT = Path(__file__).parents[2]
NEXT = DAY + timedelta(days=1)
MORNING = at(10, 30, day=NEXT)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(Path(tmp_path_factory.mktemp("channel")))
    running.start()
    yield running
    running.kill()


@pytest.fixture
def channel(process: Running) -> Iterator[SimulatorClient]:
    client = SimulatorClient(process.base_url)
    client.reset()
    client.clear_faults()
    client.settings(auto_settle=False, refund_delay_seconds=0.0, bills_always_ready=True)
    client.settings(offset_seconds=0.0, fee_rate=0.0)
    yield client
    client.close()


@pytest.fixture
def trading(transactional_db, process: Running, channel: SimulatorClient) -> Books:
    keys = json.loads((process.state / "keys.json").read_text())
    return Books.open(simulator=channel, account=wechat_account(keys, 0, channel.base_url))


def look(now=MORNING):
    return reconcile_day(on_date=DAY, now=now)


def unfinished() -> set[tuple[str, str]]:
    return set(Finding.objects.filter(state__in=Finding.UNFINISHED).values_list("rule", "key"))


def repair(rule: str) -> str:
    finding = Finding.objects.get(rule=rule)
    done = repair_finding(finding_id=finding.pk, author_id=None, expected_version=finding.version, now=MORNING)
    if done.state == "REPAIR_REQUESTED":
        finding = Finding.objects.get(rule=rule)
        with pytest.raises(Exception, match="SECOND_PERSON_NEEDED"):
            repair_finding(finding_id=finding.pk, author_id=None, expected_version=finding.version, now=MORNING)
    return done.state


def test_a_day_of_honest_trade(trading: Books) -> None:
    order = trading.sale(coupon=True)
    trading.refund(order), trading.refund(order, line_no=1, now=at(16))
    result = look()
    assert (result.state, result.items, result.matched, result.findings_seen) == ("DONE", 6, 6, 0)
    assert {bill.kind: bill.state for bill in ChannelBill.objects.all()} == dict.fromkeys(BILL_KINDS, "PARSED")
    again = look()
    assert (again.run_id, again.items) == (result.run_id, 6)
    assert ReconciliationRun.objects.count() == 1


def test_an_empty_day(trading: Books) -> None:
    result = look()
    assert (result.state, result.items, result.waiting) == ("DONE", 0, [])
    assert set(ChannelBill.objects.values_list("state", flat=True)) == {"EMPTY"}


def test_a_bill_that_comes_late(trading: Books, channel: SimulatorClient) -> None:
    """Before ten there is none: the run waits and judges nobody. Later the same day ends."""
    trading.refund(trading.sale())
    channel.settings(bills_always_ready=False)
    channel.clock(to=at(9, day=NEXT).isoformat())
    early = look(now=at(9, day=NEXT))
    assert (early.state, early.findings_seen) == ("WAITING", 0)
    assert early.waiting == [f"yunwu wechat {kind}" for kind in BILL_KINDS]
    overdue = look(now=at(10, 20, day=NEXT))
    trading.shop.work_off(now=at(10, 21, day=NEXT))
    assert {rule for rule, _key in unfinished()} == {"BILL_MISSING"} and overdue.state == "WAITING"
    channel.clock(to=at(10, 40, day=NEXT).isoformat())
    late = look(now=at(10, 40, day=NEXT))
    assert (late.run_id, late.state, late.findings_seen, unfinished()) == (early.run_id, "DONE", 0, set())


@pytest.mark.parametrize("kind", BILL_KINDS)
def test_a_corrupt_bill_is_downloaded_again(trading: Books, channel: SimulatorClient, kind: str) -> None:
    """Its bytes do not fit its hash: found as such, its account is not judged, and the repair fetches it again."""
    trading.refund(trading.sale())
    for other in BILL_KINDS:  # the others are there already: the next download is the one to be broken
        if other != kind:
            download_bill(account_id=trading.account.pk, kind=other, bill_on=DAY, now=MORNING)
    channel.fault("wechat.billdownload", "corrupt_bill")
    first = look()
    assert (first.state, first.waiting) == ("WAITING", [f"yunwu wechat {kind}"])
    assert unfinished() == {("BILL_CORRUPT", f"{trading.account_key}:{kind}:{DAY}")}
    assert repair("BILL_CORRUPT") == "RESOLVED"
    assert (look().findings_seen, ReconciliationRun.objects.get().state) == (0, "DONE")


def test_a_refund_whose_callback_was_lost(trading: Books, channel: SimulatorClient) -> None:
    """The channel paid, nobody told us: the bill does, and the repair asks and records."""
    claim = trading.claim(trading.sale())
    trading.shop.refund(claim, to="PROCESSING", now=at(14, 30))
    attempt = RefundAttempt.objects.get()
    channel.clock(to=at(14, 31).isoformat())
    channel.settle(attempt.number)
    look()
    assert unfinished() == {("REFUND_STATUS_DIFFERS", attempt.number)}
    repair("REFUND_STATUS_DIFFERS")
    trading.shop.work_off(now=MORNING)
    assert look().findings_seen == 0
    assert trading.shop.read_claim(claim.after_sales_no).status == "REFUND_SUCCESS"


def test_a_payment_whose_callback_was_lost(trading: Books, channel: SimulatorClient) -> None:
    """Paid at the channel, not here (P0): two people let the channel be asked, and the order is paid."""
    order = trading.sale(pay=False)
    payment = trading.shop.place(order, now=at(10, 2))
    channel.clock(to=at(10, 3).isoformat())
    charge = channel.pay(payment.out_trade_no, notify=False)["charge"]
    look()
    assert unfinished() == {("PAYMENT_NOT_RECORDED", charge["trade_no"])}
    finding = Finding.objects.get()
    from django.contrib.auth.models import User

    mei, bo = (User.objects.create(username=name) for name in ("mei", "bo"))
    asked = repair_finding(finding_id=finding.pk, author_id=mei.pk, expected_version=1, now=MORNING)
    assert asked.state == "REPAIR_REQUESTED"
    repair_finding(finding_id=finding.pk, author_id=bo.pk, expected_version=2, now=MORNING)
    trading.shop.work_off(now=MORNING)
    assert Payment.objects.get().status == "PAID"
    assert look().findings_seen == 0


def test_somebody_refunded_at_the_channels_own_site(trading: Books) -> None:
    from payments.registry import gateway_for

    order = trading.sale()
    payment = Payment.objects.get(order_no=order.order_no)
    gateway_for(trading.account).refund(
        refund_no="HAND-1",
        out_trade_no=payment.out_trade_no,
        amount_fen=1200,
        total_fen=payment.amount_fen,
        reason="by hand",
        notify_url="https://example.invalid/none",
        now=at(11),
    )
    look()
    assert unfinished() == {("REFUND_MISSING_HERE", "HAND-1")}
    assert Finding.objects.get().amount_fen == 1200


@pytest.mark.parametrize(
    ("fault", "more", "rule"),
    [
        ("bill_omit", {}, "REFUND_MISSING_AT_CHANNEL"),
        ("bill_amount", {"amount_fen": 777}, "REFUND_AMOUNT_DIFFERS"),
        ("bill_twice", {}, "REFUND_TWICE"),
    ],
)
def test_a_good_bill_that_says_something_else(
    trading: Books, channel: SimulatorClient, fault: str, more: dict, rule: str
) -> None:
    """The channel's own bill is wrong about one refund; the next download is right, and the finding ends."""
    claim = trading.refund(trading.sale())
    number = f"{claim.after_sales_no}-0"
    channel.fault("wechat.tradebill", fault, times=2, number=number, **more)
    look()
    key = claim.after_sales_no if rule == "REFUND_TWICE" else number
    assert unfinished() == {(rule, key)}
    channel.clear_faults()
    bill = ChannelBill.objects.get(kind="refund")
    download_bill(account_id=bill.account_id, kind="refund", bill_on=DAY, again=True, now=MORNING)
    assert look().findings_seen == 0 and unfinished() == set()


@pytest.mark.parametrize(
    ("fault", "more", "rule", "amount_fen"),
    [
        ("bill_omit", {}, "FLOW_MISSING", 20000),
        ("bill_amount", {"amount_fen": 777}, "FLOW_AMOUNT_DIFFERS", 19223),
        ("bill_twice", {}, "FLOW_TWICE", 20000),
    ],
)
def test_a_fund_flow_that_says_something_else(
    trading: Books, channel: SimulatorClient, fault: str, more: dict, rule: str, amount_fen: int
) -> None:
    """The trade bills are right, the account is not: exactly that is found, and ends with a better bill."""
    claim = trading.refund(trading.sale())
    number = f"{claim.after_sales_no}-0"
    channel.fault("wechat.fundflowbill", fault, number=number, **more)
    look()
    assert unfinished() == {(rule, f"refund:{number}")}
    assert Finding.objects.get().amount_fen == amount_fen
    _another_fund_flow(trading)


def test_money_that_left_the_account_for_something_else(trading: Books, channel: SimulatorClient) -> None:
    trading.refund(trading.sale())
    said = {"number": "P1", "side": "支出", "amount_fen": 5000}
    channel.fault("wechat.fundflowbill", "bill_extra", business="企业付款", **said)
    look()
    row_no = BillLine.objects.get(kind="flow", reference="P1").row_no
    assert unfinished() == {("FLOW_OTHER_KIND", f"{trading.account_key}:{DAY}:{row_no}")}
    _another_fund_flow(trading)
    channel.fault("wechat.fundflowbill", "bill_extra", business="退款", **said)
    _another_fund_flow(trading, ends=False)
    assert unfinished() == {("FLOW_NOT_OURS", "refund:P1")}
    _another_fund_flow(trading)


def _another_fund_flow(trading: Books, *, ends: bool = True) -> None:
    download_bill(account_id=trading.account.pk, kind="fundflow", bill_on=DAY, again=True, now=MORNING)
    result = look()
    assert not ends or (result.findings_seen == 0 and unfinished() == set())


def test_fees_of_the_channel(trading: Books, channel: SimulatorClient) -> None:
    """0.6 % of each payment stays at the channel, and comes back with its refund: trade bills and account agree."""
    channel.settings(fee_rate=0.006)
    trading.refund(trading.sale())
    assert look().findings_seen == 0
    rows = {row["kind"]: row for row in ReconciliationRun.objects.get().totals["flows"]}
    assert (rows["fee"]["ours_fen"], rows["fee"]["theirs_fen"], rows["fee"]["theirs_count"]) == (60, 60, 2)
    assert rows["closing"]["theirs_fen"] - rows["opening"]["theirs_fen"] == 30000 - 20000 - 60


def test_a_voucher_of_the_channel(trading: Books, channel: SimulatorClient) -> None:
    """The channel's voucher never reaches the account; trade bill, fund flow and we agree nevertheless."""
    order = trading.sale(pay=False)
    payment = trading.shop.place(order, now=at(10, 2))
    channel.clock(to=at(10, 3).isoformat())
    channel.pay(payment.out_trade_no, voucher_fen=1000, notify=False)
    look()
    finding = Finding.objects.get()
    assert finding.rule == "PAYMENT_NOT_RECORDED"
    from django.contrib.auth.models import User

    for version, name in enumerate(("mei", "bo"), 1):
        person = User.objects.create(username=name)
        repair_finding(finding_id=finding.pk, author_id=person.pk, expected_version=version, now=MORNING)
    trading.shop.work_off(now=MORNING)
    assert look().findings_seen == 0
    rows = {row["kind"]: row for row in ReconciliationRun.objects.get().totals["flows"]}
    assert (rows["payment"]["ours_fen"], rows["payment"]["theirs_fen"]) == (29000, 29000)


def test_days_in_a_row_and_the_same_bills_again(trading: Books, channel: SimulatorClient) -> None:
    """The balance of each day begins where the day before ended; a bill that comes again changes nothing."""
    claim = trading.claim(trading.sale(), now=at(23, 40))
    trading.shop.refund(claim, now=at(23, 58), done_at=at(0, 3, day=NEXT))
    trading.sale(now=at(9, day=NEXT), buyer="chen")
    for day in (DAY, NEXT):
        assert reconcile_day(on_date=day, now=at(11, day=NEXT + timedelta(days=1))).findings_seen == 0
    before = dict(ChannelBill.objects.values_list("id", "sha1"))
    assert ChannelBill.objects.filter(state="PARSED").count() >= 5
    for bill in ChannelBill.objects.all():
        download_bill(
            account_id=bill.account_id, kind=bill.kind, bill_on=bill.bill_on, again=True, now=at(12, day=NEXT)
        )
    assert dict(ChannelBill.objects.values_list("id", "sha1")) == before
    assert reconcile_day(on_date=NEXT, now=at(12, day=NEXT + timedelta(days=1))).findings_seen == 0
    opening, closing = (
        next(row["theirs_fen"] for row in run.totals["flows"] if row["kind"] == kind)
        for run, kind in zip(ReconciliationRun.objects.order_by("-on_date"), ("opening", "closing"), strict=True)
    )
    assert opening == closing


def test_refunding_for_long(trading: Books, channel: SimulatorClient) -> None:
    """The channel took its time and its callback was lost: the repair asks it, and the claim ends."""
    claim = trading.claim(trading.sale())
    trading.shop.refund(claim, to="PROCESSING", now=at(14, 30))
    assert look().findings_seen == 0
    later = at(10, 30, day=NEXT + timedelta(days=1))
    channel.clock(to=later.isoformat())
    assert reconcile_day(on_date=NEXT, now=later).findings_seen == 1
    assert unfinished() == {("CLAIM_REFUNDING_LONG", claim.after_sales_no)}
    channel.settle(RefundAttempt.objects.get().number)
    finding = Finding.objects.get()
    repair_finding(finding_id=finding.pk, author_id=None, expected_version=finding.version, now=later)
    trading.shop.work_off(now=later)
    assert reconcile_day(on_date=NEXT, now=later).findings_seen == 0 and unfinished() == set()
    assert trading.shop.read_claim(claim.after_sales_no).status == "REFUND_SUCCESS"


def test_a_day_of_honest_trade_on_alipay(trading: Books, process: Running, channel: SimulatorClient) -> None:
    """Its fund flow lies in a zip of its own; the second day's balance goes on from the first."""
    keys = json.loads((process.state / "keys.json").read_text())
    made = alipay_account(keys, 0, channel.base_url)
    founded = at(8, day=DAY - timedelta(days=9))
    save_account(
        merchant_id=trading.shop.merchant_id,
        channel="alipay",
        mchid=made["mchid"],
        app_id=made["app_id"],
        settings={**made["settings"], "pace": {"refund_spacing_seconds": 0, "query_after_seconds": 0}},
        secret_values=made["secrets"],
        now=founded,
    )
    trading.refund(trading.sale(pay_method="alipay"))
    trading.sale(pay_method="alipay", now=at(9, day=NEXT), buyer="chen")
    noon = at(13, day=NEXT + timedelta(days=1))
    channel.clock(to=noon.isoformat())
    for day, closing in ((DAY, 10000), (NEXT, 40000)):
        result = reconcile_day(on_date=day, now=noon)
        assert (result.state, result.findings_seen, result.items) == ("DONE", 0, result.matched), unfinished()
        rows = ReconciliationRun.objects.get(pk=result.run_id).totals["flows"]
        mine = {row["kind"]: row["theirs_fen"] for row in rows if row["channel"] == "alipay"}
        assert mine["closing"] - 100_000_000 == closing


# -- killed --------------------------------------------------------------------------------------------------------


def database() -> str:
    address = urlsplit(os.environ["DATABASE_OWNER_URL"])
    return urlunsplit(address._replace(path="/" + connection.settings_dict["NAME"]))


def start(day: date) -> subprocess.Popen[str]:
    """The command as people and beat run it: a process of its own, on the real clock."""
    return subprocess.Popen(
        [sys.executable, "manage.py", "reconcile", "--date", day.isoformat()],
        cwd=ROOT,
        env={
            **os.environ,
            "DATABASE_URL": database(),
            "DATABASE_OWNER_URL": database(),
            "REDIS_URL": settings.REDIS_URL,
            "QUITS_PROCESS": "killed",
            "QUITS_LOG_LEVEL": "CRITICAL",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kill_when_it_reaches(table: str, day: date) -> None:
    """kill -9 while the run stands before `table`, which somebody has locked; then whatever it held is given up."""
    waits = (
        "SELECT a.pid FROM pg_stat_activity a LEFT JOIN pg_locks l ON l.pid = a.pid AND NOT l.granted"
        " AND l.relation = %s::regclass WHERE a.application_name = 'quits-killed' AND a.datname = current_database()"
        " AND (l.pid IS NOT NULL OR %s)"
    )
    with psycopg.connect(database()) as holder, psycopg.connect(database(), autocommit=True) as watcher:
        holder.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        run = start(day)
        wait_until(lambda: run.poll() is not None or watcher.execute(waits, [table, False]).fetchone())
        assert run.poll() is None, run.communicate()
        run.kill()
        run.wait()
        holder.rollback()
        wait_until(lambda: not watcher.execute(waits, [table, True]).fetchone())


def wait_until(come_true: Callable[[], Any]) -> None:
    for _ in range(3000):
        if come_true():
            return
        time.sleep(0.02)
    raise AssertionError("nothing happened for a minute")


def everything() -> dict[str, Any]:
    """What a run leaves behind, without its times."""
    run = ReconciliationRun.objects.get()
    return {
        "run": (run.state, run.items, run.matched, run.timing, run.findings_seen, run.totals),
        "findings": list(
            Finding.objects.order_by("rule").values("rule", "key", "state", "times_opened", "ours", "theirs")
        ),
        "sightings": FindingSighting.objects.count(),
        "timing": TimingItem.objects.count(),
        "alarms": OutboxEvent.objects.filter(name="finding.opened").count(),
        "bills": list(ChannelBill.objects.order_by("kind").values("kind", "state", "sha1", "row_count")),
        "lines": BillLine.objects.count(),
    }


def test_killed_and_run_again(transactional_db, process: Running, channel: SimulatorClient) -> None:
    """While a bill is read, within a comparison, between the state rules: whatever was killed, the next run ends in
    the same rows as one that nobody disturbed, and nothing is found or told twice."""
    yesterday = channel_day(clock.now()) - timedelta(days=1)
    keys = json.loads((process.state / "keys.json").read_text())
    account = wechat_account(keys, 0, channel.base_url)
    trading = Books.open(simulator=channel, account=account, before=yesterday)
    order = trading.sale(now=at(10, day=yesterday))
    claim = trading.refund(order, now=at(14, day=yesterday))
    midnight = at(0, day=yesterday + timedelta(days=1))  # the real clock is never a day past it: not "refunding long"
    late = trading.claim(order, line_no=1, now=midnight - timedelta(seconds=2))
    trading.shop.refund(late, to="PROCESSING", now=midnight - timedelta(seconds=1))
    number = f"{claim.after_sales_no}-0"
    channel.fault("wechat.tradebill", "bill_omit", times=-1, number=number)
    channel.clock(to=clock.now().isoformat())
    careless("UPDATE stock_item SET sellable = sellable + 1 WHERE sku = 'TEA-250G'", tables=("stock_item",))

    for table in ("bill_line", "reconciliation_timing_item", "after_sales_log"):
        kill_when_it_reaches(table, yesterday)
    assert unfinished() == {("REFUND_MISSING_AT_CHANNEL", number)}, "only what was committed before the last kill"
    assert ReconciliationRun.objects.get().state == "RUNNING"
    looks = []
    for _time in range(2):
        run = start(yesterday)
        said, _nothing = run.communicate()
        assert run.returncode == 1, said
        looks.append(seen := everything())
        assert unfinished() == {("REFUND_MISSING_AT_CHANNEL", number), ("STOCK_DIFFERS", "TEA-250G")}, said
        assert (seen["run"][0], seen["sightings"], seen["timing"], seen["alarms"]) == ("DONE", 2, 1, 2), said
        assert {row["times_opened"] for row in seen["findings"]} == {1}
    assert looks[0] == looks[1]
