"""The control page for people."""

from __future__ import annotations

from pathlib import Path

from payments.simulator.http import Reply

PAGE = Path(__file__).with_name("page.html")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"


def render() -> Reply:
    return Reply(
        200,
        PAGE.read_bytes(),
        {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Security-Policy": POLICY,
            "X-Frame-Options": "DENY",
            "Cache-Control": "no-store",
        },
    )
