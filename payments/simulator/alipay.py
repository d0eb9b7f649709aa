"""Alipay's gateway.do as a mini-program's seller sees it: one address, RSA2, yuan strings, refunds on the
spot."""

from __future__ import annotations

import json
import re
import secrets
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

from payments.simulator import bills, crypto
from payments.simulator.faults import AFTER, Fault
from payments.simulator.http import Reply, Request
from payments.simulator.store import Row
from payments.simulator.world import CHINA, Impossible, World

SKEW_SECONDS = 900
TOKEN_SECONDS = 30
OUT_TRADE_NO = re.compile(r"[0-9A-Za-z_]{1,64}|[0-9A-Za-z_-]{1,64}", re.ASCII)
YUAN = re.compile(r"(\d{1,9})\.(\d{2})|(\d{1,9})(?:\.(\d))?", re.ASCII)

REASONS = {
    "paid": "ACQ.TRADE_HAS_SUCCESS",
    "closed": "ACQ.TRADE_HAS_CLOSE",
    "no_trade": "ACQ.TRADE_NOT_EXIST",
    "no_refund": "ACQ.TRADE_NOT_EXIST",
    "differs": "ACQ.CONTEXT_INCONSISTENT",
    "total": "ACQ.REFUND_AMT_NOT_EQUAL_TOTAL",
    "too_much": "ACQ.REFUND_AMT_NOT_EQUAL_TOTAL",
    "too_old": "ACQ.TRADE_HAS_FINISHED",
    "too_many": "ACQ.REASON_TRADE_REFUND_FEE_ERR",
    "too_fast": "isv.app-call-limited",
}
REFUSALS = {
    "not_enough": ("40004", "ACQ.SELLER_BALANCE_NOT_ENOUGH", "卖家余额不足"),
    "rate_limited": ("40005", "isv.app-call-limited", "调用频率超限"),
    "user_abnormal": ("40004", "ACQ.BUYER_ERROR", "买家状态异常"),
    "server_error": ("20000", "aop.ACQ.SYSTEM_ERROR", "系统异常"),
}


class Refused(Exception):
    def __init__(self, code: str, sub_code: str, message: str) -> None:
        super().__init__(message)
        self.node = {"code": code, "msg": "Business Failed", "sub_code": sub_code, "sub_msg": message}


@dataclass(frozen=True)
class Call:
    world: World
    request: Request
    account: dict[str, Any]
    fields: dict[str, str]
    content: dict[str, Any]
    struck: list[Fault]

    @property
    def seller(self) -> str:
        return self.account["seller_id"]


# -- requests
# -----------------------------------------------------------------------------------------------------


def handle(world: World, request: Request) -> tuple[str, Reply, dict[str, Any]]:
    """Answer one request. Returns the operation's name, the reply, and what to note in the log."""
    if request.path == "/alipay/bill":
        return "alipay.billdownload", *download(world, request)
    fields, content = sent(request)
    operation = fields.get("method", "alipay.unknown")
    names = {"out_trade_no": "out_trade_no", "out_request_no": "refund_no", "trade_no": "trade_no"}
    note: dict[str, Any] = {ours: content[theirs] for theirs, ours in names.items() if theirs in content}
    struck = world.faults.take(operation, note)
    note["fault"] = ",".join(fault.kind for fault in struck)
    broken = unaccepted(struck)
    if broken is not None:
        return operation, broken, note
    try:
        account = authenticated(world, fields)
        refuse_first(struck)
        if operation not in ENDPOINTS:
            raise Refused("40002", "isv.invalid-method", "不存在的方法名")
        node = {"code": "10000", "msg": "Success"} | ENDPOINTS[operation](
            Call(world, request, account, fields, content, struck)
        )
    except Refused as refused:
        node = refused.node
    except Impossible as impossible:
        sub_code = REASONS.get(impossible.reason, "ACQ.INVALID_PARAMETER")
        if impossible.reason == "differs" and operation == "alipay.trade.refund":
            sub_code = "ACQ.DISCORDANT_REPEAT_REQUEST"
        node = Refused("40004", sub_code, impossible.message).node
    note["code"] = node.get("sub_code", "")
    return operation, finished(world, operation, node, struck, certified=in_certificate_mode(fields)), note


def sent(request: Request) -> tuple[dict[str, str], dict[str, Any]]:
    """The fields of query and form together, and the content."""
    body = request.body.decode("utf-8", "replace")
    fields = request.query | dict(parse_qsl(body, keep_blank_values=True))
    try:
        content = json.loads(fields.get("biz_content", "{}"))
    except ValueError:
        content = {}
    return fields, content if isinstance(content, dict) else {}


