"""WeChat Pay API v3 for mini-programs: the strict driver.

Every answer is verified, 2xx or not, before a word of it is believed; the one exception is a bill's download,
whose bytes are checked against the hash of a verified answer. How an ending is read:

    no answer, reset, 5xx, unsigned, forged, stale, not JSON      ChannelUnknown (a 401 is always unsigned)
    signed 4xx                                                    ChannelRefused, with what it allows next
    signed 404 to a query                                         a fact: NOT_FOUND
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from payments.channels import wechat_bill
from payments.channels.measures import measured
from payments.channels.sending import check, checked_notify_url, not_sent, whole_fen
from payments.channels.transport import ANSWER_LIMIT, FILE_LIMIT, Answer, ChannelHttp, Timeouts
from payments.channels.wechat_facts import about, moment_of, object_of, payment_fact, refund_fact, text_of
from payments.channels.wechat_wire import (
    BadSignature,
    Signer,
    Undecryptable,
    Verifier,
    VerifyingKey,
    certificate_key,
    decrypt_resource,
    encrypt_for_platform,
    load_private_key,
    load_verifying_key,
    new_nonce,
    normal_key_id,
    wall_clock,
)
from payments.gateway import (
    AbnormalRefundTo,
    BillFile,
    BillKind,
    BillRow,
    BillState,
    Channel,
    ChannelRefused,
    ChannelUnknown,
    Doubt,
    FollowUp,
    NotifyAnswer,
    NotifyRejected,
    PaymentFact,
    PaymentNotice,
    PaymentState,
    Prepaid,
    RefundFact,
    RefundNotice,
    RefundState,
    Verdict,
)

PRODUCTION = "https://api.mch.weixin.qq.com"
CHINA = ZoneInfo("Asia/Shanghai")
CERTIFICATE_MAX_AGE = timedelta(hours=12)
CERTIFICATE_RETRY_AFTER = timedelta(seconds=60)
"""A notify may make us look for certificates, but not more often than this."""

OUT_TRADE_NO = re.compile(r"[0-9A-Za-z_-]{6,32}", re.ASCII)
REFUND_NO = re.compile(r"[0-9A-Za-z_-]{1,64}", re.ASCII)
TRADE_NO = re.compile(r"[0-9A-Za-z]{1,32}", re.ASCII)
"""WeChat Pay also allows ``|``, ``*`` and ``@``, which its own clients sign wrongly in a path: we do not."""

FOLLOW_UPS = {
    "NOT_ENOUGH": FollowUp.SAME_NUMBER_LATER,
    "FREQUENCY_LIMITED": FollowUp.SAME_NUMBER_LATER,
    "FREQUENCY_LIMIT_EXCEED": FollowUp.SAME_NUMBER_LATER,
    "RATELIMIT_EXCEEDED": FollowUp.SAME_NUMBER_LATER,
    "INVALID_REQUEST": FollowUp.ASK_AND_ALERT,
    "USER_ACCOUNT_ABNORMAL": FollowUp.OTHER_MEANS,
}
BUSY = {"SYSTEM_ERROR", "BIZERR_NEED_RETRY", "BANK_ERROR"}


@dataclass(frozen=True, kw_only=True)
class PlatformKey:
    """A key of the platform: its public key under ``PUB_KEY_ID_…``, or a certificate under its serial."""

    key_id: str
    pem: str


@dataclass(frozen=True, kw_only=True)
class WechatConfig:
    """One merchant account. Several ``platform_keys`` may be known at once (rotation); with
    ``certificate_mode`` certificates are fetched besides. ``public_key_id`` names the key that answers are
    asked to be signed with."""

    mchid: str
    app_id: str
    merchant_serial: str
    private_key: str = field(repr=False)
    api_v3_key: str = field(repr=False)
    platform_keys: tuple[PlatformKey, ...] = ()
    public_key_id: str = ""
    certificate_mode: bool = False
    base_url: str = PRODUCTION
    timeouts: Timeouts = field(default_factory=Timeouts)


class WechatGateway:
    """One account at WeChat Pay. Threads may share it; a fork may not."""

    channel = Channel.WECHAT

    def __init__(self, config: WechatConfig, *, wall: Callable[[], datetime] = wall_clock) -> None:
        if len(config.api_v3_key.encode()) != 32:
            raise ValueError("an API v3 key has 32 bytes")
        if not (config.platform_keys or config.certificate_mode):
            raise ValueError("a platform key, or certificate mode, is needed to verify anything")
        self._config = config
        self._wall = wall
        self._signer = Signer(config.mchid, config.merchant_serial, load_private_key(config.private_key))
        self._known = tuple(load_verifying_key(key.key_id, key.pem) for key in config.platform_keys)
        self._http = ChannelHttp(config.base_url, config.timeouts)
        self._lock = threading.Lock()
        self._fetched: tuple[VerifyingKey, ...] = ()
        self._fetched_at: datetime | None = None
        self._tried_at: datetime | None = None

    def close(self) -> None:
        self._http.close()

    # -- payments
    # ------------------------------------------------------------------------------------------------

    def prepay(
        self,
        *,
        out_trade_no: str,
        amount_fen: int,
        description: str,
        payer_ref: str,
        notify_url: str,
        expires_at: datetime | None,
        now: datetime,
    ) -> Prepaid:
        check(OUT_TRADE_NO, out_trade_no, "out_trade_no")
        body: dict[str, Any] = {
            "appid": self._config.app_id,
            "mchid": self._config.mchid,
            "description": description[:127] or out_trade_no,
            "out_trade_no": out_trade_no,
            "notify_url": checked_notify_url(notify_url),
            "amount": {"total": whole_fen(amount_fen), "currency": "CNY"},
            "payer": {"openid": payer_ref},
        }
        if expires_at is not None:
            body["time_expire"] = expires_at.astimezone(CHINA).isoformat(timespec="seconds")
        answer = self._call("POST", "/v3/pay/transactions/jsapi", body)
        prepay_id = text_of(answer, "prepay_id")
        return Prepaid(channel=Channel.WECHAT, prepay_id=prepay_id, client_params=self._client_params(prepay_id))

    def _client_params(self, prepay_id: str) -> dict[str, str]:
        timestamp, nonce, package = int(self._wall().timestamp()), new_nonce(), f"prepay_id={prepay_id}"
        return {
            "appId": self._config.app_id,
            "timeStamp": str(timestamp),
            "nonceStr": nonce,
            "package": package,
            "signType": "RSA",
            "paySign": self._signer.pay_sign(
                app_id=self._config.app_id, timestamp=timestamp, nonce=nonce, package=package
            ),
        }

    def query_payment(self, *, out_trade_no: str, now: datetime) -> PaymentFact:
        check(OUT_TRADE_NO, out_trade_no, "out_trade_no")
        return self._query(f"/v3/pay/transactions/out-trade-no/{out_trade_no}", out_trade_no, "")

    def query_payment_by_trade_no(self, *, trade_no: str, out_trade_no: str, now: datetime) -> PaymentFact:
        check(TRADE_NO, trade_no, "trade_no")
        return self._query(f"/v3/pay/transactions/id/{trade_no}", out_trade_no, trade_no)

    def _query(self, path: str, out_trade_no: str, trade_no: str) -> PaymentFact:
        try:
            answer = self._call("GET", f"{path}?mchid={self._config.mchid}")
        except ChannelRefused as refusal:
            if refusal.status == 404:
                return PaymentFact(
                    channel=Channel.WECHAT,
                    state=PaymentState.NOT_FOUND,
                    out_trade_no=out_trade_no,
                    trade_no=trade_no,
                )
            raise
        fact = payment_fact(answer)
        if fact.out_trade_no != out_trade_no or (trade_no and fact.trade_no != trade_no):
            raise ChannelUnknown(Doubt.MALFORMED, "an answer about another order")
        return fact

    def close_payment(self, *, out_trade_no: str, now: datetime) -> None:
        check(OUT_TRADE_NO, out_trade_no, "out_trade_no")
        self._call(
            "POST",
            f"/v3/pay/transactions/out-trade-no/{out_trade_no}/close",
            {"mchid": self._config.mchid},
        )

    # -- refunds
    # -------------------------------------------------------------------------------------------------

    def refund(
        self,
        *,
        refund_no: str,
        out_trade_no: str,
        amount_fen: int,
        total_fen: int,
        reason: str,
        notify_url: str,
        trade_no: str = "",
        now: datetime,
    ) -> RefundFact:
        check(REFUND_NO, refund_no, "refund_no")
        body: dict[str, Any] = {
            "out_refund_no": refund_no,
            "notify_url": checked_notify_url(notify_url),
            "amount": {
                "refund": whole_fen(amount_fen),
                "total": whole_fen(total_fen),
                "currency": "CNY",
            },
        }
        if trade_no:
            check(TRADE_NO, trade_no, "trade_no")
            body["transaction_id"] = trade_no
        else:
            check(OUT_TRADE_NO, out_trade_no, "out_trade_no")
            body["out_trade_no"] = out_trade_no
        if reason:
            body["reason"] = reason[:80]
        return about(refund_no, refund_fact(self._call("POST", "/v3/refund/domestic/refunds", body)))

    def query_refund(self, *, refund_no: str, out_trade_no: str, now: datetime) -> RefundFact:
        check(REFUND_NO, refund_no, "refund_no")
        try:
            answer = self._call("GET", f"/v3/refund/domestic/refunds/{refund_no}")
        except ChannelRefused as refusal:
            if refusal.status == 404:
                return RefundFact(
                    channel=Channel.WECHAT,
                    state=RefundState.NOT_FOUND,
                    refund_no=refund_no,
                    out_trade_no=out_trade_no,
                )
            raise
        return about(refund_no, refund_fact(answer))

    def apply_abnormal_refund(
        self,
        *,
        refund_no: str,
        refund_id: str,
        to: AbnormalRefundTo,
        bank_type: str = "",
        bank_account: str = "",
        real_name: str = "",
        now: datetime,
    ) -> RefundFact:
        check(REFUND_NO, refund_no, "refund_no")
        check(TRADE_NO, refund_id, "refund_id")
        body = {"out_refund_no": refund_no, "type": to.value}
        headers = {}
        if to is AbnormalRefundTo.USER_BANK_CARD:
            if not (bank_type and bank_account and real_name):
                raise not_sent("a bank card needs bank_type, bank_account and real_name")
            key = self._encryption_key()
            body["bank_type"] = bank_type
            body["bank_account"] = encrypt_for_platform(bank_account, key)
            body["real_name"] = encrypt_for_platform(real_name, key)
            headers["Wechatpay-Serial"] = key.key_id
        path = f"/v3/refund/domestic/refunds/{refund_id}/apply-abnormal-refund"
        return about(refund_no, refund_fact(self._call("POST", path, body, headers)))

    # -- bills
    # ---------------------------------------------------------------------------------------------------

    def download_bill(self, *, kind: BillKind, bill_on: date, now: datetime) -> BillFile:
        """Payments (``bill_type=SUCCESS``), refunds (``REFUND``) or the fund flow of the basic account."""
        targets = {
            BillKind.TRADE: f"/v3/bill/tradebill?bill_date={bill_on}&bill_type=SUCCESS&tar_type=GZIP",
            BillKind.REFUND: f"/v3/bill/tradebill?bill_date={bill_on}&bill_type=REFUND&tar_type=GZIP",
            BillKind.FUNDFLOW: f"/v3/bill/fundflowbill?bill_date={bill_on}&account_type=BASIC&tar_type=GZIP",
        }
        try:
            answer = self._call("GET", targets[kind])
        except ChannelRefused as refusal:
            state = {"NO_STATEMENT_EXIST": BillState.EMPTY, "STATEMENT_CREATING": BillState.CREATING}.get(refusal.code)
            if state is None:
                raise
            return BillFile(channel=Channel.WECHAT, kind=kind, bill_on=bill_on, state=state)
        if text_of(answer, "hash_type") != "SHA1":
            raise ChannelUnknown(Doubt.MALFORMED, "a hash we do not know")
        sha1 = text_of(answer, "hash_value").lower()
        raw = unpacked(self._download(text_of(answer, "download_url")))
        if hashlib.sha1(raw).hexdigest() != sha1:
            raise ChannelUnknown(Doubt.CORRUPT_BILL, "the hash differs")
        return BillFile(
            channel=Channel.WECHAT,
            kind=kind,
            bill_on=bill_on,
            state=BillState.AVAILABLE,
            raw=raw,
            sha1=sha1,
        )

    def _download(self, url: str) -> bytes:
        parts = urlsplit(url)
        if (parts.scheme, parts.hostname, parts.port) != origin(self._config.base_url):
            raise ChannelUnknown(Doubt.MALFORMED, "a download from elsewhere")
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        answer = self._send("GET", target, b"", {}, FILE_LIMIT)
        if answer.status != 200:
            raise ChannelUnknown(Doubt.SERVER_ERROR, "no bill at the address given", answer.status)
        return answer.body

    def parse_bill(self, bill: BillFile) -> Iterator[BillRow]:
        return wechat_bill.rows(bill)

    # -- notifies
    # ------------------------------------------------------------------------------------------------

    def parse_notify(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> PaymentNotice | RefundNotice:
        """Verify, decrypt, read. Freshness is judged by ``now``."""
        lower = {name.lower(): value for name, value in headers.items()}
        try:
            key_id = self._verifier().verify(lower, body, now=now)
        except BadSignature as refusal:
            verdict = Verdict.STALE if refusal.kind == "stale" else Verdict.FORGED
            raise NotifyRejected(verdict, str(refusal)) from refusal
        try:
            envelope = object_of(body)
            resource = envelope["resource"]
            if not isinstance(resource, dict):
                raise TypeError("no resource")
            plaintext = object_of(decrypt_resource(resource, self._config.api_v3_key).encode())
            return self._notice(envelope, resource.get("original_type"), plaintext, key_id)
        except (ValueError, KeyError, TypeError, Undecryptable, ChannelUnknown) as error:
            raise NotifyRejected(Verdict.MALFORMED, f"{type(error).__name__}: {error}") from error

    def _notice(
        self, envelope: dict[str, Any], original_type: object, plaintext: dict[str, Any], key_id: str
    ) -> PaymentNotice | RefundNotice:
        event_type = text_of(envelope, "event_type")
        head: dict[str, Any] = {
            "notify_id": text_of(envelope, "id"),
            "event_type": event_type,
            "created_at": moment_of(envelope, "create_time"),
            "key_id": key_id,
            "plaintext": plaintext,
        }
        if original_type == "transaction" and event_type == "TRANSACTION.SUCCESS":
            paid = payment_fact(plaintext)
            if not paid.state.is_paid:
                raise ValueError("event and state contradict each other")
            return PaymentNotice(fact=paid, **head)
        if original_type == "refund" and event_type.startswith("REFUND."):
            fact = refund_fact(plaintext, state_field="refund_status")
            if event_type != f"REFUND.{fact.state}":
                raise ValueError("event and state contradict each other")
            return RefundNotice(fact=fact, merchant_ref=text_of(plaintext, "mchid"), **head)
        raise ValueError(f"a notify we do not know: {event_type}")

    def parse_payment_notify(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> PaymentNotice:
        notice = self.parse_notify(headers=headers, body=body, now=now)
        if not isinstance(notice, PaymentNotice):
            raise NotifyRejected(Verdict.MALFORMED, "a refund's notify at a payment's address")
        return notice

    def parse_refund_notify(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> RefundNotice:
        notice = self.parse_notify(headers=headers, body=body, now=now)
        if not isinstance(notice, RefundNotice):
            raise NotifyRejected(Verdict.MALFORMED, "a payment's notify at a refund's address")
        return notice

    def ack(self) -> NotifyAnswer:
        return NotifyAnswer(status=204)

    def nack(self, message: str) -> NotifyAnswer:
        body = json.dumps({"code": "FAIL", "message": message[:200]}, ensure_ascii=False).encode()
        return NotifyAnswer(status=500, body=body, content_type="application/json")

    # -- keys
    # ----------------------------------------------------------------------------------------------------

    def _verifier(self) -> Verifier:
        """Every key we know. In certificate mode fetches when there is none yet or the last look is old, at
        most once a minute, so that no stream of forged notifies becomes a stream of calls."""
        if not self._config.certificate_mode:
            return Verifier.of(self._known)
        with self._lock:
            wall = self._wall()
            due = self._fetched_at is None or wall - self._fetched_at > CERTIFICATE_MAX_AGE
            rested = self._tried_at is None or wall - self._tried_at > CERTIFICATE_RETRY_AFTER
            if due and rested:
                self._tried_at = wall
                try:
                    self._fetched = self._fetch_certificates(wall)
                    self._fetched_at = wall
                except ChannelUnknown:
                    if not (self._fetched or self._known):
                        raise
            if not (self._fetched or self._known):
                raise ChannelUnknown(Doubt.CONNECTION, "the platform's certificates could not be fetched yet")
            return Verifier.of((*self._known, *self._fetched))

    def refresh_certificates(self) -> tuple[str, ...]:
        """Fetch the platform's certificates now (certificate mode); the serials now believed."""
        with self._lock:
            wall = self._wall()
            self._fetched = self._fetch_certificates(wall)
            self._fetched_at = self._tried_at = wall
            return tuple(key.key_id for key in self._fetched)

    def _fetch_certificates(self, wall: datetime) -> tuple[VerifyingKey, ...]:
        """Certificates come encrypted under our API v3 key, which vouches for them; the answer's own
        signature is then checked with what it brought or what we knew."""
        answer = self._send("GET", "/v3/certificates", b"", {})
        if answer.status != 200:
            raise self._unknown_of(answer)
        try:
            entries = object_of(answer.body)["data"]
            keys = tuple(self._certificate(entry) for entry in entries)
        except (ValueError, KeyError, TypeError, RecursionError, Undecryptable, ChannelUnknown) as error:
            raise ChannelUnknown(Doubt.MALFORMED, f"certificates: {error}") from error
        keys = tuple(key for key in keys if key.valid_until is None or key.valid_until > wall)
        try:
            Verifier.of((*self._known, *keys)).verify(answer.headers, answer.body, now=self._wall())
        except BadSignature as refusal:
            raise ChannelUnknown(Doubt(refusal.kind), str(refusal), answer.status) from refusal
        return keys

    def _certificate(self, entry: Mapping[str, Any]) -> VerifyingKey:
        key = certificate_key(decrypt_resource(entry["encrypt_certificate"], self._config.api_v3_key))
        if key.key_id != normal_key_id(text_of(entry, "serial_no")):
            raise ValueError("a certificate under another's serial")
        return key

    def _encryption_key(self) -> VerifyingKey:
        """The key to encrypt fields with: the named public key, else the certificate that lasts longest."""
        keys = self._verifier().keys
        named = keys.get(normal_key_id(self._config.public_key_id))
        if named is not None:
            return named
        return max(keys.values(), key=lambda key: (key.valid_until is None, key.valid_until or self._wall()))

    # -- the wire
    # ------------------------------------------------------------------------------------------------

    def _call(
        self,
        method: str,
        target: str,
        body: dict[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """One verified call. An empty 204 is an empty dict."""
        with measured(Channel.WECHAT, operation_of(method, target)):
            return self._verified_call(method, target, body, headers)

    def _verified_call(
        self, method: str, target: str, body: dict[str, Any] | None, headers: Mapping[str, str] | None
    ) -> dict[str, Any]:
        verifier = self._verifier()
        content = json.dumps(body, ensure_ascii=False).encode() if body is not None else b""
        answer = self._send(method, target, content, headers or {})
        if answer.status >= 500 or answer.status == 401:
            raise self._unknown_of(answer)
        try:
            verifier.verify(answer.headers, answer.body, now=self._wall())
        except BadSignature as refusal:
            raise ChannelUnknown(Doubt(refusal.kind), f"{answer.status} {refusal}", answer.status) from refusal
        if answer.status == 204:
            return {}
        try:
            content_object = object_of(answer.body)
        except ValueError as error:
            raise ChannelUnknown(Doubt.MALFORMED, str(error), answer.status) from error
        if 200 <= answer.status < 300:
            return content_object
        code = str(content_object.get("code", ""))
        message = str(content_object.get("message", ""))[:500]
        if code in BUSY:
            raise ChannelUnknown(Doubt.SYSTEM_BUSY, f"{code}: {message}", answer.status)
        if not 400 <= answer.status < 500:
            raise ChannelUnknown(Doubt.MALFORMED, f"status {answer.status}", answer.status)
        usual = FollowUp.SAME_NUMBER_LATER if answer.status == 429 else FollowUp.FINAL
        raise ChannelRefused(answer.status, code, message, FOLLOW_UPS.get(code, usual))

    def _send(
        self, method: str, target: str, content: bytes, headers: Mapping[str, str], limit: int = ANSWER_LIMIT
    ) -> Answer:
        authorization = self._signer.authorization(
            method=method,
            target=target,
            body=content,
            timestamp=int(self._wall().timestamp()),
            nonce=new_nonce(),
        )
        sent = {"Accept": "application/json", "Authorization": authorization}
        if self._config.public_key_id:
            sent["Wechatpay-Serial"] = self._config.public_key_id
        if content:
            sent["Content-Type"] = "application/json"
        return self._http.send(method, target, headers=sent | dict(headers), content=content or None, limit=limit)

    @staticmethod
    def _unknown_of(answer: Answer) -> ChannelUnknown:
        """What an answer outside every rule says: kept for people, never believed."""
        reason = Doubt.UNAUTHENTICATED if answer.status == 401 else Doubt.SERVER_ERROR
        return ChannelUnknown(reason, answer.body[:300].decode(errors="replace"), answer.status)


OPERATIONS = {
    "prepay": re.compile(r"POST /v3/pay/transactions/jsapi"),
    "close": re.compile(r"POST /v3/pay/transactions/out-trade-no/[^/]+/close"),
    "query": re.compile(r"GET /v3/pay/transactions/.+"),
    "refund": re.compile(r"POST /v3/refund/domestic/refunds"),
    "query_refund": re.compile(r"GET /v3/refund/domestic/refunds/.+"),
    "abnormal_refund": re.compile(r"POST /v3/refund/domestic/refunds/.+/apply-abnormal-refund"),
    "bill": re.compile(r"GET /v3/bill/.+"),
}


def operation_of(method: str, target: str) -> str:
    """What a call is for, as the metrics name it: never a number in it."""
    asked = f"{method} {target}"
    return next((name for name, pattern in OPERATIONS.items() if pattern.fullmatch(asked)), "other")


def origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def unpacked(body: bytes) -> bytes:
    """Ungzip within the limit. Raises ``ChannelUnknown(CORRUPT_BILL)``."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as packed:
            raw = packed.read(FILE_LIMIT + 1)
    except (OSError, EOFError, ValueError) as error:
        raise ChannelUnknown(Doubt.CORRUPT_BILL, f"no gzip: {error}") from error
    if len(raw) > FILE_LIMIT:
        raise ChannelUnknown(Doubt.CORRUPT_BILL, f"more than {FILE_LIMIT} bytes")
    return raw
