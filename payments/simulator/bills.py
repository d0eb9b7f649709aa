"""The channels' bills, cut from what happened on one day of the business clock in China."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal

from payments.simulator.faults import Fault
from payments.simulator.store import Row
from payments.simulator.world import CHINA, World

OPENING_FEN = 1_000_000_00
"""What the make-believe merchant account held before its first movement."""

TRADE_HEAD = (
    "交易时间,公众账号ID,商户号,特约商户号,设备号,微信订单号,商户订单号,用户标识,交易类型,交易状态,付款银行,货币种类,"
    "应结订单金额,代金券金额"
)
REFUND_PART = "微信退款单号,商户退款单号,退款金额,充值券退款金额,退款类型,退款状态"
TRADE_TAIL = "商品名称,商户数据包,手续费,费率,订单金额"
HEADERS = {
    "ALL": f"{TRADE_HEAD},{REFUND_PART},{TRADE_TAIL},申请退款金额,费率备注",
    "SUCCESS": f"{TRADE_HEAD},{TRADE_TAIL},费率备注",
    "REFUND": f"{TRADE_HEAD},退款申请时间,退款成功时间,{REFUND_PART},{TRADE_TAIL},申请退款金额,费率备注",
}
SUMMARY = "总交易单数,应结订单总金额,退款总金额,充值券退款总金额,手续费总金额,订单总金额,申请退款总金额"
FLOW_HEADER = (
    "记账时间,微信支付业务单号,资金流水单号,业务名称,业务类型,收支类型,收支金额(元),账户结余(元),"
    "资金变更提交申请人,备注,业务凭证号"
)
FLOW_SUMMARY = "资金流水总笔数,收入笔数,收入金额,支出笔数,支出金额"


def yuan(fen: int) -> str:
    return f"{fen // 100}.{fen % 100:02d}"


def stamp(moment: float | None) -> str:
    return datetime.fromtimestamp(moment, CHINA).strftime("%Y-%m-%d %H:%M:%S") if moment else ""


def bounds(day: date) -> tuple[float, float]:
    start = datetime(day.year, day.month, day.day, tzinfo=CHINA)
    return start.timestamp(), (start + timedelta(days=1)).timestamp()


def charges_on(world: World, channel: str, account: str, day: date) -> list[Row]:
    return world.store.all(
        """SELECT charge.*, trade.app_id, trade.payer, trade.description FROM charge
           JOIN trade USING (channel, account, out_trade_no)
           WHERE charge.channel = ? AND charge.account = ? AND paid_at >= ? AND paid_at < ? ORDER BY
           paid_at""",
        channel,
        account,
        *bounds(day),
    )


def refunds_on(world: World, channel: str, account: str, day: date) -> list[Row]:
    """A refund is on the bill of the day it was accepted, with the state it had at that day's end."""
    return world.store.all(
        """SELECT refund.*, trade.app_id, trade.payer, trade.description FROM refund
           JOIN trade USING (channel, account, out_trade_no)
           WHERE refund.channel = ? AND refund.account = ? AND refund.created_at >= ? AND refund.created_at <
           ? ORDER BY refund.created_at""",
        channel,
        account,
        *bounds(day),
    )


def bent(rows: list[Row], struck: Iterable[Fault]) -> list[Row]:
    """Rows as a channel might wrongly show them: left out, twice, or with another amount."""
    for fault in struck:
        number = fault.params.get("number")
        mine = [row for row in rows if number in (row.get("refund_no"), row["out_trade_no"])]
        if fault.kind == "bill_omit":
            rows = [row for row in rows if row not in mine]
        elif fault.kind == "bill_twice":
            rows = rows + mine
        elif fault.kind == "bill_amount":
            amount = int(fault.params["amount_fen"])
            changed = {"amount_fen": amount, "payer_fen": amount, "voucher_fen": 0}
            rows = [row | changed if row in mine else row for row in rows]
    return rows


def row_text(values: Iterable[str]) -> str:
    return ",".join("`" + value.replace(",", "，").replace("\n", " ") for value in values)


