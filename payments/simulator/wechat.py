"""WeChat Pay API v3 as its merchants see it: the endpoints, their checks, and what their answers look
like."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from payments.simulator import bills, crypto
from payments.simulator.faults import AFTER, REFUSALS, Fault
from payments.simulator.http import Reply, Request, json_reply
from payments.simulator.store import Row
from payments.simulator.world import CHINA, Impossible, World

SKEW_SECONDS = 300
STALE_SECONDS = 600
TOKEN_SECONDS = 300
AUTHORIZATION = re.compile(r'WECHATPAY2-SHA256-RSA2048 ((?:\w+="[^"]*")(?:,\w+="[^"]*")*)', re.ASCII)
OUT_TRADE_NO = re.compile(r"[0-9A-Za-z_\-|*]{6,32}", re.ASCII)
REFUND_NO = re.compile(r"[0-9A-Za-z_\-|*@]{1,64}", re.ASCII)
NOTIFY_URL = re.compile(r"(https://[^?#]+|http://(127\.0\.0\.1|localhost)(:\d+)?(/[^?#]*)?)", re.ASCII)
OPENID = re.compile(r"\S{1,128}")

REASONS = {
    "paid": (400, "ORDERPAID"),
    "closed": (400, "ORDER_CLOSED"),
    "no_trade": (404, "ORDER_NOT_EXIST"),
    "no_refund": (404, "RESOURCE_NOT_EXISTS"),
    "too_fast": (429, "FREQUENCY_LIMITED"),
}
"""Everything else the world refuses is an INVALID_REQUEST."""


class Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.reply = (status, code, message)


@dataclass(frozen=True)
class Call:
    """A request that carries a good signature, from this account."""

    world: World
    request: Request
    account: dict[str, Any]
    args: dict[str, str]
    struck: list[Fault]

    def json(self) -> dict[str, Any]:
        try:
            return self.request.json()
        except ValueError as error:
            raise Refused(400, "PARAM_ERROR", "请求体不是合法的JSON") from error


# -- requests
# -----------------------------------------------------------------------------------------------------


def handle(world: World, request: Request) -> tuple[str, Reply, dict[str, Any]]:
    """Answer one request. Returns the operation's name, the reply, and what to note in the log."""
    operation, endpoint, args = route(request)
    note: dict[str, Any] = facts_of(request, args)
    struck = world.faults.take(operation, note)
    note["fault"] = ",".join(fault.kind for fault in struck)
    account = authenticated(world, request)
    if account is None:
        note["code"] = "SIGN_ERROR"
        body = {"code": "SIGN_ERROR", "message": "签名错误", "detail": {"location": "authorization"}}
        return operation, json_reply(body, 401), note  # a 401 carries no signature
    before = next((reply for fault in struck if (reply := unaccepted(fault)) is not None), None)
    if before is not None:
        note["code"] = note["fault"]
        return operation, finished(world, request, before, struck), note
    try:
        if endpoint is None:
            raise Refused(404, "RESOURCE_NOT_EXISTS", "接口不存在")
        reply = endpoint(Call(world, request, account, args, struck))
    except Refused as refusal:
        reply = refusal_reply(*refusal.reply)
        note["code"] = refusal.reply[1]
    except Impossible as impossible:
        status, code = REASONS.get(impossible.reason, (400, "INVALID_REQUEST"))
        reply = refusal_reply(status, code, impossible.message)
        note["code"] = code
    return operation, finished(world, request, reply, struck), note


def facts_of(request: Request, args: dict[str, str]) -> dict[str, Any]:
    facts: dict[str, Any] = dict(args)
    if request.body:
        try:
            content = request.json()
        except ValueError:
            content = {}
        names = {"out_trade_no": "out_trade_no", "out_refund_no": "refund_no", "transaction_id": "trade_no"}
        facts |= {ours: content[theirs] for theirs, ours in names.items() if theirs in content}
    return facts


