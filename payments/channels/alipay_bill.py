"""Alipay's bills: a zip of GBK CSV files, tab-padded fields, lines of prose that start with ``#``.

The trade bill holds payments (业务类型 交易, amounts positive) and refunds (退款, amounts negative) together; the
prose at its end counts both and sums the seller's takings, which is checked. Columns are found by name.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

from kernel import money
from payments.channels.transport import FILE_LIMIT
from payments.gateway import BillFile, BillKind, BillRow, BillRowKind, BillState, ChannelUnknown, Doubt

CHINA = ZoneInfo("Asia/Shanghai")
MAX_FILES = 10
PAYMENTS = re.compile(r"#交易合计：(\d+)笔，商家实收共(-?[\d.]+)元")
REFUNDS = re.compile(r"#退款合计：(\d+)笔，商家实收退款共(-?[\d.]+)元")
INCOME = re.compile(r"#收入合计：(\d+)笔，共(-?[\d.]+)元")
EXPENSE = re.compile(r"#支出合计：(\d+)笔，共(-?[\d.]+)元")
KINDS = {"交易": BillRowKind.PAYMENT, "退款": BillRowKind.REFUND}


def rows(bill: BillFile) -> Iterator[BillRow]:
    """Stream the rows of the bill's kind. Raises ``ChannelUnknown(CORRUPT_BILL)``."""
    if bill.state is not BillState.AVAILABLE:
        return
    try:
        with zipfile.ZipFile(io.BytesIO(bill.raw)) as archive, archive.open(detail_file(archive)) as packed:
            lines = io.TextIOWrapper(packed, encoding="gb18030", errors="strict", newline="")
            yield from flow_rows(lines) if bill.kind is BillKind.FUNDFLOW else trade_rows(lines, bill.kind)
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError, NotImplementedError, csv.Error) as error:
        raise ChannelUnknown(Doubt.CORRUPT_BILL, f"{type(error).__name__}: {error}") from error


def detail_file(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """The file of details; the other one (汇总) is a summary by shop."""
    files = [info for info in archive.infolist() if not info.is_dir()]
    if not 1 <= len(files) <= MAX_FILES or sum(info.file_size for info in files) > FILE_LIMIT:
        raise ValueError("too many files, or too large")
    details = [info for info in files if "汇总" not in name_of(info)]
    if len(details) != 1:
        raise ValueError(f"{len(details)} files of details")
    return details[0]


def name_of(info: zipfile.ZipInfo) -> str:
    """Names are GBK without saying so; zipfile reads them as code page 437 then."""
    if info.flag_bits & 0x800:
        return info.filename
    return info.filename.encode("cp437", "replace").decode("gb18030", "replace")


def records(lines: Iterator[str] | io.TextIOWrapper, prose: list[str]) -> Iterator[dict[str, str]]:
    """Rows under the names of the header; ``#`` lines are collected in ``prose``."""
    header: list[str] = []

    def table() -> Iterator[str]:
        for line in lines:
            if line.startswith("#"):
                prose.append(line.strip())
            elif line.strip():
                yield line

    for fields in csv.reader(table(), strict=True):
        values = [field.strip() for field in fields]
        if not header:
            header = values
            continue
        if len(values) != len(header):
            raise ValueError(f"{len(values)} fields under {len(header)} names")
        yield dict(zip(header, values, strict=True))


def trade_rows(lines: io.TextIOWrapper, kind: BillKind) -> Iterator[BillRow]:
    prose: list[str] = []
    wanted = BillRowKind.REFUND if kind is BillKind.REFUND else BillRowKind.PAYMENT
    counted = {BillRowKind.PAYMENT: [0, 0], BillRowKind.REFUND: [0, 0]}
    given = 0
    for values in records(lines, prose):
        row_kind = KINDS[values["业务类型"]]
        counted[row_kind][0] += 1
        counted[row_kind][1] += money.yuan_to_fen(values["商家实收（元）"])
        if row_kind is wanted:
            given += 1
            yield trade_row(given, row_kind, values)
    compare(prose, PAYMENTS, counted[BillRowKind.PAYMENT])
    compare(prose, REFUNDS, counted[BillRowKind.REFUND])


def trade_row(row_no: int, kind: BillRowKind, values: Mapping[str, str]) -> BillRow:
    amount = abs(money.yuan_to_fen(values["订单金额（元）"]))
    taken = abs(money.yuan_to_fen(values["商家实收（元）"]))
    finished = moment(values["完成时间"])
    return BillRow(
        row_no=row_no,
        kind=kind,
        occurred_at=finished,
        out_trade_no=values["商户订单号"],
        trade_no=values["支付宝交易号"],
        refund_no=values["退款批次号/请求号"] if kind is BillRowKind.REFUND else "",
        amount_fen=amount,
        payer_fen=taken,
        voucher_fen=amount - taken,
        trade_state=values["业务类型"],
        refund_state="SUCCESS" if kind is BillRowKind.REFUND else "",
        refund_succeeded_at=finished if kind is BillRowKind.REFUND else None,
        fee_yuan=Decimal(values["服务费（元）"]) if values.get("服务费（元）") else None,
        raw=values,
    )


def flow_rows(lines: io.TextIOWrapper) -> Iterator[BillRow]:
    prose: list[str] = []
    income, expense = [0, 0], [0, 0]
    for number, values in enumerate(records(lines, prose), 1):
        gained = money.yuan_to_fen(values["收入金额（+元）"] or "0")
        spent = money.yuan_to_fen(values["支出金额（-元）"] or "0")
        if bool(gained) == bool(spent):
            raise ValueError("a movement is either an income or an expense")
        side = income if gained else expense
        side[0] += 1
        side[1] += gained or spent
        yield BillRow(
            row_no=number,
            kind=BillRowKind.FLOW,
            occurred_at=moment(values["发生时间"]),
            out_trade_no=values["商户订单号"],
            trade_no=values["业务流水号"],
            amount_fen=abs(gained or spent),
            is_income=bool(gained),
            balance_fen=money.yuan_to_fen(values["账户余额（元）"]),
            reference=values["商户订单号"],
            trade_state=values["业务类型"],
            raw=values,
        )
    compare(prose, INCOME, income)
    compare(prose, EXPENSE, expense)


def compare(prose: list[str], pattern: re.Pattern[str], ours: list[int]) -> None:
    matched = next((found for line in prose if (found := pattern.match(line))), None)
    if matched is None:
        raise ValueError("the bill ends without its sums")
    if [int(matched[1]), int(Decimal(matched[2]) * 100)] != ours:
        raise ValueError(f"{matched[0]} in the bill, {ours} in the rows")


def moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=CHINA)
