"""WeChat Pay's bills: UTF-8, a header of names, rows whose every field starts with a backtick, a summary of
two lines.

Amounts are yuan. Columns are found by name, so a column more or in another place harms nobody. The field
separator is ``,`` followed by a backtick: a comma inside a product's name is text.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from zoneinfo import ZoneInfo

from kernel import money
from payments.gateway import BillFile, BillKind, BillRow, BillRowKind, BillState, ChannelUnknown, Doubt

CHINA = ZoneInfo("Asia/Shanghai")

TRADE_SUMS = {
    "应结订单总金额": "应结订单金额",
    "退款总金额": "退款金额",
    "订单总金额": "订单金额",
    "申请退款总金额": "申请退款金额",
}
"""Summary column → the column it is the sum of. The fee is left out: rows carry five decimals, the summary
two."""

ROW_KINDS = {
    "SUCCESS": BillRowKind.PAYMENT,
    "REFUND": BillRowKind.REFUND,
    "REVOKED": BillRowKind.REVOKED,
}
INCOME, EXPENSE = "收入", "支出"


def rows(bill: BillFile) -> Iterator[BillRow]:
    """Stream the rows of one bill; at its end compare the summary. Raises
    ``ChannelUnknown(CORRUPT_BILL)``."""
    if bill.state is not BillState.AVAILABLE:
        return
    lines = (line.decode("utf-8").rstrip("\r\n") for line in io.BytesIO(bill.raw))
    read = flow_row if bill.kind is BillKind.FUNDFLOW else trade_row
    totals = Totals(bill.kind)
    summary: list[str] | None = None
    try:
        header = next(lines, "").removeprefix("\ufeff").split(",")
        for line in lines:
            if not line:
                continue
            if not line.startswith("`"):
                summary = line.split(",")
                break
            values = cut(line, header)
            totals.add(values)
            yield read(totals.rows, values)
        if summary is None:
            raise ValueError("the bill ends without a summary")
        totals.compare(cut(next(lines, ""), summary))
    except (ValueError, KeyError, InvalidOperation) as error:
        raise ChannelUnknown(Doubt.CORRUPT_BILL, f"row {totals.rows}: {error}") from error


def cut(line: str, header: list[str]) -> dict[str, str]:
    if not line.startswith("`"):
        raise ValueError("a row does not start with a backtick")
    fields = line[1:].split(",`")
    if len(fields) != len(header):
        raise ValueError(f"{len(fields)} fields under {len(header)} names")
    return dict(zip(header, (field.strip() for field in fields), strict=True))


class Totals:
    """Counts what was streamed, to be held against the bill's own summary."""

    def __init__(self, kind: BillKind) -> None:
        self.kind = kind
        self.rows = 0
        self.sums: dict[str, int] = dict.fromkeys(TRADE_SUMS, 0)
        self.flow = {INCOME: [0, 0], EXPENSE: [0, 0]}

    def add(self, values: Mapping[str, str]) -> None:
        self.rows += 1
        if self.kind is BillKind.FUNDFLOW:
            side = self.flow[values["收支类型"]]
            side[0] += 1
            side[1] += money.yuan_to_fen(values["收支金额(元)"])
            return
        for name, column in TRADE_SUMS.items():
            self.sums[name] += fen(values, column)

    def compare(self, summary: Mapping[str, str]) -> None:
        if self.kind is BillKind.FUNDFLOW:
            ours: dict[str, int] = {
                "资金流水总笔数": self.rows,
                "收入笔数": self.flow[INCOME][0],
                "支出笔数": self.flow[EXPENSE][0],
            }
            sums = {"收入金额": self.flow[INCOME][1], "支出金额": self.flow[EXPENSE][1]}
        else:
            ours = {"总交易单数": self.rows}
            sums = self.sums
        for name, count in ours.items():
            if Decimal(summary[name]) != count:  # the channel writes counts as "45" or "45.0"
                raise ValueError(f"{name}: {summary[name]} in the summary, {count} in the rows")
        for name, total in sums.items():
            if name in summary and Decimal(summary[name]) * 100 != total:
                raise ValueError(f"{name}: {summary[name]} in the summary, {total} fen in the rows")


def trade_row(row_no: int, values: Mapping[str, str]) -> BillRow:
    kind = ROW_KINDS[values["交易状态"]]
    if kind is BillRowKind.REFUND:
        amount, payer = fen(values, "申请退款金额"), fen(values, "退款金额")
        voucher = fen(values, "充值券退款金额")
        if not amount:  # bills from before the column existed
            amount = payer + voucher
    else:
        amount, payer = fen(values, "订单金额"), fen(values, "应结订单金额")
        voucher = fen(values, "代金券金额")
        if not amount:
            amount = payer + voucher
    return BillRow(
        row_no=row_no,
        kind=kind,
        occurred_at=required_moment(values["交易时间"]),
        out_trade_no=values["商户订单号"],
        trade_no=values["微信订单号"],
        refund_no=optional(values, "商户退款单号"),
        refund_id=optional(values, "微信退款单号"),
        amount_fen=amount,
        payer_fen=payer,
        voucher_fen=voucher,
        trade_state=values["交易状态"],
        refund_state=values.get("退款状态", ""),
        refund_applied_at=moment(values.get("退款申请时间", "")),
        refund_succeeded_at=moment(values.get("退款成功时间", "")),
        fee_yuan=Decimal(values["手续费"]) if values.get("手续费") else None,
        raw=values,
    )


def flow_row(row_no: int, values: Mapping[str, str]) -> BillRow:
    return BillRow(
        row_no=row_no,
        kind=BillRowKind.FLOW,
        occurred_at=required_moment(values["记账时间"]),
        trade_no=values["微信支付业务单号"],
        amount_fen=money.yuan_to_fen(values["收支金额(元)"]),
        is_income={INCOME: True, EXPENSE: False}[values["收支类型"]],
        balance_fen=money.yuan_to_fen(values["账户结余(元)"]),
        reference=values.get("业务凭证号", ""),
        trade_state=values["业务类型"],
        raw=values,
    )


def fen(values: Mapping[str, str], column: str) -> int:
    """A column that a bill of this type does not have counts as zero."""
    text = values.get(column, "")
    return money.yuan_to_fen(text) if text else 0


def optional(values: Mapping[str, str], column: str) -> str:
    """Payment rows carry ``0`` where a refund row has its numbers."""
    text = values.get(column, "")
    return "" if text == "0" else text


def moment(text: str) -> datetime | None:
    return required_moment(text) if text else None


def required_moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=CHINA)