def authenticated(world: World, fields: dict[str, str]) -> dict[str, Any]:
    account = next((each for each in world.keys["alipay"]["accounts"] if each["app_id"] == fields.get("app_id")), None)
    if account is None:
        raise Refused("40002", "isv.invalid-app-id", "无效的AppID参数")
    signed = {name: value for name, value in fields.items() if name != "sign" and value}
    text = "&".join(f"{name}={signed[name]}" for name in sorted(signed))
    if fields.get("sign_type") != "RSA2" or not crypto.fits(
        account["public_key"], text.encode(), fields.get("sign", "")
    ):
        raise Refused("40002", "isv.invalid-signature", "验签出错")
    try:
        moment = datetime.strptime(fields.get("timestamp", ""), "%Y-%m-%d %H:%M:%S").replace(tzinfo=CHINA)
    except ValueError as error:
        raise Refused("40002", "isv.invalid-timestamp", "非法的时间戳参数") from error
    if abs(time.time() - moment.timestamp()) > SKEW_SECONDS:
        raise Refused("40002", "isv.invalid-timestamp", "非法的时间戳参数")
    if in_certificate_mode(fields):
        if fields.get("app_cert_sn") != crypto.certificate_sn(account["certificate"]):
            raise Refused("40002", "isv.invalid-app-cert-sn", "应用公钥证书SN不匹配")
        if fields.get("alipay_root_cert_sn") != crypto.certificate_sn(world.keys["alipay"]["root"]["certificate"]):
            raise Refused("40002", "isv.invalid-alipay-root-cert-sn", "支付宝根证书SN不匹配")
    return account


def in_certificate_mode(fields: dict[str, str]) -> bool:
    return bool(fields.get("app_cert_sn") or fields.get("alipay_root_cert_sn"))


def unaccepted(struck: list[Fault]) -> Reply | None:
    for fault in struck:
        if fault.kind == "reset":
            return Reply(reset=True)
        if fault.kind == "timeout":
            return Reply(hang_seconds=fault.seconds(30))
    return None


def refuse_first(struck: list[Fault]) -> None:
    for fault in struck:
        if fault.kind in REFUSALS:
            raise Refused(*REFUSALS[fault.kind])
        if fault.kind == "refuse":
            params = fault.params
            raise Refused("40004", str(params.get("code", "ACQ.INVALID_PARAMETER")), str(params.get("message", "")))


def finished(world: World, operation: str, node: dict[str, Any], struck: list[Fault], *, certified: bool) -> Reply:
    """Sign the node's text, and apply the faults that strike after acceptance. To a request in certificate mode the
    newest certificate answers, and the answer names it."""
    kinds = {fault.kind: fault for fault in struck if fault.kind in AFTER}
    reply = Reply(headers={"Content-Type": "text/html;charset=utf-8"})
    if "delay" in kinds:
        reply.wait_seconds = kinds["delay"].seconds(1)
    if "timeout_after" in kinds:
        reply.hang_seconds = kinds["timeout_after"].seconds(30)
    reply.reset = "reset_after" in kinds
    if "server_error_after" in kinds:
        reply.status, reply.body = 502, b"<html>Bad Gateway</html>"
        return reply
    if "wrong_order" in kinds:
        node = node | {name: "SOMEBODY-ELSES" for name in ("out_trade_no", "out_request_no") if name in node}
    if "wrong_amount" in kinds:
        amount = bills.yuan(int(kinds["wrong_amount"].params.get("amount_fen", 1)))
        node = node | {name: amount for name in ("total_amount", "refund_amount") if name in node}
    text = json.dumps(node, ensure_ascii=False, separators=(",", ":"))
    key, naming = world.keys["alipay"]["private_key"], ""
    if certified:
        newest = world.keys["alipay"]["certificates"][-1]
        key, sn = newest["private_key"], crypto.certificate_sn(newest["certificate"])
        naming = f',"alipay_cert_sn":"{"0" * 32 if "unknown_serial" in kinds else sn}"'
    if "forged" in kinds or "unknown_serial" in kinds:
        key = world.keys["forger"]["private_key"]
    signature = crypto.sign(key, text.encode())
    if "altered_body" in kinds:
        text = text.replace('"msg":"', '"msg":" ')
    whole = f'{{"{operation.replace(".", "_")}_response":{text}'
    whole += "}" if "unsigned" in kinds else f'{naming},"sign":"{signature}"}}'
    reply.body = b"not json" if "garbage" in kinds else whole.encode()
    return reply


# -- reading what was sent
# ----------------------------------------------------------------------------------------


