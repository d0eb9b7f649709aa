"""Alipay for mini-programs: the strict driver.

One address, form posts, RSA2 over sorted fields, yuan strings. An answer is believed only after the exact
text of its node was verified; it carries no time, so unlike WeChat Pay's it cannot be told stale, and is held
to the number asked about. How an ending is read:

    no answer, reset, not 200, unsigned, forged, 20000, *SYSTEM_ERROR      ChannelUnknown
    our own signature not accepted                                         ChannelUnknown (as WeChat Pay's
    401) signed business refusal                                                ChannelRefused(code, sub_code)
    ACQ.TRADE_NOT_EXIST to a query, a refund query without REFUND_SUCCESS  a fact: NOT_FOUND

A refund's notify carries only the trade's *cumulative* refund, so it is read as PROCESSING without an amount:
a reason to ask. Refunds know no CLOSED and no ABNORMAL here.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit
from zoneinfo import ZoneInfo

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from kernel import money
from payments.channels import alipay_bill
from payments.channels.alipay_certificates import Trusted, Untrusted, own_sn, root_sn, trusted
from payments.channels.alipay_wire import (
    Malformed,
    fits,
    form_fields,
    load_public_key,
    members,
    sign,
    sorted_text,
)
from payments.channels.measures import measured
from payments.channels.sending import check, checked_notify_url, not_sent, whole_fen
from payments.channels.transport import FILE_LIMIT, ChannelHttp, Timeouts
from payments.channels.wechat_wire import load_private_key, wall_clock
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

PRODUCTION = "https://openapi.alipay.com/gateway.do"
CHINA = ZoneInfo("Asia/Shanghai")
NOTIFY_AGE = timedelta(hours=26)
"""Alipay repeats a notify for about 25 hours under its first ``notify_time``."""
NOTIFY_AHEAD = timedelta(minutes=5)

OUT_TRADE_NO = re.compile(r"[0-9A-Za-z_-]{6,32}", re.ASCII)
REFUND_NO = re.compile(r"[0-9A-Za-z_-]{1,64}", re.ASCII)
TRADE_NO = re.compile(r"[0-9A-Za-z]{1,64}", re.ASCII)
BUYER_ID = re.compile(r"2088\d{12}", re.ASCII)

FOLLOW_UPS = {
    "ACQ.SELLER_BALANCE_NOT_ENOUGH": FollowUp.SAME_NUMBER_LATER,
    "isv.app-call-limited": FollowUp.SAME_NUMBER_LATER,
    "ACQ.DISCORDANT_REPEAT_REQUEST": FollowUp.ASK_AND_ALERT,
    "ACQ.REFUND_AMT_NOT_EQUAL_TOTAL": FollowUp.ASK_AND_ALERT,
    "ACQ.BUYER_ERROR": FollowUp.OTHER_MEANS,
    "ACQ.BUYER_NOT_EXIST": FollowUp.OTHER_MEANS,
}
UNKNOWN_CODES = {"20000", "10003"}
UNKNOWN_SUB_CODES = re.compile(r".*SYSTEM_ERROR|aop\.unknow-error|isp\.unknow-error|.*UNKNOW.*_ERROR")
OUR_SIGNATURE = re.compile(
    r"isv\.(invalid|missing)-(signature.*|app-id|signature-key|encrypt-type|app-cert-sn|alipay-root-cert-sn)"
)
NO_TRADE = "ACQ.TRADE_NOT_EXIST"
CERTIFICATE_RETRY_AFTER = timedelta(seconds=60)
"""An answer or a notify may name a certificate we do not know; it is looked for, but not more often than this."""
CERTIFICATE = "alipay.open.app.alipaycert.download"
NO_BILL = re.compile(r".*bill_not_exist|.*NO_BILL_DATA|.*BILL_NOT_EXIST", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class AlipayConfig:
    """One seller's application. Several ``alipay_public_keys`` may be known at once (rotation).

    With a ``root_certificate`` it speaks in certificate mode: ``app_certificate`` names our key, answers name
    theirs, and a certificate counts when it leads to the root. ``alipay_certificates`` (bundles: theirs, then its
    issuers) are known from the start, others are fetched when an answer names them. Public keys given besides
    still verify notifies: over the switch from one mode to the other both kinds come.
    """

    app_id: str
    seller_id: str
    app_private_key: str = field(repr=False)
    alipay_public_keys: tuple[str, ...] = ()
    app_certificate: str = ""
    alipay_certificates: tuple[str, ...] = ()
    root_certificate: str = ""
    gateway_url: str = PRODUCTION
    timeouts: Timeouts = field(default_factory=Timeouts)


class AlipayGateway:
    """One account at Alipay. Threads may share it; a fork may not."""

    channel = Channel.ALIPAY

    def __init__(self, config: AlipayConfig, *, wall: Callable[[], datetime] = wall_clock) -> None:
        if not (config.alipay_public_keys or config.root_certificate):
            raise ValueError("a public key of Alipay, or the root certificate, is needed to verify anything")
        self._config = config
        self._wall = wall
        self._key = load_private_key(config.app_private_key)
        self._known = tuple(load_public_key(pem) for pem in config.alipay_public_keys)
        self._names: dict[str, str] = {}
        self._certified: dict[str, RSAPublicKey] = {}
        self._lock = threading.Lock()
        self._looked_at: datetime | None = None
        if config.root_certificate:
            self._names = {
                "app_cert_sn": own_sn(config.app_certificate),
                "alipay_root_cert_sn": root_sn(config.root_certificate),
            }
            for bundle in config.alipay_certificates:
                certificate = self._trusted(bundle)
                self._certified[certificate.sn] = certificate.key
        self._http = ChannelHttp(config.gateway_url, config.timeouts)
        self._target = f"{urlsplit(config.gateway_url).path}?charset=utf-8"

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
        content = {
            "out_trade_no": out_trade_no,
            "total_amount": money.fen_to_yuan(whole_fen(amount_fen)),
            "subject": description[:256] or out_trade_no,
            "product_code": "JSAPI_PAY",
            "op_app_id": self._config.app_id,
            "buyer_id" if BUYER_ID.fullmatch(payer_ref) else "buyer_open_id": payer_ref,
        }
        if expires_at is not None:
            content["time_expire"] = stamp(expires_at)
        answer = self._call("alipay.trade.create", content, notify_url=checked_notify_url(notify_url))
        about(answer, "out_trade_no", out_trade_no)
        trade_no = text_of(answer, "trade_no")
        return Prepaid(channel=Channel.ALIPAY, prepay_id=trade_no, client_params={"tradeNO": trade_no})

    def query_payment(self, *, out_trade_no: str, now: datetime) -> PaymentFact:
        check(OUT_TRADE_NO, out_trade_no, "out_trade_no")
        return self._query({"out_trade_no": out_trade_no}, out_trade_no, "")

    def query_payment_by_trade_no(self, *, trade_no: str, out_trade_no: str, now: datetime) -> PaymentFact:
        check(TRADE_NO, trade_no, "trade_no")
        return self._query({"trade_no": trade_no}, out_trade_no, trade_no)

    def _query(self, content: dict[str, Any], out_trade_no: str, trade_no: str) -> PaymentFact:
        try:
            answer = self._call("alipay.trade.query", content)
        except ChannelRefused as refusal:
            if refusal.code == NO_TRADE:
                return PaymentFact(
                    channel=Channel.ALIPAY,
                    state=PaymentState.NOT_FOUND,
                    out_trade_no=out_trade_no,
                    trade_no=trade_no,
                )
            raise
        about(answer, "out_trade_no", out_trade_no)
        if trade_no:
            about(answer, "trade_no", trade_no)
        return payment_fact(answer)

    def close_payment(self, *, out_trade_no: str, now: datetime) -> None:
        check(OUT_TRADE_NO, out_trade_no, "out_trade_no")
        try:
            self._call("alipay.trade.close", {"out_trade_no": out_trade_no})
        except ChannelRefused as refusal:
            if refusal.code != NO_TRADE:
                raise

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
        """Alipay refunds on the spot: ``fund_change=Y`` is done, anything else is asked about later."""
        check(REFUND_NO, refund_no, "refund_no")
        if whole_fen(amount_fen) > whole_fen(total_fen):
            raise not_sent("a refund above its payment")
        content: dict[str, Any] = {
            "out_request_no": refund_no,
            "refund_amount": money.fen_to_yuan(amount_fen),
            "refund_reason": reason[:256],
        }
        if trade_no:
            check(TRADE_NO, trade_no, "trade_no")
            content["trade_no"] = trade_no
        else:
            check(OUT_TRADE_NO, out_trade_no, "out_trade_no")
            content["out_trade_no"] = out_trade_no
        answer = self._call("alipay.trade.refund", content)
        about(answer, "out_trade_no", out_trade_no)
        done = answer.get("fund_change") == "Y"
        return RefundFact(
            channel=Channel.ALIPAY,
            state=RefundState.SUCCESS if done else RefundState.PROCESSING,
            refund_no=refund_no,
            refund_id=text_of(answer, "trade_no"),
            out_trade_no=out_trade_no,
            trade_no=text_of(answer, "trade_no"),
            amount_fen=amount_fen,  # the answer's refund_fee is the trade's sum; the number is bound to this amount
            succeeded_at=moment_of(answer, "gmt_refund_pay") if done else None,
            raw=answer,
        )

    def query_refund(self, *, refund_no: str, out_trade_no: str, now: datetime) -> RefundFact:
        check(REFUND_NO, refund_no, "refund_no")
        check(OUT_TRADE_NO, out_trade_no, "out_trade_no")
        unknown = RefundFact(
            channel=Channel.ALIPAY,
            state=RefundState.NOT_FOUND,
            refund_no=refund_no,
            out_trade_no=out_trade_no,
        )
        content = {
            "out_trade_no": out_trade_no,
            "out_request_no": refund_no,
            "query_options": ["gmt_refund_pay"],
        }
        try:
            answer = self._call("alipay.trade.fastpay.refund.query", content)
        except ChannelRefused as refusal:
            if refusal.code == NO_TRADE:
                return unknown
            raise
        if answer.get("refund_status") != "REFUND_SUCCESS":
            return unknown
        about(answer, "out_request_no", refund_no)
        about(answer, "out_trade_no", out_trade_no)
        return RefundFact(
            channel=Channel.ALIPAY,
            state=RefundState.SUCCESS,
            refund_no=refund_no,
            refund_id=text_of(answer, "trade_no"),
            out_trade_no=out_trade_no,
            trade_no=text_of(answer, "trade_no"),
            amount_fen=fen_of(answer, "refund_amount"),
            total_fen=fen_of(answer, "total_amount"),
            succeeded_at=moment_of(answer, "gmt_refund_pay"),
            raw=answer,
        )

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
        raise ChannelRefused(501, "NOT_SUPPORTED", "Alipay has no abnormal refunds")

    # -- bills
    # ---------------------------------------------------------------------------------------------------

    def download_bill(self, *, kind: BillKind, bill_on: date, now: datetime) -> BillFile:
        """Payments and refunds come in one bill; ``kind`` says which rows ``parse_bill`` gives. There is no
        hash at Alipay: ours is over the zip as it came."""
        bill_type = "signcustomer" if kind is BillKind.FUNDFLOW else "trade"
        content = {"bill_type": bill_type, "bill_date": bill_on.isoformat()}
        try:
            answer = self._call("alipay.data.dataservice.bill.downloadurl.query", content)
        except ChannelRefused as refusal:
            if not NO_BILL.fullmatch(refusal.code):
                raise
            # Alipay says the same of an empty day and of one whose bill is not made yet
            made = datetime(bill_on.year, bill_on.month, bill_on.day, 12, tzinfo=CHINA) + timedelta(days=1)
            state = BillState.EMPTY if now >= made else BillState.CREATING
            return BillFile(channel=Channel.ALIPAY, kind=kind, bill_on=bill_on, state=state)
        raw = self._download(text_of(answer, "bill_download_url"))
        return BillFile(
            channel=Channel.ALIPAY,
            kind=kind,
            bill_on=bill_on,
            state=BillState.AVAILABLE,
            raw=raw,
            sha1=hashlib.sha1(raw).hexdigest(),
        )

    def _download(self, url: str) -> bytes:
        """From our gateway's own origin or from alipay.com, the latter never over plain http."""
        parts, own = urlsplit(url), urlsplit(self._config.gateway_url)
        if (parts.scheme, parts.netloc) != (own.scheme, own.netloc):
            if not (parts.hostname or "").endswith(".alipay.com"):
                raise ChannelUnknown(Doubt.MALFORMED, "a download from elsewhere")
            parts = parts._replace(scheme="https")
        answer = self._http.fetch(parts.geturl(), limit=FILE_LIMIT)
        if answer.status != 200 or not answer.body.startswith(b"PK"):
            raise ChannelUnknown(Doubt.CORRUPT_BILL, "no zip at the address given", answer.status)
        return answer.body

    def parse_bill(self, bill: BillFile) -> Iterator[BillRow]:
        return alipay_bill.rows(bill)

    # -- notifies
    # ------------------------------------------------------------------------------------------------

    def parse_notify(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> PaymentNotice | RefundNotice:
        try:
            fields = form_fields(body)
        except Malformed as error:
            raise NotifyRejected(Verdict.MALFORMED, str(error)) from error
        signature, kind = fields.pop("sign", ""), fields.pop("sign_type", "")
        if not signature or kind != "RSA2":
            raise NotifyRejected(Verdict.FORGED, "no RSA2 signature")
        if self._names and fields.get("alipay_cert_sn"):
            self._certificate(fields["alipay_cert_sn"])
        if not fits((*self._certified.values(), *self._known), sorted_text(fields).encode(), signature):
            raise NotifyRejected(Verdict.FORGED, "the signature does not fit")
        try:
            sent_at = moment_of(fields, "notify_time")
            if sent_at is None or not now - NOTIFY_AGE <= sent_at <= now + NOTIFY_AHEAD:
                raise NotifyRejected(Verdict.STALE, f"sent {sent_at}")
            return self._notice(fields, sent_at)
        except ChannelUnknown as error:
            raise NotifyRejected(Verdict.MALFORMED, error.detail) from error

    def _notice(self, fields: dict[str, str], sent_at: datetime) -> PaymentNotice | RefundNotice:
        head: dict[str, Any] = {
            "notify_id": text_of(fields, "notify_id"),
            "event_type": text_of(fields, "trade_status"),
            "created_at": sent_at,
            "plaintext": fields,
        }
        if fields.get("out_biz_no") and fields.get("gmt_refund"):
            fact = RefundFact(
                channel=Channel.ALIPAY,
                state=RefundState.PROCESSING,
                refund_no=fields["out_biz_no"],
                out_trade_no=text_of(fields, "out_trade_no"),
                trade_no=text_of(fields, "trade_no"),
                raw=fields,
            )
            return RefundNotice(fact=fact, merchant_ref=text_of(fields, "seller_id"), **head)
        return PaymentNotice(fact=payment_fact(fields), **head)

    def parse_payment_notify(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> PaymentNotice:
        notice = self.parse_notify(headers=headers, body=body, now=now)
        if not isinstance(notice, PaymentNotice):
            raise NotifyRejected(Verdict.MALFORMED, "a refund's notify where a payment's was expected")
        return notice

    def parse_refund_notify(self, *, headers: Mapping[str, str], body: bytes, now: datetime) -> RefundNotice:
        notice = self.parse_notify(headers=headers, body=body, now=now)
        if not isinstance(notice, RefundNotice):
            raise NotifyRejected(Verdict.MALFORMED, "a payment's notify where a refund's was expected")
        return notice

    def ack(self) -> NotifyAnswer:
        return NotifyAnswer(status=200, body=b"success", content_type="text/plain")

    def nack(self, message: str) -> NotifyAnswer:
        return NotifyAnswer(status=500, body=b"fail", content_type="text/plain")

    # -- the wire
    # ------------------------------------------------------------------------------------------------

    def _call(self, method: str, content: dict[str, Any], *, notify_url: str = "") -> dict[str, Any]:
        """One verified call: the node of a successful answer."""
        with measured(Channel.ALIPAY, method.removeprefix("alipay.")):
            return self._believed(self._send(method, content, notify_url=notify_url), node_of(method))

    def _send(self, method: str, content: dict[str, Any], *, notify_url: str = "") -> dict[str, tuple[Any, str]]:
        """One call: the members of its answer with their exact text, not verified yet."""
        fields = {
            **self._names,
            "app_id": self._config.app_id,
            "method": method,
            "format": "JSON",
            "charset": "utf-8",
            "sign_type": "RSA2",
            "timestamp": stamp(self._wall()),
            "version": "1.0",
            "biz_content": json.dumps(content, ensure_ascii=False, separators=(",", ":")),
        }
        if notify_url:
            fields["notify_url"] = notify_url
        fields["sign"] = sign(self._key, sorted_text(fields))
        answer = self._http.send(
            "POST",
            self._target,
            headers={"Content-Type": "application/x-www-form-urlencoded;charset=utf-8"},
            content=urlencode(fields).encode(),
        )
        if answer.status != 200:
            detail = answer.body[:300].decode(errors="replace")
            raise ChannelUnknown(Doubt.SERVER_ERROR, detail, answer.status)
        try:
            return members(answer.body.decode())
        except (Malformed, UnicodeDecodeError) as error:
            raise ChannelUnknown(Doubt.MALFORMED, str(error)) from error

    def _believed(self, found: dict[str, tuple[Any, str]], node_name: str) -> dict[str, Any]:
        signature = found.get("sign", ("", ""))[0]
        node, text = found.get(node_name) or found.get("error_response") or ({}, "")
        if not signature or not text:
            said = f"{node.get('sub_code', '')} {node.get('sub_msg', '')}" if isinstance(node, dict) else ""
            reason = Doubt.UNAUTHENTICATED if OUR_SIGNATURE.match(said) else Doubt.UNSIGNED
            raise ChannelUnknown(reason, said[:300])
        keys = self._keys_for(found)
        if not isinstance(signature, str) or not fits(keys, text.encode(), signature):
            raise ChannelUnknown(Doubt.FORGED, "the signature does not fit")
        if not isinstance(node, dict) or not isinstance(node.get("code"), str):
            raise ChannelUnknown(Doubt.MALFORMED, "no code")
        return succeeded(node)

    def _keys_for(self, found: dict[str, tuple[Any, str]]) -> tuple[RSAPublicKey, ...]:
        """What an answer may be signed with: our known keys, or in certificate mode the one certificate it names."""
        if not self._names:
            return self._known
        named = found.get("alipay_cert_sn", ("", ""))[0]
        key = self._certificate(named) if isinstance(named, str) and named else None
        if key is None:
            raise ChannelUnknown(Doubt.FORGED, "an answer under a certificate that does not lead to the root")
        return (key,)

    def _certificate(self, sn: str) -> RSAPublicKey | None:
        """The key of Alipay's certificate of this name, looked for at Alipay when it is new. None: not to be had, or
        not below our root. However many names come, real or made up: one look a minute."""
        known = self._certified.get(sn)
        if known is not None:
            return known
        with self._lock:
            wall = self._wall()
            if sn in self._certified or (
                self._looked_at is not None and wall - self._looked_at < CERTIFICATE_RETRY_AFTER
            ):
                return self._certified.get(sn)
            self._looked_at = wall
            try:
                certificate = self._fetched(sn)
            except (ChannelUnknown, ChannelRefused, ValueError) as error:
                if isinstance(error, ChannelUnknown) and error.reason is Doubt.UNAUTHENTICATED:
                    raise
                return None
            self._certified[sn] = certificate.key
            return certificate.key

    def _fetched(self, sn: str) -> Trusted:
        """The certificate as Alipay gives it. The answer is signed with that very certificate, so the chain is what
        makes us believe it, and then the signature has to fit as well."""
        found = self._send(CERTIFICATE, {"alipay_cert_sn": sn})
        node, text = found.get(node_of(CERTIFICATE), ({}, ""))
        said = str(node.get("sub_code", "")) if isinstance(node, dict) else ""
        if OUR_SIGNATURE.fullmatch(said):
            raise ChannelUnknown(Doubt.UNAUTHENTICATED, said)  # it does not know us, so it gives us no certificate
        content = node.get("alipay_cert_content", "") if isinstance(node, dict) else ""
        certificate = self._trusted(b64decode(str(content), validate=True).decode("ascii", "replace"))
        signature = found.get("sign", ("", ""))[0]
        if certificate.sn != sn or not isinstance(signature, str):
            raise ChannelUnknown(Doubt.FORGED, "another certificate than asked for")
        if not fits((certificate.key,), text.encode(), signature):
            raise ChannelUnknown(Doubt.FORGED, "the signature does not fit")
        return certificate

    def _trusted(self, bundle: str) -> Trusted:
        try:
            return trusted(bundle, root=self._config.root_certificate, at=self._wall())
        except Untrusted as error:
            raise ValueError(f"a certificate of Alipay is not to be trusted: {error}") from error


# -- reading what the channel says
# --------------------------------------------------------------------------------


def succeeded(node: dict[str, Any]) -> dict[str, Any]:
    """The node of a call that succeeded, or what its code means."""
    code, sub_code = node["code"], str(node.get("sub_code", ""))
    if code == "10000":
        return node
    message = f"{node.get('msg', '')} {node.get('sub_msg', '')}".strip()[:500]
    if OUR_SIGNATURE.fullmatch(sub_code):
        raise ChannelUnknown(Doubt.UNAUTHENTICATED, f"{sub_code}: {message}")
    if code in UNKNOWN_CODES or UNKNOWN_SUB_CODES.fullmatch(sub_code):
        raise ChannelUnknown(Doubt.SYSTEM_BUSY, f"{code} {sub_code}: {message}")
    follow_up = FOLLOW_UPS.get(sub_code, FollowUp.FINAL)
    raise ChannelRefused(int(code) if code.isdigit() else 0, sub_code or code, message, follow_up)


def payment_fact(source: Mapping[str, Any]) -> PaymentFact:
    """A trade, from a query (``send_pay_date``) or a notify (``gmt_payment``).

    TRADE_CLOSED is said of a trade that was never paid and of one that was refunded in full: only the latter
    has a time of payment.
    """
    status = text_of(source, "trade_status")
    paid_at = moment_of(source, "send_pay_date") or moment_of(source, "gmt_payment")
    states = {
        "WAIT_BUYER_PAY": PaymentState.NOTPAY,
        "TRADE_SUCCESS": PaymentState.SUCCESS,
        "TRADE_FINISHED": PaymentState.SUCCESS,
        "TRADE_CLOSED": PaymentState.REFUND if paid_at else PaymentState.CLOSED,
    }
    if status not in states:
        raise ChannelUnknown(Doubt.MALFORMED, f"an unknown trade_status {status[:40]!r}")
    state = states[status]
    if state is PaymentState.SUCCESS and source.get("gmt_refund"):
        state = PaymentState.REFUND
    fact = PaymentFact(
        channel=Channel.ALIPAY,
        state=state,
        out_trade_no=text_of(source, "out_trade_no"),
        trade_no=str(source.get("trade_no") or ""),
        amount_fen=fen_of(source, "total_amount"),
        payer_paid_fen=fen_of(source, "buyer_pay_amount"),
        paid_at=paid_at,
        merchant_ref=str(source.get("seller_id") or ""),
        app_id=str(source.get("app_id") or ""),
        payer_ref=str(source.get("buyer_open_id") or source.get("buyer_user_id") or source.get("buyer_id") or ""),
        raw=source,
    )
    if state.is_paid and (fact.amount_fen is None or not fact.trade_no):
        raise ChannelUnknown(Doubt.MALFORMED, "paid, without amount or trade number")
    return fact


def node_of(method: str) -> str:
    """Where an answer holds what the method gave."""
    return f"{method.replace('.', '_')}_response"


def about(answer: Mapping[str, Any], name: str, expected: str) -> None:
    if answer.get(name) != expected:
        raise ChannelUnknown(Doubt.MALFORMED, f"an answer about another {name}")


def text_of(source: Mapping[str, Any], name: str) -> str:
    value = source.get(name)
    if not isinstance(value, str) or not value:
        raise ChannelUnknown(Doubt.MALFORMED, f"no {name}")
    return value


def fen_of(source: Mapping[str, Any], name: str) -> int | None:
    """Yuan as a string with at most two decimals, or nothing. A JSON number is no amount here."""
    value = source.get(name)
    if value is None or value == "":
        return None
    try:
        fen = money.yuan_to_fen(value)
    except (ValueError, TypeError) as error:
        raise ChannelUnknown(Doubt.MALFORMED, f"{name} is no amount in yuan") from error
    if fen < 0:
        raise ChannelUnknown(Doubt.MALFORMED, f"{name} is negative")
    return fen


def moment_of(source: Mapping[str, Any], name: str) -> datetime | None:
    value = source.get(name)
    if not value:
        return None
    try:
        return datetime.strptime(str(value)[:19], "%Y-%m-%d %H:%M:%S").replace(tzinfo=CHINA)
    except ValueError as error:
        raise ChannelUnknown(Doubt.MALFORMED, f"{name} is no time") from error


def stamp(moment: datetime) -> str:
    return moment.astimezone(CHINA).strftime("%Y-%m-%d %H:%M:%S")
