"""The lock over HTTP: the real web server, signed requests, and the same in DRF and the usual ORM beside it."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections

from benchmarks.coupon_cells.rows import MERCHANT, NOW, coupon_id
from benchmarks.coupon_cells.work import number_of
from merchants import signing
from merchants.commands.create_client import KeyIssued, create_client

WORKERS, THREADS = 2, 8  # as bin/up on two cores
Operation = Callable[[int], object]
CLIENT: dict[str, KeyIssued] = {}


def make_client() -> None:
    """The API client whose key signs every request."""
    CLIENT["key"] = create_client(
        merchant_id=MERCHANT["id"],
        name="bench",
        scopes=["coupons"],
        requests_per_minute=10_000_000,
        now=NOW,
    )


@contextmanager
def web_server(*, urls: str = "config.urls") -> Iterator[int]:
    """Granian with the application, as bin/up runs it, on the database that Django is pointed at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = connections["default"].settings_dict
    url = f"postgresql://{address['USER']}:{address['PASSWORD']}@{address['HOST']}:{address['PORT']}/{address['NAME']}"
    running = subprocess.Popen(
        [
            *(sys.executable, "-c", "import config.wsgi, granian.cli; granian.cli.entrypoint()"),
            *("--host", "127.0.0.1", "--port", str(port), "--interface", "wsgi", "--workers", str(WORKERS)),
            *("--blocking-threads", str(THREADS), "--no-ws", "--no-access-log", "--log-level", "error"),
            "config.wsgi:application",
        ],
        env={
            **os.environ,
            "DATABASE_URL": url,
            "DATABASE_OWNER_URL": url,
            "QUITS_PROCESS": "web",
            "QUITS_LOG_LEVEL": "ERROR",
            "QUITS_BENCH_URLS": urls,
            "DJANGO_SETTINGS_MODULE": "benchmarks.coupon_cells.web_settings",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, running)
        yield port
    finally:
        running.terminate()
        running.wait(20)


def _wait_for(port: int, running: Any) -> None:
    for _ in range(600):
        if running.poll() is not None:
            raise RuntimeError("the web server ended")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as probe:
                probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                if probe.recv(64).startswith(b"HTTP/1.1"):
                    return
        except OSError:
            pass
        time.sleep(0.05)
    raise RuntimeError("the web server does not answer")


def post_locks(port: int, *, first: int, stride: int, signed: bool, operations: int) -> Callable[[int, int], Operation]:
    """A client with one connection that stays open. Its requests are written and signed before the clock starts."""

    def prepare(client: int, clients: int) -> Operation:
        requests = {
            index: _request(number_of(client, index, first=first, stride=stride), signed=signed)
            for index in range(-20, operations)
        }
        link = socket.create_connection(("127.0.0.1", port))
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def operation(index: int) -> None:
            link.sendall(requests[index])
            answer = link.recv(65536)
            while b"\r\n\r\n" not in answer or not _is_whole(answer):
                more = link.recv(65536)
                if not more:
                    break
                answer += more
            if not answer.startswith(b"HTTP/1.1 201"):
                raise RuntimeError(answer[:600].decode(errors="replace"))

        return operation

    return prepare


def _is_whole(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return len(body) >= int(value)
    return body.endswith(b"0\r\n\r\n")


def _request(number: int, *, signed: bool) -> bytes:
    target = f"/api/v1/coupons/{coupon_id(number)}/lock"
    body = json.dumps({"user_id": f"u{number}", "order_no": f"O{number}", "lease_seconds": 300}).encode()
    if signed:
        key = CLIENT["key"]
        proof = signing.header(
            key_id=key.key_id,
            secret=key.secret,
            method="POST",
            target=target,
            timestamp=int(time.time()),
            nonce=f"bench-{number:012d}-{os.getpid():08d}",
            body=body,
        )
    else:
        proof = "Token bench"
    head = (
        f"POST {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json\r\n"
        f"Content-Length: {len(body)}\r\nIdempotency-Key: http-{number}\r\nAuthorization: {proof}\r\n\r\n"
    )
    return head.encode() + body