def text(call: Call, name: str, pattern: re.Pattern[str] | None = None) -> str:
    value = call.content.get(name)
    if not isinstance(value, str) or not value or (pattern and not pattern.fullmatch(value)):
        raise Refused("40004", "ACQ.INVALID_PARAMETER", f"{name}不合法")
    return value


def fen(call: Call, name: str) -> int:
    value = call.content.get(name)
    matched = YUAN.fullmatch(value) if isinstance(value, str) else None
    if matched is None:
        raise Refused("40004", "ACQ.INVALID_PARAMETER", f"{name}不合法")
    whole, cents = matched[1] or matched[3], matched[2] or (matched[4] or "0").ljust(2, "0")
    amount = int(whole) * 100 + int(cents)
    if amount < 1:
        raise Refused("40004", "ACQ.INVALID_PARAMETER", f"{name}不合法")
    return amount


def stamp(moment: float) -> str:
    return datetime.fromtimestamp(moment, CHINA).strftime("%Y-%m-%d %H:%M:%S")


def named_trade(call: Call) -> tuple[Row, Row | None]:
    """The trade that out_trade_no or trade_no names, and its charge: the one named, else the first."""
    if call.content.get("trade_no"):
        trade_no = text(call, "trade_no")
        charge = call.world.charge("alipay", call.seller, trade_no)
        trade = charge or call.world.store.one(
            "SELECT * FROM trade WHERE channel = 'alipay' AND account = ? AND trade_no = ?", call.seller, trade_no
        )
        if trade is None:
            raise Impossible("no_trade", "交易不存在")
        return call.world.trade("alipay", trade["out_trade_no"], call.seller), charge
    trade = call.world.trade("alipay", text(call, "out_trade_no"), call.seller)
    charges = call.world.charges(trade)
    return trade, charges[0] if charges else None


# -- endpoints
# ----------------------------------------------------------------------------------------------------


def create(call: Call) -> dict[str, Any]:
    buyer = call.content.get("buyer_open_id") or call.content.get("buyer_id")
    if not buyer:
        raise Refused("40004", "ACQ.BUYER_NOT_EXIST", "买家不存在")
    expires = call.content.get("time_expire")
    expires_at = datetime.strptime(expires, "%Y-%m-%d %H:%M:%S").replace(tzinfo=CHINA).timestamp() if expires else None
    trade = call.world.place_trade(
        {
            "channel": "alipay",
            "account": call.seller,
            "out_trade_no": text(call, "out_trade_no", OUT_TRADE_NO),
            "app_id": call.account["app_id"],
            "payer": str(buyer),
            "description": text(call, "subject"),
            "notify_url": call.fields.get("notify_url", ""),
            "total_fen": fen(call, "total_amount"),
            "expires_at": expires_at,
            "prepay_id": "",
            "trade_no": call.world.new_trade_no("alipay"),
        }
    )
    return {"out_trade_no": trade["out_trade_no"], "trade_no": trade["trade_no"]}


def query(call: Call) -> dict[str, Any]:
    trade, charge = named_trade(call)
    node = {
        "out_trade_no": trade["out_trade_no"],
        "trade_no": charge["trade_no"] if charge else trade["trade_no"],
        "trade_status": trade_status(call.world, trade, charge),
        "total_amount": bills.yuan(charge["amount_fen"] if charge else trade["total_fen"]),
        "buyer_open_id": trade["payer"],
    }
    if charge:
        node |= {
            "buyer_pay_amount": bills.yuan(charge["payer_fen"]),
            "receipt_amount": bills.yuan(charge["amount_fen"]),
            "send_pay_date": stamp(charge["paid_at"]),
        }
    return node


def trade_status(world: World, trade: Row, charge: Row | None) -> str:
    """A trade refunded in full is TRADE_CLOSED, like one that was never paid."""
    if charge is None:
        return "TRADE_CLOSED" if trade["state"] in ("CLOSED", "REVOKED") else "WAIT_BUYER_PAY"
    refunded = sum(row["amount_fen"] for row in world.refunds_of(charge) if row["state"] == "SUCCESS")
    return "TRADE_CLOSED" if refunded >= charge["amount_fen"] else "TRADE_SUCCESS"


def close(call: Call) -> dict[str, Any]:
    with call.world.store.transaction():
        trade, charge = named_trade(call)
        if charge is not None:
            raise Refused("40004", "ACQ.TRADE_STATUS_ERROR", "交易状态不合法")
        call.world.set_trade_state(trade, "CLOSED")
    return {"out_trade_no": trade["out_trade_no"], "trade_no": trade["trade_no"]}