def wechat_trade_bill(world: World, mchid: str, day: date, kind: str, struck: Iterable[Fault] = ()) -> str | None:
    """``kind`` is ALL, SUCCESS or REFUND. None: the day has no rows."""
    charges = bent(charges_on(world, "wechat", mchid, day), struck) if kind in ("ALL", "SUCCESS") else []
    refunds = bent(refunds_on(world, "wechat", mchid, day), struck) if kind in ("ALL", "REFUND") else []
    if not (charges or refunds):
        return None
    names = HEADERS[kind].split(",")
    lines = [HEADERS[kind]]
    for values in [payment_values(world, each) for each in charges] + [refund_values(world, each) for each in refunds]:
        lines.append(row_text(values.get(name, "") for name in names))  # noqa: PERF401 — plainer
    sums = (
        sum(row["payer_fen"] for row in charges),
        sum(row["payer_fen"] for row in refunds),
        sum(row["voucher_fen"] for row in refunds),
        0,
        sum(row["amount_fen"] for row in charges),
        sum(row["amount_fen"] for row in refunds),
    )
    lines.append(SUMMARY)
    lines.append(row_text([f"{len(charges) + len(refunds)}.0", *map(yuan, sums)]))
    return "\ufeff" + "\r\n".join(lines) + "\r\n"


def common_values(world: World, row: Row) -> dict[str, str]:
    return {
        "公众账号ID": row["app_id"],
        "商户号": row["account"],
        "特约商户号": "0",
        "设备号": "",
        "微信订单号": row["trade_no"],
        "商户订单号": row["out_trade_no"],
        "用户标识": row["payer"],
        "交易类型": "JSAPI",
        "付款银行": "OTHERS",
        "货币种类": "CNY",
        "商品名称": row["description"],
        "商户数据包": "",
        "手续费": str(fee_of(world, row["payer_fen"])),
        "费率": "0.60%",
        "费率备注": "",
    }


def payment_values(world: World, row: Row) -> dict[str, str]:
    return common_values(world, row) | {
        "交易时间": stamp(row["paid_at"]),
        "交易状态": "SUCCESS",
        "应结订单金额": yuan(row["payer_fen"]),
        "代金券金额": yuan(row["voucher_fen"]),
        "微信退款单号": "0",
        "商户退款单号": "0",
        "退款金额": "0.00",
        "充值券退款金额": "0.00",
        "退款类型": "",
        "退款状态": "",
        "订单金额": yuan(row["amount_fen"]),
        "申请退款金额": "0.00",
    }


def refund_values(world: World, row: Row) -> dict[str, str]:
    same_day = row["succeeded_at"] and (
        datetime.fromtimestamp(row["succeeded_at"], CHINA).date()
        == datetime.fromtimestamp(row["created_at"], CHINA).date()
    )
    states = {"SUCCESS": "SUCCESS", "CLOSED": "FAIL", "ABNORMAL": "CHANGE", "PROCESSING": "PROCESSING"}
    return common_values(world, row) | {
        "交易时间": stamp(row["created_at"]),
        "交易状态": "REFUND",
        "手续费": str(-fee_of(world, row["payer_fen"])),
        "应结订单金额": "0.00",
        "代金券金额": "0.00",
        "退款申请时间": stamp(row["created_at"]),
        "退款成功时间": stamp(row["succeeded_at"]) if same_day else "",
        "微信退款单号": row["refund_id"],
        "商户退款单号": row["refund_no"],
        "退款金额": yuan(row["payer_fen"]),
        "充值券退款金额": yuan(row["voucher_fen"]),
        "退款类型": "ORIGINAL",
        "退款状态": states[row["first_state"]],
        "订单金额": "0.00",
        "申请退款金额": yuan(row["amount_fen"]),
    }


def wechat_fund_flow_bill(world: World, mchid: str, day: date, struck: Iterable[Fault] = ()) -> str | None:
    """Every movement of the basic account on one day, with the balance after it."""
    start, end = bounds(day)
    movements = flow_movements(world, mchid, end, struck)
    balance, lines, counts = OPENING_FEN, [FLOW_HEADER], {"收入": [0, 0], "支出": [0, 0]}
    for moment, number, business, side, fen, voucher_no, reason in movements:
        balance += fen if side == "收入" else -fen
        if moment < start:
            continue
        counts[side][0] += 1
        counts[side][1] += fen
        flow_no = f"{mchid}{int(moment * 1000)}{len(lines):06d}"
        what = (stamp(moment), number, flow_no, business, business, side)
        lines.append(row_text([*what, yuan(fen), yuan(balance), "system", reason, voucher_no]))
    if len(lines) == 1:
        return None
    lines.append(FLOW_SUMMARY)
    lines.append(
        row_text(
            [
                f"{len(lines) - 2}.0",
                f"{counts['收入'][0]}.0",
                yuan(counts["收入"][1]),
                f"{counts['支出'][0]}.0",
                yuan(counts["支出"][1]),
            ]
        )
    )
    return "\ufeff" + "\r\n".join(lines) + "\r\n"


