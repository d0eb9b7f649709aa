"""Fetch one day's bill of one account, check it, keep it, read its rows."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import islice
from uuid import UUID

from kernel import errors, numbers
from kernel.transactions import is_outermost, unit_of_work
from payments.gateway import BillFile, BillKind, BillRow, BillState, ChannelRefused, ChannelUnknown, Doubt, Gateway
from payments.models import BillLine, ChannelAccount, ChannelBill
from payments.registry import gateway_for

PAGE = 2000
RETRY_AFTER = timedelta(minutes=10)
"""A bill that is not there yet, or could not be had, is asked for again after this."""


@dataclass(frozen=True)
class BillDownloaded:
    bill_id: UUID
    state: str
    row_count: int
    amount_fen: int
    replayed: bool = False


def download_bill(*, account_id: UUID, kind: str, bill_on: date, again: bool = False, now: datetime) -> BillDownloaded:
    """Once EMPTY or PARSED the stored bill is returned (`replayed`), unless `again`. Never inside a transaction.

    The channel's hash is checked by the driver and the bill's own summary against its rows; only when both agree are
    the rows (streamed, 2000 at a time) and PARSED written, in one transaction. The same bill again changes nothing;
    another one replaces the rows. Not there yet → WAITING; hash, archive or sums wrong → CORRUPT; both tried again.
    Raises NotFound (account).
    """
    if not is_outermost():
        raise RuntimeError("a bill is never downloaded inside a transaction")
    account = ChannelAccount.objects.filter(id=account_id).first()
    if account is None:
        raise errors.NotFound(account_id=str(account_id))
    known = ChannelBill.objects.filter(account=account, kind=kind, bill_on=bill_on).defer("raw").first()
    if known is not None and known.state in ("EMPTY", "PARSED") and not again:
        return _result(known, replayed=True)
    gateway = gateway_for(account)
    try:
        bill = gateway.download_bill(kind=BillKind(kind), bill_on=bill_on, now=now)
    except (ChannelRefused, ChannelUnknown) as error:
        broken = isinstance(error, ChannelUnknown) and error.reason is Doubt.CORRUPT_BILL
        state = "CORRUPT" if broken else "WAITING"
        return _result(_store_state(account, kind, bill_on, state, error=str(error), now=now))
    if bill.state is BillState.CREATING:
        return _result(_store_state(account, kind, bill_on, "WAITING", error="", now=now))
    if bill.state is BillState.EMPTY:
        return _result(_store_state(account, kind, bill_on, "EMPTY", error="", now=now))
    if known is not None and known.state == "PARSED" and known.sha1 == bill.sha1:
        return _result(known, replayed=True)
    try:
        return _result(_store_rows(account, gateway, bill, now=now))
    except ChannelUnknown as error:
        return _result(_store_state(account, kind, bill_on, "CORRUPT", error=str(error), now=now))


def _bill_row(account: ChannelAccount, kind: str, bill_on: date, *, now: datetime) -> ChannelBill:
    """The one row of this bill, locked; made when it is new (two workers at once: the second waits for the first)."""
    ChannelBill.objects.bulk_create(
        [
            ChannelBill(
                id=numbers.uuid7(),
                merchant_id=account.merchant_id,
                account=account,
                channel=account.channel,
                kind=kind,
                bill_on=bill_on,
                state="WAITING",
                created_at=now,
            )
        ],
        ignore_conflicts=True,
    )
    return ChannelBill.objects.select_for_update().get(account=account, kind=kind, bill_on=bill_on)


def _store_state(
    account: ChannelAccount, kind: str, bill_on: date, state: str, *, error: str, now: datetime
) -> ChannelBill:
    with unit_of_work(now=now):
        row = _bill_row(account, kind, bill_on, now=now)
        if row.state == "PARSED":
            return row
        row.state = state
        row.tries += 1
        row.last_error = error[:200]
        row.next_try_at = None if state == "EMPTY" else now + RETRY_AFTER
        row.downloaded_at = now if state == "EMPTY" else None
        row.save()
        return row


def _store_rows(account: ChannelAccount, gateway: Gateway, bill: BillFile, *, now: datetime) -> ChannelBill:
    with unit_of_work(now=now):
        row = _bill_row(account, bill.kind.value, bill.bill_on, now=now)
        if row.state == "PARSED" and row.sha1 == bill.sha1:
            return row
        BillLine.objects.filter(bill=row).delete()
        count = total = 0
        rows = gateway.parse_bill(bill)
        while page := [_line(row, each) for each in islice(rows, PAGE)]:
            BillLine.objects.bulk_create(page)
            count += len(page)
            total += sum(line.amount_fen for line in page)
        row.state = "PARSED"
        row.sha1 = bill.sha1
        row.raw = gzip.compress(bill.raw, mtime=0)
        row.raw_size = len(bill.raw)
        row.row_count, row.amount_fen = count, total
        row.tries += 1
        row.last_error, row.next_try_at, row.downloaded_at = "", None, now
        row.save()
        return row


def _line(bill: ChannelBill, row: BillRow) -> BillLine:
    return BillLine(
        bill=bill,
        merchant_id=bill.merchant_id,
        channel=bill.channel,
        row_no=row.row_no,
        kind=row.kind.value,
        occurred_at=row.occurred_at,
        out_trade_no=row.out_trade_no,
        trade_no=row.trade_no,
        refund_no=row.refund_no,
        refund_id=row.refund_id,
        amount_fen=row.amount_fen,
        payer_fen=row.payer_fen,
        voucher_fen=row.voucher_fen,
        trade_state=row.trade_state,
        refund_state=row.refund_state,
        refund_applied_at=row.refund_applied_at,
        refund_succeeded_at=row.refund_succeeded_at,
        fee_yuan=row.fee_yuan,
        is_income=row.is_income,
        balance_fen=row.balance_fen,
        reference=row.reference,
    )


def _result(row: ChannelBill, *, replayed: bool = False) -> BillDownloaded:
    return BillDownloaded(row.id, row.state, row.row_count, row.amount_fen, replayed=replayed)