def refund(call: Call) -> dict[str, Any]:
    """Settles at once unless ``auto_settle`` is off; a repetition answers ``fund_change=N``."""
    world = call.world
    with world.store.transaction():
        trade, charge = named_trade(call)
        if charge is None:
            raise Refused("40004", "ACQ.TRADE_STATUS_ERROR", "交易状态不合法")
        refund_no = call.content.get("out_request_no") or trade["out_trade_no"]
        known = world.store.one(
            "SELECT * FROM refund WHERE channel = 'alipay' AND account = ? AND refund_no = ?", call.seller, refund_no
        )
        row = world.place_refund(
            charge,
            refund_no=refund_no,
            amount_fen=fen(call, "refund_amount"),
            total_fen=charge["amount_fen"],
            reason=str(call.content.get("refund_reason", "")),
            notify_url=trade["notify_url"],
        )
        fresh = known is None and world.setting("auto_settle") and row["settle_to"] == "SUCCESS"
        if fresh:
            row = world.settle(row, "SUCCESS")
            announce_refund(world, row)
        done = [each for each in world.refunds_of(charge) if each["state"] == "SUCCESS"]
    node = {
        "out_trade_no": trade["out_trade_no"],
        "trade_no": charge["trade_no"],
        "buyer_open_id": trade["payer"],
        "refund_fee": bills.yuan(sum(each["amount_fen"] for each in done)),
        "fund_change": "Y" if fresh else "N",
    }
    if row["succeeded_at"]:
        node["gmt_refund_pay"] = stamp(row["succeeded_at"])
    return node


def query_refund(call: Call) -> dict[str, Any]:
    """10000 without fields when there is no such refund or it is not done: that is what the channel does."""
    named_trade(call)
    try:
        row = call.world.refund("alipay", text(call, "out_request_no"), call.seller)
    except Impossible:
        return {}
    if row["state"] != "SUCCESS":
        return {}
    return {
        "out_trade_no": row["out_trade_no"],
        "trade_no": row["trade_no"],
        "out_request_no": row["refund_no"],
        "total_amount": bills.yuan(row["total_fen"]),
        "refund_amount": bills.yuan(row["amount_fen"]),
        "refund_status": "REFUND_SUCCESS",
        "gmt_refund_pay": stamp(row["succeeded_at"]),
    }


def certificate(call: Call) -> dict[str, Any]:
    """The certificate of that name, with its issuer."""
    wanted = text(call, "alipay_cert_sn")
    known = call.world.keys["alipay"]["certificates"]
    found = next((each for each in known if crypto.certificate_sn(each["certificate"]) == wanted), None)
    if found is None:
        raise Refused("40004", "isv.invalid-arguments", "证书不存在")
    return {"alipay_cert_content": b64encode(found["certificate"].encode()).decode()}


def bill_url(call: Call) -> dict[str, Any]:
    try:
        bill_on = date.fromisoformat(text(call, "bill_date"))
    except ValueError as error:
        raise Refused("40004", "isv.invalid-arguments", "bill_date不合法") from error
    kind = call.content.get("bill_type")
    if kind not in ("trade", "signcustomer"):
        raise Refused("40004", "isv.invalid-arguments", "bill_type不合法")
    content = None
    if call.world.bill_is_ready(bill_on):
        content = bills.alipay_zip(call.world, call.seller, bill_on, kind, call.struck)
    if content is None:
        raise Refused("40004", "isp.bill_not_exist", "账单不存在")
    token = secrets.token_urlsafe(24)
    call.world.store.run("DELETE FROM bill_file WHERE made_at < ?", time.time() - 300)
    call.world.store.insert("bill_file", token=token, body=content, made_at=time.time())
    host = call.request.headers.get("host", "127.0.0.1")
    return {"bill_download_url": f"http://{host}/alipay/bill?token={token}"}


