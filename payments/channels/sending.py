"""What is not even sent, because the channel must refuse it: ``ChannelRefused`` with status 0."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from payments.gateway import ChannelRefused


def not_sent(message: str) -> ChannelRefused:
    """A call we know the channel must refuse, so it is not made: status 0."""
    return ChannelRefused(0, "NOT_SENT", message)


def check(pattern: re.Pattern[str], value: str, name: str) -> None:
    if not pattern.fullmatch(value):
        raise not_sent(f"{name} {value!r} does not fit the channel's form")


def whole_fen(amount: int) -> int:
    if isinstance(amount, bool) or not isinstance(amount, int) or amount <= 0:
        raise not_sent(f"{amount!r} is no positive amount in fen")
    return amount


def checked_notify_url(url: str) -> str:
    """https without query or fragment; plain http only to this machine (the simulator)."""
    parts = urlsplit(url)
    local = parts.hostname in ("127.0.0.1", "localhost", "::1")
    if parts.query or parts.fragment or not (parts.scheme == "https" or (parts.scheme == "http" and local)):
        raise not_sent(f"notify_url {url!r} does not fit the channel's form")
    return url