Movement = tuple[float, str, str, str, int, str, str]
"""When, the channel's number, business, side, fen, our number, reason."""


def flow_movements(world: World, mchid: str, before: float, struck: Iterable[Fault] = ()) -> list[Movement]:
    charges = world.store.all(
        "SELECT * FROM charge WHERE channel = 'wechat' AND account = ? AND paid_at < ?", mchid, before
    )
    refunds = world.store.all(
        "SELECT * FROM refund WHERE channel = 'wechat' AND account = ? AND created_at < ? AND state <> 'CLOSED'",
        mchid,
        before,
    )
    moved: list[Movement] = []
    for row in bent(charges, struck):
        about = (row["payer_fen"], row["out_trade_no"], "")
        moved.append((row["paid_at"], row["trade_no"], "交易", "收入", *about))
        fee = round(fee_of(world, row["payer_fen"]) * 100)
        moved.append((row["paid_at"], row["trade_no"], "扣除交易手续费", "支出", fee, *about[1:]))
    for row in bent(refunds, struck):
        about = (row["payer_fen"], row["refund_no"], row["reason"])
        moved.append((row["created_at"], row["refund_id"], "退款", "支出", *about))
        fee = round(fee_of(world, row["payer_fen"]) * 100)
        moved.append((row["created_at"], row["refund_id"], "交易手续费退还", "收入", fee, *about[1:]))
    for fault in struck:
        if fault.kind == "bill_extra":
            number, said = str(fault.params["number"]), fault.params
            moved.append((before - 60, number, said["business"], said["side"], int(said["amount_fen"]), number, ""))
    return sorted(each for each in moved if each[4])


def fee_of(world: World, fen: int) -> Decimal:
    """What the channel keeps of this amount, in yuan with five decimals."""
    return (Decimal(fen) * Decimal(str(world.setting("fee_rate"))) / 100).quantize(Decimal("0.00001"))


# -- Alipay
# -------------------------------------------------------------------------------------------------------

ALIPAY_HEADER = (
    "支付宝交易号,商户订单号,业务类型,商品名称,创建时间,完成时间,门店编号,门店名称,操作员,终端号,对方账户,订单金额（元）,"
    "商家实收（元）,支付宝红包（元）,集分宝（元）,支付宝优惠（元）,商家优惠（元）,券核销金额（元）,券名称,商家红包消费金额（元）,"
    "卡消费金额（元）,退款批次号/请求号,服务费（元）,分润（元）,备注"
)
ALIPAY_FLOW_HEADER = (
    "账务流水号,业务流水号,商户订单号,商品名称,发生时间,对方账号,收入金额（+元）,支出金额（-元）,账户余额（元）,交易渠道,"
    "业务类型,备注"
)
RULE = "#" + "-" * 41


def alipay_zip(world: World, seller: str, day: date, kind: str, struck: Iterable[Fault] = ()) -> bytes | None:
    """The zip of one day's bill: details and a summary, in GBK, their names too. None: the day has no
    rows."""
    charges = bent(charges_on(world, "alipay", seller, day), struck)
    done = [row for row in refunds_on(world, "alipay", seller, day) if row["state"] == "SUCCESS"]
    refunds = bent(done, struck)
    if not (charges or refunds):
        return None
    made = alipay_trades(charges, refunds)
    if kind != "trade":
        made = alipay_flow(charges, refunds, opening_fen=alipay_balance(world, seller, bounds(day)[0]))
    label = "业务明细" if kind == "trade" else "账务明细"
    opening = [
        f"#支付宝{label[:2]}明细查询",
        f"#账号：[{seller}0156]",
        f"#起始日期：[{day:%Y年%m月%d日} 00:00:00]   终止日期：[{day + timedelta(days=1):%Y年%m月%d日} 00:00:00]",
        f"{RULE}{label}列表{'-' * 40}",
    ]
    closing = [f"#导出时间：[{day + timedelta(days=1):%Y年%m月%d日} 08:00:00]"]
    stem = f"{seller}0156_{day:%Y%m%d}_{label}"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, lines in ((f"{stem}.csv", opening + made + closing), (f"{stem}(汇总).csv", opening + closing)):
            archive.writestr(GbkInfo(name), ("\r\n".join(lines) + "\r\n").encode("gb18030"))
    return packed.getvalue()


