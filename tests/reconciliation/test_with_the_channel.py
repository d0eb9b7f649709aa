"""Reconciliation against real bills of the simulator, and repairs that ask it."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from payments.commands.download_bill import download_bill
from payments.models import ChannelBill, Payment, RefundAttempt
from payments.simulator.client import SimulatorClient
from payments.simulator.keys import wechat_account
from reconciliation.commands.reconcile_day import reconcile_day
from reconciliation.commands.repair_finding import repair_finding
from reconciliation.models import Finding, ReconciliationRun
from tests.payments.wire.conftest import Running
from tests.reconciliation.books import DAY, Books, at

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
    client.settings(auto_settle=False, refund_delay_seconds=0.0, bills_always_ready=True, offset_seconds=0.0)
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
    assert (result.state, result.items, result.matched, result.findings_seen) == ("DONE", 3, 3, 0)
    assert {bill.kind: bill.state for bill in ChannelBill.objects.all()} == {"trade": "PARSED", "refund": "PARSED"}
    again = look()
    assert (again.run_id, again.items) == (result.run_id, 3)
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
    assert early.waiting == ["yunwu wechat trade", "yunwu wechat refund"]
    overdue = look(now=at(10, 20, day=NEXT))
    trading.shop.work_off(now=at(10, 21, day=NEXT))
    assert {rule for rule, _key in unfinished()} == {"BILL_MISSING"} and overdue.state == "WAITING"
    channel.clock(to=at(10, 40, day=NEXT).isoformat())
    late = look(now=at(10, 40, day=NEXT))
    assert (late.run_id, late.state, late.findings_seen, unfinished()) == (early.run_id, "DONE", 0, set())


def test_a_corrupt_bill_is_downloaded_again(trading: Books, channel: SimulatorClient) -> None:
    trading.refund(trading.sale())
    channel.fault("wechat.billdownload", "corrupt_bill")
    first = look()
    assert first.state == "WAITING"
    assert {rule for rule, _key in unfinished()} <= {"BILL_CORRUPT", "BILL_MISSING"} and unfinished()
    rule = next(iter(unfinished()))[0]
    assert repair(rule) == "RESOLVED"
    assert look().findings_seen == 0


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
