"""The socket: HTTP/1.1 with keep-alive, one thread per connection, Nagle's algorithm off (with it on, a small
answer on a kept connection waits 40 ms for an acknowledgement)."""

from __future__ import annotations

import logging
import select
import socket
import struct
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

from payments.simulator import alipay, page, wechat
from payments.simulator.control import Control
from payments.simulator.courier import Courier
from payments.simulator.http import Reply, Request, json_reply
from payments.simulator.world import World

log = logging.getLogger("payments.simulator")

BODY_LIMIT = 1 << 20
WIRES: dict[str, ModuleType] = {"wechat": wechat, "alipay": alipay}


class Simulator(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], state: Path) -> None:
        """Raises OSError when the address or the state is another's."""
        super().__init__(address, Handler)
        try:
            self.world = World(state)
        except BaseException:
            self.socket.close()
            raise
        self.courier = Courier(self.world, WIRES)
        self.control = Control(self.world, self.courier, WIRES)
        self.courier.start()

    def stop(self) -> None:
        self.courier.stop()
        self.server_close()
        self.world.store.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a connection broke", exc_info=True)


class Handler(BaseHTTPRequestHandler):
    server: Simulator
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)

    def _serve(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > BODY_LIMIT:
            self.close_connection = True
            self._reply(json_reply({"code": "PARAM_ERROR"}, 413))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, self.rfile.read(int(length)))
        try:
            reply = self._answer(request)
        except Exception:
            log.exception("%s %s", request.method, request.path)
            reply = json_reply({"code": "SYSTEM_ERROR", "message": "the simulator stumbled"}, 500)
        self._reply(reply)

    def _answer(self, request: Request) -> Reply:
        if request.path.startswith("/control/"):
            return self.server.control.handle(request)
        if request.path == "/healthz":
            return json_reply({"status": "ok"})
        if request.path == "/" and request.method == "GET":
            return page.render()
        wire = alipay if request.path in ("/gateway.do", "/alipay/bill") else wechat
        operation, reply, note = wire.handle(self.server.world, request)
        self.server.world.store.insert(
            "call",
            at=time.time(),
            operation=operation,
            method=request.method,
            target=request.target[:300],
            status=0 if reply.reset or reply.hang_seconds else reply.status,
            code=note.get("code", ""),
            fault=note.get("fault", ""),
            out_trade_no=str(note.get("out_trade_no", "")),
            refund_no=str(note.get("refund_no", "")),
        )
        return reply

    def _reply(self, reply: Reply) -> None:
        if reply.wait_seconds:
            time.sleep(min(reply.wait_seconds, 60))
        if reply.hang_seconds:
            self._hang(reply.hang_seconds)
            reply.reset = True
        if reply.reset:
            self._cut()
            return
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.status != 204:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if reply.status != 204:
            self.wfile.write(reply.body)

    def _hang(self, seconds: float) -> None:
        """Say nothing until the other side gives up or the time is over."""
        until = time.time() + min(seconds, 120)
        while time.time() < until:
            readable, _, _ = select.select([self.connection], [], [], 0.1)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                return

    def _cut(self) -> None:
        """A reset, not an orderly end."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
