"""The example client: its signature is the one that is verified, it needs nothing but Python, and it reads problems."""

import ast
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from merchants import signing

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
from quits_client import QuitsClient, QuitsError  # noqa: E402


class Server(BaseHTTPRequestHandler):
    seen: list[dict] = []
    answer: tuple[int, bytes] = (200, b"{}")

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        self.seen.append({"method": self.command, "target": self.path, "headers": dict(self.headers), "body": body})
        self.send_response(self.answer[0])
        self.send_header("Content-Length", str(len(self.answer[1])))
        self.end_headers()
        self.wfile.write(self.answer[1])

    do_GET = do_POST = handle_any

    def log_message(self, *_arguments: object) -> None:
        return


@pytest.fixture
def server():
    Server.seen, Server.answer = [], (200, b"{}")
    running = HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture
def client(server: HTTPServer) -> QuitsClient:
    return QuitsClient(f"http://127.0.0.1:{server.server_port}", key_id="qk_example", secret="a secret of 茶")


def assert_signed(seen: dict) -> None:
    said = signing.parse(seen["headers"]["Authorization"])
    assert said is not None and said.key_id == "qk_example"
    text = signing.text_to_sign(
        method=seen["method"],
        target=seen["target"],
        timestamp=said.timestamp_text,
        nonce=said.nonce,
        body=seen["body"],
    )
    assert signing.fits("a secret of 茶", text, said.signature)
    assert not signing.fits("another", text, said.signature)


def test_requests_are_signed_as_they_are_verified(client: QuitsClient) -> None:
    client.get("/orders", user_id="u 1&2", status=10)
    client.post("/quotes", {"user_id": "林晓", "lines": []}, idempotency_key="quote:1")
    read, made = Server.seen
    assert read["target"] == "/api/v1/orders?user_id=u+1%262&status=10" and read["body"] == b""
    assert made["headers"]["Idempotency-Key"] == "quote:1" and json.loads(made["body"])["user_id"] == "林晓"
    assert_signed(read)
    assert_signed(made)


def test_no_nonce_and_no_invented_key_is_used_twice(client: QuitsClient) -> None:
    for _ in range(20):
        client.post("/coupons/issue", {})
    nonces = {signing.parse(seen["headers"]["Authorization"]).nonce for seen in Server.seen}
    keys = {seen["headers"]["Idempotency-Key"] for seen in Server.seen}
    assert len(nonces) == len(keys) == 20


def test_a_problem_is_raised_with_its_code(client: QuitsClient) -> None:
    Server.answer = (409, b'{"code": "VERSION_CONFLICT", "detail": "reload", "data": {"actual": 4}}')
    with pytest.raises(QuitsError, match="409 VERSION_CONFLICT: reload") as caught:
        client.get("/orders/Q1")
    assert (caught.value.status, caught.value.code, caught.value.data) == (409, "VERSION_CONFLICT", {"actual": 4})


def test_an_answer_that_is_no_json_is_an_error_too(client: QuitsClient) -> None:
    Server.answer = (502, b"<html>bad gateway</html>")
    with pytest.raises(QuitsError, match="502"):
        client.get("/orders/Q1")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_nothing_but_the_standard_library(path: Path) -> None:
    own = {each.stem for each in EXAMPLES.glob("*.py")}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            assert name.partition(".")[0] in sys.stdlib_module_names | own | {"__future__"}, name
