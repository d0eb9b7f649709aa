"""WeChat Pay callbacks over HTTP: verified, decrypted, stored, acknowledged by the real web server.

The callbacks are sealed and signed before the clock starts, with keys of a make-believe platform; the account in the
database knows the platform's public key, as a real one does.
"""

import json
import secrets
import socket
import statistics
import time
from base64 import b64decode
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from django.db import connection, connections

from benchmarks.coupon_cells.http import _is_whole, web_server
from benchmarks.harness import FORK
from benchmarks.order_cells.rows import PAYABLE
from payments.models import ChannelAccount
from payments.simulator import crypto
from payments.simulator.keys import make_keys, wechat_account

WARM_UP = 20


@cache
def keys() -> dict[str, Any]:
    return make_keys()


def account_row() -> dict[str, Any]:
    """What `save_account` needs for an account whose callbacks can be verified."""
    return wechat_account(keys(), 0, "http://127.0.0.1:1")


@dataclass(frozen=True)
class Measured:
    """Callbacks a second, and the middle one's seconds from its first byte to the answer."""

    per_second: float
    p50_seconds: float


def measure(clients: int, each: int) -> Measured:
    """So many clients, one open connection each, post `each` callbacks one after the other."""
    account = ChannelAccount.objects.get(channel="wechat")
    posts = [[_post(account, f"O{c * each + n}P1") for n in range(-WARM_UP, each)] for c in range(clients)]
    connections.close_all()
    barrier = FORK.Barrier(clients + 1)
    results: Any = FORK.Queue()

    def client(number: int, port: int) -> None:
        try:
            link = socket.create_connection(("127.0.0.1", port))
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for request in posts[number][:WARM_UP]:
                _exchange(link, request)
            barrier.wait(60)
            took = []
            for request in posts[number][WARM_UP:]:
                began = time.perf_counter()
                _exchange(link, request)
                took.append(time.perf_counter() - began)
            results.put((time.perf_counter(), took))
        except Exception as error:
            barrier.abort()
            results.put((0.0, repr(error)))

    with web_server(urls="config.urls") as port:
        workers = [FORK.Process(target=client, args=(number, port)) for number in range(clients)]
        for worker in workers:
            worker.start()
        barrier.wait(120)
        began = time.perf_counter()
        ended = [results.get(timeout=300) for _ in workers]
        for worker in workers:
            worker.join(10)
    wrong = [took for _at, took in ended if isinstance(took, str)]
    if wrong:
        raise RuntimeError(wrong[0])
    _check(clients * (each + WARM_UP))
    everyone = [seconds for _at, took in ended for seconds in took]
    return Measured(clients * each / (max(at for at, _ in ended) - began), statistics.median(everyone))


def rsa_seconds(times: int = 500) -> float:
    """What one verification of a signature costs here, in one process that does nothing else."""
    platform = keys()["wechat"]["platform"]
    message = b"1790000000\nnonce\n" + b"x" * 1200 + b"\n"
    signature = b64decode(crypto.sign(platform["private_key"], message))
    key = crypto.public_key(platform["public_key"])
    began = time.perf_counter()
    for _ in range(times):
        key.verify(signature, message, padding.PKCS1v15(), hashes.SHA256())
    return (time.perf_counter() - began) / times


def _exchange(link: socket.socket, request: bytes) -> None:
    link.sendall(request)
    answer = link.recv(65536)
    while b"\r\n\r\n" not in answer or not (answer.startswith(b"HTTP/1.1 204") or _is_whole(answer)):
        more = link.recv(65536)
        if not more:
            break
        answer += more
    if not answer.startswith(b"HTTP/1.1 204"):
        raise RuntimeError(answer[:600].decode(errors="replace"))


def _post(account: ChannelAccount, out_trade_no: str) -> bytes:
    """One callback as it goes over the wire."""
    platform, seller = keys()["wechat"]["platform"], keys()["wechat"]["accounts"][0]
    moment, nonce = datetime.now(UTC), secrets.token_hex(6)
    content = {
        "mchid": account.mchid,
        "appid": account.app_id,
        "out_trade_no": out_trade_no,
        "transaction_id": f"4200{secrets.token_hex(12)}",
        "trade_type": "JSAPI",
        "trade_state": "SUCCESS",
        "trade_state_desc": "支付成功",
        "bank_type": "OTHERS",
        "attach": "",
        "success_time": moment.isoformat(timespec="seconds"),
        "payer": {"openid": "oUpF8uMuAJO_M2pxb1Q9zNjWeS6o"},
        "amount": {"total": PAYABLE, "payer_total": PAYABLE, "currency": "CNY", "payer_currency": "CNY"},
    }
    body = json.dumps(
        {
            "id": secrets.token_hex(16),
            "create_time": moment.isoformat(timespec="seconds"),
            "resource_type": "encrypt-resource",
            "event_type": "TRANSACTION.SUCCESS",
            "summary": "支付成功",
            "resource": {
                "original_type": "transaction",
                "algorithm": "AEAD_AES_256_GCM",
                "ciphertext": crypto.seal(seller["api_v3_key"], nonce, json.dumps(content), "transaction"),
                "associated_data": "transaction",
                "nonce": nonce,
            },
        },
        ensure_ascii=False,
    ).encode()
    timestamp = int(moment.timestamp())
    signature = crypto.sign(platform["private_key"], f"{timestamp}\n{nonce}\n".encode() + body + b"\n")
    head = (
        f"POST /api/v1/orders/notify/wechat/{account.id} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"Wechatpay-Timestamp: {timestamp}\r\nWechatpay-Nonce: {nonce}\r\n"
        f"Wechatpay-Serial: {platform['public_key_id']}\r\nWechatpay-Signature: {signature}\r\n"
        "Wechatpay-Signature-Type: WECHATPAY2-SHA256-RSA2048\r\n\r\n"
    )
    return head.encode() + body


def _check(posts: int) -> None:
    """Every callback is stored as verified, and its event waits or has left."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM channel_notify WHERE verdict = 'VERIFIED'")
        stored = cursor.fetchone()[0]
        cursor.execute("SELECT count(*) FROM outbox_event WHERE name = 'payment.notified'")
        announced = cursor.fetchone()[0]
    if not stored == announced == posts:
        raise RuntimeError(f"{stored} of {posts} callbacks stored, {announced} announced")