def download(world: World, request: Request) -> tuple[Reply, dict[str, Any]]:
    struck = world.faults.take("alipay.billdownload", {})
    note = {"fault": ",".join(fault.kind for fault in struck)}
    row = world.store.one(
        "SELECT body FROM bill_file WHERE token = ? AND made_at > ?",
        request.query.get("token", ""),
        time.time() - TOKEN_SECONDS,
    )
    if row is None:
        return Reply(404, b"gone"), note
    body = row["body"]
    if any(fault.kind == "corrupt_bill" for fault in struck):
        body = body[: len(body) // 2]
    return Reply(200, body, {"Content-Type": "application/zip"}), note


ENDPOINTS: dict[str, Callable[[Call], dict[str, Any]]] = {
    "alipay.trade.create": create,
    "alipay.trade.query": query,
    "alipay.trade.close": close,
    "alipay.trade.refund": refund,
    "alipay.trade.fastpay.refund.query": query_refund,
    "alipay.data.dataservice.bill.downloadurl.query": bill_url,
    "alipay.open.app.alipaycert.download": certificate,
}
OPERATIONS = (*ENDPOINTS, "alipay.billdownload")


# -- notifies
# -----------------------------------------------------------------------------------------------------


def payment_content(world: World, trade: Row, charge: Row) -> dict[str, Any]:
    return {
        "notify_type": "trade_status_sync",
        "app_id": trade["app_id"],
        "auth_app_id": trade["app_id"],
        "charset": "utf-8",
        "version": "1.0",
        "trade_no": charge["trade_no"],
        "out_trade_no": trade["out_trade_no"],
        "seller_id": trade["account"],
        "buyer_open_id": trade["payer"],
        "trade_status": "TRADE_SUCCESS",
        "subject": trade["description"],
        "total_amount": bills.yuan(charge["amount_fen"]),
        "receipt_amount": bills.yuan(charge["amount_fen"]),
        "buyer_pay_amount": bills.yuan(charge["payer_fen"]),
        "gmt_create": stamp(trade.get("created_at") or charge["paid_at"]),
        "gmt_payment": stamp(charge["paid_at"]),
    }


def announce_payment(world: World, trade: Row, charge: Row) -> str | None:
    if not trade["notify_url"]:
        return None
    return world.announce(
        channel="alipay",
        account=trade["account"],
        kind="payment",
        event="TRADE_SUCCESS",
        url=trade["notify_url"],
        content=payment_content(world, trade, charge),
        out_trade_no=trade["out_trade_no"],
    )


def announce_refund(world: World, row: Row) -> str | None:
    """To the payment's own address, with the trade's cumulative refund."""
    charge = world.charge("alipay", row["account"], row["trade_no"])
    if row["state"] != "SUCCESS" or not row["notify_url"] or charge is None:
        return None
    trade = world.trade("alipay", row["out_trade_no"], row["account"])
    done = sum(each["amount_fen"] for each in world.refunds_of(charge) if each["state"] == "SUCCESS")
    status = "TRADE_CLOSED" if done >= charge["amount_fen"] else "TRADE_SUCCESS"
    return world.announce(
        channel="alipay",
        account=row["account"],
        kind="refund",
        event=status,
        url=row["notify_url"],
        content=payment_content(world, trade, charge)
        | {
            "trade_status": status,
            "out_biz_no": row["refund_no"],
            "refund_fee": bills.yuan(done),
            "gmt_refund": stamp(row["succeeded_at"]) + ".000",
        },
        out_trade_no=row["out_trade_no"],
        refund_no=row["refund_no"],
    )


def notify_message(world: World, notify: Row, faults: dict[str, dict[str, Any]]) -> tuple[dict[str, str], bytes]:
    """A signed form. ``notify_time`` is that of the first sending: freshness is none of Alipay's promises."""
    age = 2 * 86400 if "stale" in faults else 0
    fields = notify["content"] | {
        "notify_id": notify["id"].replace("-", ""),
        "notify_time": stamp(notify["created_at"] - age),
    }
    if "wrong_amount" in faults:
        fields["total_amount"] = bills.yuan(int(faults["wrong_amount"].get("amount_fen", 1)))
    if "wrong_account" in faults:
        fields["seller_id"] = "2088999999999999"
    if "wrong_app" in faults:
        fields["app_id"] = "2021999999999999"
    if "malformed" in faults:
        fields["trade_status"] = "TRADE_MAYBE"
    key = world.keys["alipay"]["private_key"]
    if world.setting("notify_key") == "certificate":
        newest = world.keys["alipay"]["certificates"][-1]
        key = newest["private_key"]
        fields["alipay_cert_sn"] = crypto.certificate_sn(newest["certificate"])
    if {"forged", "unknown_serial", "signtest"} & set(faults):
        key = world.keys["forger"]["private_key"]
    signed = "&".join(f"{name}={fields[name]}" for name in sorted(fields))
    fields |= {"sign": crypto.sign(key, signed.encode()), "sign_type": "RSA2"}
    if "altered_body" in faults:
        fields["subject"] = fields["subject"] + "!"
    headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    return headers, urlencode(fields).encode()


def acknowledged(status: int, body: bytes) -> bool:
    return status == 200 and body.strip() == b"success"


RETRY_PAUSES = (240, 600, 600, 3600, 7200, 21600, 54000)
