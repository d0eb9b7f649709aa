"""Honest books to plant a fault in: sales and refunds through the real commands, and the bill a channel would give."""

from __future__ import annotations

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
    def open(cls, *, simulator: Any = None, account: dict[str, Any] | None = None) -> Books:
        merchant_id = found_shop(front=NUTS, now=at(8, day=DAY - timedelta(days=10))).merchant_id
        given = account or {"mchid": "1900000109", "app_id": "wx0000000000000009", "settings": {}, "secrets": {}}
        save_account(
            merchant_id=merchant_id,
            channel="wechat",
            mchid=given["mchid"],
            app_id=given["app_id"],
            settings={**given["settings"], "pace": {"refund_spacing_seconds": 0, "query_after_seconds": 0}},
            secret_values=given["secrets"],
            now=at(8, day=DAY - timedelta(days=10)),
        )
        return cls(Shop(merchant_id=merchant_id, code="yunwu", simulator=simulator))

    @property
    def account(self) -> ChannelAccount:
        return ChannelAccount.objects.get(merchant_id=self.shop.merchant_id, channel="wechat")

    # -- business ----------------------------------------------------------------------------------------------

    def sale(self, *, now: datetime = MORNING, coupon: bool = False, buyer: str = "lin", pay: bool = True) -> Order:
        """Tea and nuts; with the coupon 260.00, without 300.00."""
        coupon_id = self.shop.give_coupon(user_id(buyer), "TEA-300-50", now=now) if coupon else None
        lines = [NUTS.goods["nut"].line(), NUTS.goods["tea"].line()]
        more = {"coupon_id": coupon_id, "freight_fen": 1000} if coupon else {}
        return self.shop.buy(user_id(buyer), lines, now=now, pay=pay, **more)

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
        """Honest bills of these days: every payment on its day, every refund on the day it was accepted."""
        for day in days or (DAY,):
            self._bill("trade", day)
            self._bill("refund", day)
        for payment in Payment.objects.filter(merchant_id=self.shop.merchant_id, status="PAID", channel="wechat"):
            if ("trade", channel_day(payment.paid_at)) in self.bills:
                self.bill_payment(payment)
        for attempt in RefundAttempt.objects.filter(merchant_id=self.shop.merchant_id, status="SUCCESS"):
            accepted = attempt.created_at
            if ("refund", channel_day(accepted)) in self.bills:
                same_day = channel_day(attempt.finished_at) == channel_day(accepted)
                self.bill_refund(attempt, on=channel_day(accepted), state="SUCCESS" if same_day else "PROCESSING")

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

    def bill_payment(self, payment: Payment, **changes: Any) -> BillLine:
        values = {
            "kind": "payment",
            "out_trade_no": payment.out_trade_no,
            "trade_no": payment.trade_no,
            "amount_fen": payment.amount_fen,
            "trade_state": "SUCCESS",
        }
        return self.bill_line("trade", channel_day(payment.paid_at or at(12)), **{**values, **changes})

    def bill_refund(
        self, attempt: RefundAttempt, *, on: date = DAY, state: str = "SUCCESS", **changes: Any
    ) -> BillLine:
        values = {
            "kind": "refund",
            "refund_no": attempt.number,
            "refund_id": "5030" + attempt.number,
            "out_trade_no": attempt.payment.out_trade_no,
            "trade_no": attempt.payment.trade_no,
            "amount_fen": attempt.amount_fen,
            "refund_state": state,
        }
        return self.bill_line("refund", on, **{**values, **changes})

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

    def found(self) -> set[tuple[str, str]]:
        """(rule, key) of everything that is not finished."""
        return set(Finding.objects.filter(state__in=UNFINISHED).values_list("rule", "key"))


def careless(*statements: str, tables: tuple[str, ...] = (), **params: Any) -> None:
    """What a careless operator does by hand: the triggers of the tables off, the statements, the triggers on again.

    Keys between tables that would refuse the statement are dropped and come back unvalidated.
    """
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