def authenticated(world: World, request: Request) -> dict[str, Any] | None:
    """Scheme, merchant, serial, five minutes, and the signature over method, target, time, nonce and raw
    body."""
    matched = AUTHORIZATION.fullmatch(request.headers.get("authorization", ""))
    if matched is None:
        return None
    fields = dict(re.findall(r'(\w+)="([^"]*)"', matched.group(1)))
    account = next((each for each in world.keys["wechat"]["accounts"] if each["mchid"] == fields.get("mchid")), None)
    if account is None or fields.get("serial_no") != account["serial"]:
        return None
    timestamp, nonce = fields.get("timestamp", ""), fields.get("nonce_str", "")
    if not (timestamp.isascii() and timestamp.isdigit() and nonce):
        return None
    if abs(time.time() - int(timestamp)) > SKEW_SECONDS:
        return None
    head = f"{request.method}\n{request.target}\n{timestamp}\n{nonce}\n".encode()
    if not crypto.fits(account["public_key"], head + request.body + b"\n", fields.get("signature", "")):
        return None
    return account


def unaccepted(fault: Fault) -> Reply | None:
    """The reply of a fault that strikes before anything is accepted."""
    if fault.kind in REFUSALS:
        return refusal_reply(*REFUSALS[fault.kind])
    match fault.kind:
        case "refuse":
            params = fault.params
            return refusal_reply(
                int(params.get("status", 400)),
                str(params.get("code", "INVALID_REQUEST")),
                str(params.get("message", "")),
            )
        case "server_error":
            return refusal_reply(500, "SYSTEM_ERROR", "系统异常，请稍后重试")
        case "reset":
            return Reply(reset=True)
        case "timeout":
            return Reply(hang_seconds=fault.seconds(30))
    return None


def refusal_reply(status: int, code: str, message: str) -> Reply:
    return json_reply({"code": code, "message": message}, status)


# -- signing answers
# ----------------------------------------------------------------------------------------------


