"""What passes between the socket and the channels: a request as it came, an answer as it shall go."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Request:
    method: str
    target: str  # path and query exactly as sent: signatures are over it
    headers: Mapping[str, str]  # lower-case names
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    def json(self) -> dict[str, Any]:
        value = json.loads(self.body)
        if not isinstance(value, dict):
            raise ValueError("not an object")
        return value


@dataclass
class Reply:
    """``hang_seconds`` holds the line without a byte; ``reset`` cuts it. Either way what was accepted
    stays."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    wait_seconds: float = 0.0
    hang_seconds: float = 0.0
    reset: bool = False


def json_reply(content: Any, status: int = 200) -> Reply:
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    return Reply(status, body, {"Content-Type": "application/json; charset=utf-8"})
