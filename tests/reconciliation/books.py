"""Honest books to plant a fault in: sales and refunds through the real commands, and the bill a channel would give."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from aftersales.models import AfterSalesOrder
from demo.catalogue import NUTS, user_id
from demo.commands.found_shop import found_shop
from demo.shop import Shop, day_at
from kernel import numbers
from kernel.clock import channel_day
from orders.models import Order
from payments.commands.save_account import save_account
from payments.models import BillLine, ChannelAccount, ChannelBill, Payment, RefundAttempt
from reconciliation.commands.look_at_changes import look_at_changes
from reconciliation.commands.repair_finding import repair_finding
from reconciliation.commands.run_reconciliation import Reconciled, run_reconciliation
from reconciliation.models import Finding

DAY = date(2026, 11, 27)
UNFINISHED = Finding.UNFINISHED


def at(hour: int, minute: int = 0, *, day: date = DAY) -> datetime:
    """A moment of the day under test, in Shanghai."""
    return day_at(day, hour, minute)


MORNING, AFTERNOON = at(10), at(14)


@dataclass
class Books:
    """One shop, its channel's truth, and what reconciliation says about both."""

    shop: Shop
    bills: dict[tuple[str, date], ChannelBill] = field(default_factory=dict)

    @classmethod
    def open(cls, *, simulator: Any = None, account: dict[str, Any] | None = None, before: date = DAY) -> Books:
        _BEFORE.clear()
        merchant_id = found_shop(front=NUTS, now=at(8, day=before - timedelta(days=10))).merchant_id
        given = account or {"mchid": "1900000109", "app_id": "wx0000000000000009", "settings": {}, "secrets": {}}
        save_account(
            merchant_id=merchant_id,
            channel="wechat",
            mchid=given["mchid"],
            app_id=given["app_id"],
            settings={**given["settings"], "pace": {"refund_spacing_seconds": 0, "query_after_seconds": 0}},
            secret_values=given["secrets"],
            now=at(8, day=before - timedelta(days=10)),
        )
        return cls(Shop(merchant_id=merchant_id, code="yunwu", simulator=simulator))

    @property
    def account(self) -> ChannelAccount:
        return ChannelAccount.objects.get(merchant_id=self.shop.merchant_id, channel="wechat")

    @property
    def account_key(self) -> str:
        """How findings name the account."""
        return f"yunwu:{self.account.mchid}"

    # -- business ----------------------------------------------------------------------------------------------

    def sale(
        self, *, now: datetime = MORNING, coupon: bool = False, buyer: str = "lin", pay: bool = True, **way: Any
    ) -> Order:
        """Tea and nuts; with the coupon 260.00, without 300.00."""
        coupon_id = self.shop.give_coupon(user_id(buyer), "TEA-300-50", now=now) if coupon else None
        lines = [NUTS.goods["nut"].line(), NUTS.goods["tea"].line()]
        more = {"coupon_id": coupon_id, "freight_fen": 1000} if coupon else {}
        return self.shop.buy(user_id(buyer), lines, now=now, pay=pay, **more, **way)

    def claim(self, order: Order, *, line_no: int = 2, now: datetime = AFTERNOON) -> AfterSalesOrder:
        """A refund before shipping, approved, not yet executed."""
        claim = self.shop.claim(order, line_no=line_no, type=1, reason="changed_mind", now=now)
        return self.shop.approve(claim, now=now + timedelta(minutes=10))

    def refund(self, order: Order, *, line_no: int = 2, now: datetime = AFTERNOON, **more: Any) -> AfterSalesOrder:
        claim = self.claim(order, line_no=line_no, now=now)
        return self.shop.refund(claim, now=now + timedelta(minutes=12), **more)

    def attempt(self, claim: AfterSalesOrder) -> RefundAttempt:
        return RefundAttempt.objects.get(request__owner_no=claim.after_sales_no)

    # -- the channel's side ------------------------------------------------------------------------------------

    def bill_days(self, *days: date) -> None:
        """Honest bills of these days: every payment on its day, every refund on the day it was accepted, and the
        movements of the account that both of them are."""
        for day in days or (DAY,):
            for kind in ("trade", "refund", "fundflow"):
                self._bill(kind, day)
        wanted = days or (DAY,)
        for payment in Payment.objects.filter(merchant_id=self.shop.merchant_id, status="PAID", channel="wechat"):
            if channel_day(payment.paid_at) in wanted:
                self.bill_payment(payment)
        for attempt in RefundAttempt.objects.filter(merchant_id=self.shop.merchant_id, status="SUCCESS"):
            accepted = attempt.created_at
            if channel_day(accepted) in wanted:
                same_day = channel_day(attempt.finished_at) == channel_day(accepted)
                self.bill_refund(attempt, on=channel_day(accepted), state="SUCCESS" if same_day else "PROCESSING")
        self.balance()

    def _bill(self, kind: str, day: date) -> ChannelBill:
        bill = self.bills[kind, day] = ChannelBill.objects.create(
            id=numbers.uuid7(),
            merchant_id=self.shop.merchant_id,
            account=self.account,
            channel="wechat",
            kind=kind,
            bill_on=day,
            state="PARSED",
            sha1="0" * 40,
            downloaded_at=at(10, day=day + timedelta(days=1)),
            created_at=at(10, day=day + timedelta(days=1)),
        )
        return bill

    def bill_line(self, bill_kind: str, day: date, **values: Any) -> BillLine:
        bill = self.bills[bill_kind, day]
        return BillLine.objects.create(
            bill=bill,
            merchant_id=self.shop.merchant_id,
            channel="wechat",
            row_no=bill.lines.count() + 1,
            **{"occurred_at": at(12, day=day), **values},
        )

    def move(
        self, day: date, *, trade_no: str, reference: str, fen: int, kind: str, income: bool, **changes: Any
    ) -> BillLine:
        """A line of the fund-flow bill. Its balance is only right after `balance`."""
        return self.bill_line(
            "fundflow",
            day,
            kind="flow",
            trade_no=trade_no,
            reference=reference,
            amount_fen=fen,
            trade_state=kind,
            is_income=income,
            **changes,
        )

    def balance(self) -> None:
        """Every balance of the account follows from the movement before it, across all days."""
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE bill_line l SET balance_fen = x.balance FROM (SELECT m.id, 1000000 + sum("
                "CASE WHEN m.is_income THEN m.amount_fen ELSE -m.amount_fen END) OVER (ORDER BY b.bill_on, m.row_no)"
                " AS balance FROM bill_line m JOIN channel_bill b ON b.id = m.bill_id WHERE m.kind = 'flow') x"
                " WHERE x.id = l.id"
            )

    def bill_payment(self, payment: Payment, *, moves: bool = True, **changes: Any) -> BillLine:
        """The payment in the trade bill, and (`moves`) in the fund flow."""
        values = {
            "kind": "payment",
            "out_trade_no": payment.out_trade_no,
            "trade_no": payment.trade_no,
            "amount_fen": payment.amount_fen,
            "trade_state": "SUCCESS",
        }
        values, day = {**values, **changes}, channel_day(payment.paid_at or at(12))
        if moves:
            self.move(
                day,
                trade_no=values["trade_no"],
                reference=values["out_trade_no"],
                fen=values["amount_fen"],
                kind="交易",
                income=True,
            )
            self.balance()
        return self.bill_line("trade", day, **values)

    def bill_refund(
        self, attempt: RefundAttempt, *, on: date = DAY, state: str = "SUCCESS", moves: bool = True, **changes: Any
    ) -> BillLine:
        """The refund in the refund bill, and in the fund flow unless it failed (or `moves` says no)."""
        values = {
            "kind": "refund",
            "refund_no": attempt.number,
            "refund_id": "5030" + attempt.number,
            "out_trade_no": attempt.payment.out_trade_no,
            "trade_no": attempt.payment.trade_no,
            "amount_fen": attempt.amount_fen,
            "refund_state": state,
        }
        values = {**values, **changes}
        if moves and state != "FAIL":
            self.move(
                on,
                trade_no=values["refund_id"],
                reference=values["refund_no"],
                fen=values["amount_fen"],
                kind="退款",
                income=False,
            )
            self.balance()
        return self.bill_line("refund", on, **values)

    # -- reconciliation ----------------------------------------------------------------------------------------

    def run(self, day: date = DAY, *, now: datetime | None = None, relay: bool = True) -> Reconciled:
        """The daily run; afterwards what it announced is delivered, unless the relay stands still."""
        moment = now or at(10, 30, day=day + timedelta(days=1))
        result = run_reconciliation(on_date=day, now=moment)
        if relay:
            self.shop.work_off(now=moment)
        return result

    def gate(self, *, now: datetime) -> int:
        """One look at what changed: how many findings it opened."""
        opened = look_at_changes(now=now).opened
        self.shop.work_off(now=now)
        return opened

    def finds(self, rule: str, key: str, *, day: date = DAY, now: datetime | None = None) -> Finding:
        """The run finds exactly it, and the next run the same one again, not another."""
        for _time in range(2):
            self.run(day, now=now)
            assert self.found() == {(rule, key)}
        finding = Finding.objects.get(state__in=UNFINISHED)
        assert finding.times_opened == 1
        return finding

    def repaired(self, finding: Finding, *, now: datetime | None = None, at_once: bool = True) -> None:
        """The command helps: the rule's second look resolves the finding, and the next run finds nothing.

        With `at_once` False the repair's events have to be delivered before the rule sees that it helped.
        """
        moment = now or at(11, day=DAY + timedelta(days=1))
        done = repair_finding(finding_id=finding.pk, author_id=None, expected_version=finding.version, now=moment)
        assert done.state == ("RESOLVED" if at_once else "OPEN"), done
        self.shop.work_off(now=moment)
        self.run(finding.on_date or DAY, now=moment)
        assert self.found() == set()

    def mended(self, *, day: date = DAY, now: datetime | None = None) -> None:
        """No command repairs it: the rows as they were before `careless`, and the next run finds nothing."""
        restore()
        self.run(day, now=now)
        assert self.found() == set()
        assert set(Finding.objects.values_list("state", flat=True)) <= {"RESOLVED"}

    def found(self) -> set[tuple[str, str]]:
        """(rule, key) of everything that is not finished."""
        return set(Finding.objects.filter(state__in=UNFINISHED).values_list("rule", "key"))


_BEFORE: dict[str, str] = {}
"""Tables as they were before the first careless statement of the test, as JSON."""


def careless(*statements: str, tables: tuple[str, ...] = (), **params: Any) -> None:
    """What a careless operator does by hand: the triggers of the tables off, the statements, the triggers on again.

    Keys between tables that would refuse the statement are dropped and come back unvalidated. `restore` undoes it.
    """
    targets = [name for each in statements for name in re.findall(r"(?:^UPDATE|INSERT INTO|DELETE FROM) (\w+)", each)]
    for table in targets:
        if table not in _BEFORE:
            _BEFORE[table] = one(f"SELECT coalesce(jsonb_agg(to_jsonb(t)), '[]')::text FROM {table} t")
    _by_hand(*statements, tables=tables, params=params)


def restore() -> None:
    """Every table that careless statements touched, as it was before."""
    statements = []
    for table in _BEFORE:
        columns = one(
            "SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute WHERE attrelid = %(table)s::regclass"
            " AND attnum > 0 AND NOT attisdropped AND attgenerated = ''",
            table=table,
        )
        statements.append(f"DELETE FROM {table}")
        statements.append(
            f"INSERT INTO {table} ({columns}) SELECT {columns}"
            f" FROM jsonb_populate_recordset(NULL::{table}, %({table})s::jsonb)"
        )
    _by_hand(*statements, tables=tuple(_BEFORE), params=dict(_BEFORE))
    _BEFORE.clear()


def _by_hand(*statements: str, tables: tuple[str, ...], params: dict[str, Any]) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        keys = []
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
            cursor.execute(
                "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
                " WHERE conrelid = %s::regclass AND contype = 'f' AND array_length(conkey, 1) > 1",
                [table],
            )
            keys += [(table, *row) for row in cursor.fetchall()]
        for table, name, _definition in keys:
            cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
        for statement in statements:
            cursor.execute(statement, params)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table, name, definition in keys:
            cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition} NOT VALID")
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def one(sql: str, **params: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        row = cursor.fetchone()
        return row[0] if row else None


def new_id() -> UUID:
    return numbers.uuid7()