def finished(world: World, request: Request, reply: Reply, struck: list[Fault]) -> Reply:
    """Apply the faults that strike after acceptance, and sign."""
    kinds = {fault.kind: fault for fault in struck if fault.kind in AFTER}
    if "delay" in kinds:
        reply.wait_seconds = kinds["delay"].seconds(1)
    if "timeout_after" in kinds:
        reply.hang_seconds = kinds["timeout_after"].seconds(30)
    if "reset_after" in kinds:
        reply.reset = True
    if "server_error_after" in kinds:
        reply.status, reply.body = 502, b"<html>Bad Gateway</html>"
        return reply
    if reply.status == 200 and "json" in reply.headers.get("Content-Type", ""):
        reply.body = bent(reply.body, kinds)
    if request.path == "/v3/billdownload/file":
        if "corrupt_bill" in kinds:
            reply.body = reply.body[: len(reply.body) // 2] or b"x"
        return reply  # a bill's bytes are not signed
    if "unsigned" not in kinds:
        reply.headers |= signature(world, request, reply.body, kinds)
    if "altered_body" in kinds:
        reply.body += b" "
    return reply


def bent(body: bytes, kinds: dict[str, Fault]) -> bytes:
    """Contents that are wrong although the signature will be right."""
    if "garbage" in kinds:
        return b"not json"
    content = json.loads(body)
    if "wrong_amount" in kinds and isinstance(content.get("amount"), dict):
        amount = int(kinds["wrong_amount"].params.get("amount_fen", 1))
        content["amount"] |= {"total": amount, "payer_total": amount}
        if "refund" in content["amount"]:
            content["amount"]["refund"] = amount
    if "wrong_order" in kinds:
        for name in ("out_trade_no", "out_refund_no"):
            if name in content:
                content[name] = "SOMEBODY-ELSES"
    return json_reply(content).body


def signature(world: World, request: Request, body: bytes, kinds: dict[str, Fault]) -> dict[str, str]:
    key_id, pem = answering_key(world, request.headers.get("wechatpay-serial", ""))
    if "key_mix" in kinds:
        key_id, pem = other_key(world, key_id)
    return signed_headers(world, key_id, pem, body, set(kinds))


def answering_key(world: World, asked: str) -> tuple[str, str]:
    """The key the request names by its serial; the newest certificate when it names none."""
    wechat = world.keys["wechat"]
    preference = world.setting("answer_key")
    if preference == "public_key" or (preference == "as_asked" and asked == wechat["platform"]["public_key_id"]):
        return wechat["platform"]["public_key_id"], wechat["platform"]["private_key"]
    for certificate in wechat["certificates"]:
        if certificate["serial"] == asked:
            return certificate["serial"], certificate["private_key"]
    newest = wechat["certificates"][-1]
    return newest["serial"], newest["private_key"]


def other_key(world: World, key_id: str) -> tuple[str, str]:
    platform, newest = world.keys["wechat"]["platform"], world.keys["wechat"]["certificates"][-1]
    if key_id == platform["public_key_id"]:
        return newest["serial"], newest["private_key"]
    return platform["public_key_id"], platform["private_key"]


def signed_headers(world: World, key_id: str, pem: str, body: bytes, kinds: set[str]) -> dict[str, str]:
    timestamp = int(time.time()) - (STALE_SECONDS if "stale" in kinds else 0)
    nonce = secrets.token_hex(16)
    if "forged" in kinds:
        pem = world.keys["forger"]["private_key"]
    if "unknown_serial" in kinds:
        key_id, pem = f"PUB_KEY_ID_0{secrets.randbelow(10**30):030d}", world.keys["forger"]["private_key"]
    made = crypto.sign(pem, f"{timestamp}\n{nonce}\n".encode() + body + b"\n")
    if "signtest" in kinds:
        made = f"WECHATPAY/SIGNTEST/{made[19:]}"
    return {
        "Wechatpay-Timestamp": str(timestamp),
        "Wechatpay-Nonce": nonce,
        "Wechatpay-Serial": key_id,
        "Wechatpay-Signature": made,
        "Wechatpay-Signature-Type": "WECHATPAY2-SHA256-RSA2048",
    }


# -- reading what was sent
# ----------------------------------------------------------------------------------------


def want(good: bool, message: str, code: str = "PARAM_ERROR") -> None:
    if not good:
        raise Refused(400, code, message)


def text(content: dict[str, Any], name: str, pattern: re.Pattern[str] | None = None, most: int = 256) -> str:
    value = content.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= most:
        raise Refused(400, "PARAM_ERROR", f"{name}不合法")
    if pattern is not None and not pattern.fullmatch(value):
        raise Refused(400, "PARAM_ERROR", f"{name}格式不合法")
    return value


def fen(content: dict[str, Any], name: str) -> int:
    amount = content.get("amount")
    want(isinstance(amount, dict), "amount不合法")
    assert isinstance(amount, dict)
    want(amount.get("currency", "CNY") == "CNY", "currency不合法")
    value = amount.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Refused(400, "PARAM_ERROR", f"amount.{name}必须是正整数")
    return value


def moment_text(moment: float) -> str:
    return datetime.fromtimestamp(moment, CHINA).isoformat(timespec="seconds")


def own_mchid(call: Call, mchid: object) -> None:
    want(mchid == call.account["mchid"], "商户号与签名不匹配", "MCH_NOT_EXISTS")


# -- endpoints
# ----------------------------------------------------------------------------------------------------


def prepay(call: Call) -> Reply:
    content = call.json()
    own_mchid(call, content.get("mchid"))
    want(content.get("appid") == call.account["app_id"], "appid和mch_id不匹配", "APPID_MCHID_NOT_MATCH")
    payer = content.get("payer")
    want(isinstance(payer, dict), "payer不合法")
    expires = content.get("time_expire")
    try:
        expires_at = datetime.fromisoformat(expires).timestamp() if expires else None
    except (TypeError, ValueError) as error:
        raise Refused(400, "PARAM_ERROR", "time_expire不合法") from error
    day = datetime.fromtimestamp(call.world.business_now(), CHINA).strftime("%d%H%M%S")
    trade = call.world.place_trade(
        {
            "channel": "wechat",
            "account": call.account["mchid"],
            "out_trade_no": text(content, "out_trade_no", OUT_TRADE_NO),
            "app_id": content["appid"],
            "payer": text(dict(payer or {}), "openid", OPENID, 128),
            "description": text(content, "description", most=127),
            "notify_url": text(content, "notify_url", NOTIFY_URL),
            "total_fen": fen(content, "total"),
            "expires_at": expires_at,
            "prepay_id": f"wx{day}{secrets.token_hex(13)}",
        }
    )
    return json_reply({"prepay_id": trade["prepay_id"]})


def query(call: Call) -> Reply:
    own_mchid(call, call.request.query.get("mchid"))
    trade = call.world.trade("wechat", call.args["out_trade_no"], call.account["mchid"])
    charges = call.world.charges(trade)
    return json_reply(transaction(call.world, trade, charges[0] if charges else None))


def query_by_id(call: Call) -> Reply:
    own_mchid(call, call.request.query.get("mchid"))
    charge = call.world.charge("wechat", call.account["mchid"], call.args["trade_no"])
    if charge is None:
        raise Refused(404, "ORDER_NOT_EXIST", "订单不存在")
    trade = call.world.trade("wechat", charge["out_trade_no"], call.account["mchid"])
    return json_reply(transaction(call.world, trade, charge))


def transaction(world: World, trade: Row, charge: Row | None) -> dict[str, Any]:
    """A transaction as a query shows it and a notify carries it."""
    shown: dict[str, Any] = {
        "appid": trade["app_id"],
        "mchid": trade["account"],
        "out_trade_no": trade["out_trade_no"],
        "trade_state": trade["state"],
        "trade_state_desc": trade["state"],
        "payer": {"openid": trade["payer"]},
        "attach": "",
    }
    if charge is None:
        return shown | {"amount": {"total": trade["total_fen"], "currency": "CNY"}}
    refunded = any(row["state"] != "CLOSED" for row in world.refunds_of(charge))
    shown |= {
        "trade_state": "REFUND" if refunded else "SUCCESS",
        "trade_state_desc": "转入退款" if refunded else "支付成功",
        "transaction_id": charge["trade_no"],
        "trade_type": "JSAPI",
        "bank_type": "OTHERS",
        "success_time": moment_text(charge["paid_at"]),
        "amount": {
            "total": charge["amount_fen"],
            "payer_total": charge["payer_fen"],
            "currency": "CNY",
            "payer_currency": "CNY",
        },
    }
    if charge["voucher_fen"]:
        shown["promotion_detail"] = [
            {"coupon_id": "109519", "name": "渠道代金券", "type": "NOCASH", "amount": charge["voucher_fen"]}
        ]
    return shown


def close(call: Call) -> Reply:
    own_mchid(call, call.json().get("mchid"))
    with call.world.store.transaction():
        try:
            trade = call.world.trade("wechat", call.args["out_trade_no"], call.account["mchid"])
        except Impossible:
            return Reply(204)  # the channel says so for numbers it never saw, too
        if call.world.charges(trade):
            raise Impossible("paid", "该订单已支付")
        call.world.set_trade_state(trade, "CLOSED")
    return Reply(204)


def refund(call: Call) -> Reply:
    content = call.json()
    world, mchid = call.world, call.account["mchid"]
    refund_no = text(content, "out_refund_no", REFUND_NO)
    want(("transaction_id" in content) != ("out_trade_no" in content), "transaction_id与out_trade_no二选一")
    if content.get("notify_url") is not None:
        text(content, "notify_url", NOTIFY_URL)
    if "transaction_id" in content:
        charge = world.charge("wechat", mchid, text(content, "transaction_id"))
    else:
        try:
            trade = world.trade("wechat", text(content, "out_trade_no", OUT_TRADE_NO), mchid)
        except Impossible as error:
            raise Refused(404, "RESOURCE_NOT_EXISTS", "订单不存在") from error
        charges = world.charges(trade)
        want(bool(charges), "订单未支付", "INVALID_REQUEST")
        charge = charges[0]
    if charge is None:
        raise Refused(404, "RESOURCE_NOT_EXISTS", "订单不存在")
    placed = world.place_refund(
        charge,
        refund_no=refund_no,
        amount_fen=fen(content, "refund"),
        total_fen=fen(content, "total"),
        reason=str(content.get("reason", ""))[:80],
        notify_url=content.get("notify_url") or "",
    )
    return json_reply(refund_content(placed))


def refund_content(row: Row) -> dict[str, Any]:
    """A refund as an answer shows it: ``status``, where a notify says ``refund_status``."""
    shown = {
        "refund_id": row["refund_id"],
        "out_refund_no": row["refund_no"],
        "transaction_id": row["trade_no"],
        "out_trade_no": row["out_trade_no"],
        "channel": "ORIGINAL",
        "user_received_account": row["received_by"],
        "create_time": moment_text(row["created_at"]),
        "status": row["state"],
        "funds_account": "AVAILABLE",
        "amount": {
            "total": row["total_fen"],
            "refund": row["amount_fen"],
            "payer_total": row["total_fen"],
            "payer_refund": row["payer_fen"],
            "settlement_refund": row["payer_fen"],
            "settlement_total": row["total_fen"],
            "discount_refund": row["voucher_fen"],
            "currency": "CNY",
        },
    }
    if row["succeeded_at"]:
        shown["success_time"] = moment_text(row["succeeded_at"])
    return shown


def query_refund(call: Call) -> Reply:
    return json_reply(refund_content(call.world.refund("wechat", call.args["refund_no"], call.account["mchid"])))


def abnormal_refund(call: Call) -> Reply:
    content = call.json()
    row = call.world.refund("wechat", text(content, "out_refund_no", REFUND_NO), call.account["mchid"])
    want(row["refund_id"] == call.args["refund_id"], "退款单号不一致", "INVALID_REQUEST")
    kind = content.get("type")
    want(kind in ("USER_BANK_CARD", "MERCHANT_BANK_CARD"), "type不合法")
    received_by = "商户银行卡"
    if kind == "USER_BANK_CARD":
        account = opened(call, text(content, "bank_account", most=1024))
        name = opened(call, text(content, "real_name", most=1024))
        received_by = f"{text(content, 'bank_type')} {account[-4:]} {name[:1]}*"
    return json_reply(refund_content(call.world.resume_abnormal(row, received_by)))


def opened(call: Call, ciphertext: str) -> str:
    """A field encrypted for the key that the request's serial names."""
    wechat, asked = call.world.keys["wechat"], call.request.headers.get("wechatpay-serial", "")
    pems = {wechat["platform"]["public_key_id"]: wechat["platform"]["private_key"]}
    pems |= {certificate["serial"]: certificate["private_key"] for certificate in wechat["certificates"]}
    want(asked in pems, "Wechatpay-Serial不合法")
    try:
        return crypto.open_oaep(pems[asked], ciphertext)
    except ValueError as error:
        raise Refused(400, "PARAM_ERROR", "敏感字段解密失败") from error


def certificates(call: Call) -> Reply:
    now = datetime.now(CHINA)
    entries = []
    for certificate in call.world.keys["wechat"]["certificates"]:
        nonce = secrets.token_hex(6)
        entries.append(
            {
                "serial_no": certificate["serial"],
                "effective_time": (now - timedelta(days=1)).isoformat(timespec="seconds"),
                "expire_time": (now + timedelta(days=5 * 365 - 1)).isoformat(timespec="seconds"),
                "encrypt_certificate": {
                    "algorithm": "AEAD_AES_256_GCM",
                    "nonce": nonce,
                    "associated_data": "certificate",
                    "ciphertext": crypto.seal(
                        call.account["api_v3_key"], nonce, certificate["certificate"], "certificate"
                    ),
                },
            }
        )
    return json_reply({"data": entries})


def tradebill(call: Call) -> Reply:
    query = call.request.query
    kind = query.get("bill_type", "ALL")
    want(kind in ("ALL", "SUCCESS", "REFUND"), "bill_type不合法")
    bill_on = bill_day(call)
    content = bills.wechat_trade_bill(call.world, call.account["mchid"], bill_on, kind, call.struck)
    return bill_reply(call, content)


def fundflowbill(call: Call) -> Reply:
    want(call.request.query.get("account_type", "BASIC") in ("BASIC", "OPERATION", "FEES"), "account_type不合法")
    bill_on = bill_day(call)
    content = None
    if call.request.query.get("account_type", "BASIC") == "BASIC":
        content = bills.wechat_fund_flow_bill(call.world, call.account["mchid"], bill_on, call.struck)
    return bill_reply(call, content)


def bill_day(call: Call) -> date:
    try:
        bill_on = date.fromisoformat(call.request.query.get("bill_date", ""))
    except ValueError as error:
        raise Refused(400, "PARAM_ERROR", "bill_date不合法") from error
    today = call.world.business_day(call.world.business_now())
    want(today - bill_on <= timedelta(days=92), "仅支持三个月内的账单", "INVALID_REQUEST")
    ready = call.world.setting("bills_always_ready")
    want(bill_on < today or (ready and bill_on == today), "账单日期不合法", "INVALID_REQUEST")
    if not call.world.bill_is_ready(bill_on):
        raise Refused(400, "STATEMENT_CREATING", "账单生成中，请稍后再试")
    return bill_on


def bill_reply(call: Call, content: str | None) -> Reply:
    if content is None:
        raise Refused(400, "NO_STATEMENT_EXIST", "账单不存在")
    raw = content.encode()
    packed = gzip.compress(raw, mtime=0) if call.request.query.get("tar_type") == "GZIP" else raw
    token = secrets.token_urlsafe(24)
    call.world.store.run("DELETE FROM bill_file WHERE made_at < ?", time.time() - TOKEN_SECONDS)
    call.world.store.insert("bill_file", token=token, body=packed, made_at=time.time())
    base = f"http://{call.request.headers.get('host', '127.0.0.1')}"
    return json_reply(
        {
            "hash_type": "SHA1",
            "hash_value": hashlib.sha1(raw).hexdigest(),
            "download_url": f"{base}/v3/billdownload/file?token={token}",
        }
    )


def billdownload(call: Call) -> Reply:
    row = call.world.store.one(
        "SELECT body FROM bill_file WHERE token = ? AND made_at > ?",
        call.request.query.get("token", ""),
        time.time() - TOKEN_SECONDS,
    )
    if row is None:
        raise Refused(400, "INVALID_REQUEST", "账单下载地址已失效")
    return Reply(200, row["body"], {"Content-Type": "application/octet-stream"})


Endpoint = Callable[[Call], Reply]

ROUTES: list[tuple[str, str, re.Pattern[str], Endpoint]] = [
    (name, method, re.compile(pattern, re.ASCII), endpoint)
    for name, method, pattern, endpoint in [
        ("wechat.prepay", "POST", r"/v3/pay/transactions/jsapi", prepay),
        ("wechat.query", "GET", r"/v3/pay/transactions/out-trade-no/(?P<out_trade_no>[^/]+)", query),
        ("wechat.query_by_id", "GET", r"/v3/pay/transactions/id/(?P<trade_no>[^/]+)", query_by_id),
        ("wechat.close", "POST", r"/v3/pay/transactions/out-trade-no/(?P<out_trade_no>[^/]+)/close", close),
        ("wechat.refund", "POST", r"/v3/refund/domestic/refunds", refund),
        ("wechat.query_refund", "GET", r"/v3/refund/domestic/refunds/(?P<refund_no>[^/]+)", query_refund),
        (
            "wechat.abnormal_refund",
            "POST",
            r"/v3/refund/domestic/refunds/(?P<refund_id>[^/]+)/apply-abnormal-refund",
            abnormal_refund,
        ),
        ("wechat.certificates", "GET", r"/v3/certificates", certificates),
        ("wechat.tradebill", "GET", r"/v3/bill/tradebill", tradebill),
        ("wechat.fundflowbill", "GET", r"/v3/bill/fundflowbill", fundflowbill),
        ("wechat.billdownload", "GET", r"/v3/billdownload/file", billdownload),
    ]
]

OPERATIONS = tuple(name for name, *_ in ROUTES)


def route(request: Request) -> tuple[str, Endpoint | None, dict[str, str]]:
    for name, method, pattern, endpoint in ROUTES:
        matched = pattern.fullmatch(request.path)
        if matched is not None and method == request.method:
            return name, endpoint, matched.groupdict()
    return "wechat.unknown", None, {}


# -- notifies
# -----------------------------------------------------------------------------------------------------


def payment_content(world: World, trade: Row, charge: Row) -> dict[str, Any]:
    """A payment's notify always says SUCCESS, whatever was refunded since."""
    return transaction(world, trade, charge) | {"trade_state": "SUCCESS", "trade_state_desc": "支付成功"}


def announce_payment(world: World, trade: Row, charge: Row) -> str:
    return world.announce(
        channel="wechat",
        account=trade["account"],
        kind="payment",
        event="TRANSACTION.SUCCESS",
        url=trade["notify_url"],
        content=payment_content(world, trade, charge),
        out_trade_no=trade["out_trade_no"],
    )


def announce_refund(world: World, row: Row) -> str | None:
    if not row["notify_url"]:
        return None
    shown = refund_content(row)
    names = ("refund_id", "out_refund_no", "transaction_id", "out_trade_no", "user_received_account", "success_time")
    content = {name: shown[name] for name in names if name in shown}
    amount = {name: shown["amount"][name] for name in ("total", "refund", "payer_total", "payer_refund")}
    return world.announce(
        channel="wechat",
        account=row["account"],
        kind="refund",
        event=f"REFUND.{row['state']}",
        url=row["notify_url"],
        content=content | {"mchid": row["account"], "refund_status": row["state"], "amount": amount},
        out_trade_no=row["out_trade_no"],
        refund_no=row["refund_no"],
    )


def notify_message(world: World, notify: Row, faults: dict[str, dict[str, Any]]) -> tuple[dict[str, str], bytes]:
    """Headers and body of one sending, freshly signed, with what is wrong about it."""
    content = notify["content"]
    if "wrong_amount" in faults:
        amount = int(faults["wrong_amount"].get("amount_fen", 1))
        content["amount"] |= {"total": amount, "payer_total": amount}
        if notify["kind"] == "refund":
            content["amount"] |= {"refund": amount, "payer_refund": amount}
    if "wrong_account" in faults:
        content["mchid"] = "1999999999"
    if "wrong_app" in faults:
        content["appid"] = "wx0000000000000000"
    account = next(each for each in world.keys["wechat"]["accounts"] if each["mchid"] == notify["account"])
    original = "transaction" if notify["kind"] == "payment" else "refund"
    nonce = secrets.token_hex(6)
    plaintext = json.dumps(content, ensure_ascii=False)
    envelope = {
        "id": notify["id"],
        "create_time": moment_text(notify["created_at"]),
        "resource_type": "encrypt-resource",
        "event_type": notify["event"],
        "summary": "支付成功" if notify["kind"] == "payment" else "退款结果",
        "resource": {
            "original_type": original,
            "algorithm": "AEAD_AES_256_GCM",
            "ciphertext": crypto.seal(account["api_v3_key"], nonce, plaintext, original),
            "associated_data": original,
            "nonce": nonce,
        },
    }
    body = json_reply(envelope).body
    if "malformed" in faults:
        body = b'{"id":"garbage"}'
    key_id, pem = notifying_key(world)
    if "key_mix" in faults:
        key_id, pem = other_key(world, key_id)
    headers = signed_headers(world, key_id, pem, body, set(faults))
    if "altered_body" in faults:
        body = body.replace(b"encrypt-resource", b"encrypt-resourcf")
    return headers | {"Content-Type": "application/json"}, body


def notifying_key(world: World) -> tuple[str, str]:
    platform, newest = world.keys["wechat"]["platform"], world.keys["wechat"]["certificates"][-1]
    chosen = world.setting("notify_key")
    if chosen == "mix":
        chosen = secrets.choice(("public_key", "certificate"))
    if chosen == "certificate":
        return newest["serial"], newest["private_key"]
    return platform["public_key_id"], platform["private_key"]


def acknowledged(status: int, body: bytes) -> bool:
    return status in (200, 204)


RETRY_PAUSES = (15, 15, 30, 180, 600, 1200, 1800, 1800, 1800, 3600, 10800, 10800, 10800, 21600, 21600)