class GbkInfo(zipfile.ZipInfo):
    """An entry whose name is GBK without saying so, as in Alipay's archives; Python itself would write
    UTF-8."""

    def _encodeFilenameFlags(self) -> tuple[bytes, int]:
        return self.filename.encode("gbk"), self.flag_bits & ~0x800


def alipay_line(values: Iterable[str]) -> str:
    return ",".join(value.replace(",", "，").replace("\n", " ") for value in values)


def alipay_trades(charges: list[Row], refunds: list[Row]) -> list[str]:
    names = ALIPAY_HEADER.split(",")
    lines = [ALIPAY_HEADER]
    for values in (*map(alipay_payment, charges), *map(alipay_refund, refunds)):
        lines.append(alipay_line(values.get(name, "0.00" if "元" in name else "") for name in names))  # noqa: PERF401
    taken = sum(row["amount_fen"] for row in charges)
    given = sum(row["amount_fen"] for row in refunds)
    return [
        *lines,
        f"{RULE}业务明细列表结束{'-' * 36}",
        f"#交易合计：{len(charges)}笔，商家实收共{yuan(taken)}元，商家优惠共0.00元",
        f"#退款合计：{len(refunds)}笔，商家实收退款共-{yuan(given)}元，商家优惠退款共0.00元",
    ]


def alipay_common(row: Row) -> dict[str, str]:
    return {
        "支付宝交易号": f"{row['trade_no']}\t",
        "商户订单号": f"{row['out_trade_no']}\t",
        "商品名称": row["description"],
        "门店编号": "\t",
        "门店名称": "\t",
        "操作员": "\t",
        "终端号": "\t",
        "对方账户": "*演示(138***@example.com)\t",
        "券名称": "",
        "退款批次号/请求号": "\t",
        "备注": "",
    }


def alipay_payment(row: Row) -> dict[str, str]:
    return alipay_common(row) | {
        "业务类型": "交易\t",
        "创建时间": stamp(row["paid_at"]),
        "完成时间": stamp(row["paid_at"]),
        "订单金额（元）": yuan(row["amount_fen"]),
        "商家实收（元）": yuan(row["amount_fen"]),
        "支付宝优惠（元）": yuan(row["voucher_fen"]),
    }


def alipay_refund(row: Row) -> dict[str, str]:
    return alipay_common(row) | {
        "业务类型": "退款\t",
        "创建时间": stamp(row["created_at"]),
        "完成时间": stamp(row["succeeded_at"]),
        "订单金额（元）": f"-{yuan(row['amount_fen'])}",
        "商家实收（元）": f"-{yuan(row['amount_fen'])}",
        "退款批次号/请求号": row["refund_no"],
    }


def alipay_balance(world: World, seller: str, before: float) -> int:
    """What the account held when the day began."""
    took, gave = (
        world.store.all(
            f"SELECT coalesce(sum(amount_fen), 0) AS fen FROM {table}"
            f" WHERE channel = 'alipay' AND account = ? AND {moment} < ?",
            seller,
            before,
        )[0]["fen"]
        for table, moment in (("charge", "paid_at"), ("refund", "state = 'SUCCESS' AND created_at"))
    )
    return OPENING_FEN + took - gave


def alipay_flow(charges: list[Row], refunds: list[Row], *, opening_fen: int) -> list[str]:
    moved = [(row["paid_at"], row["amount_fen"], row, "在线支付") for row in charges]
    moved += [(row["succeeded_at"], -row["amount_fen"], row, "交易退款") for row in refunds]
    balance, lines = opening_fen, [ALIPAY_FLOW_HEADER]
    for number, (moment, fen, row, business) in enumerate(sorted(moved, key=lambda each: each[0]), 1):
        balance += fen
        gained, spent = (yuan(fen), "0.00") if fen > 0 else ("0.00", f"-{yuan(-fen)}")
        flow_no = f"{int(moment * 1000)}{number:06d}\t"
        reference = f"{row.get('refund_no') or row['out_trade_no']}\t"
        what = (flow_no, f"{row['trade_no']}\t", reference, row["description"], stamp(moment))
        lines.append(alipay_line([*what, "演示\t", gained, spent, yuan(balance), "支付宝", business, ""]))
    return [
        *lines,
        f"{RULE}账务明细列表结束{'-' * 36}",
        f"#收入合计：{len(charges)}笔，共{yuan(sum(row['amount_fen'] for row in charges))}元",
        f"#支出合计：{len(refunds)}笔，共-{yuan(sum(row['amount_fen'] for row in refunds))}元",
    ]
