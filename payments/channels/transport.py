"""HTTP to a channel: one client per account, and every way a call can end unclear becomes ``ChannelUnknown``.

Deliberate: no proxy from the environment, no redirects (an unsigned 3xx is no answer), no retries (the
caller's durable state decides), every timeout explicit, no compression (signatures are over the bytes as
sent), a limit on every body.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from payments.gateway import ChannelUnknown, Doubt

ANSWER_LIMIT = 1 << 20
"""Bytes of an ordinary answer; the largest real one is a few kilobytes."""

FILE_LIMIT = 256 << 20
"""Bytes of a downloaded bill, packed or unpacked."""


@dataclass(frozen=True)
class Answer:
    """What came back. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Seconds. ``read`` is the longest silence of the channel, not the whole call."""

    connect: float = 3.0
    read: float = 8.0
    write: float = 5.0
    pool: float = 5.0


class ChannelHttp:
    """A connection-reusing client for one base URL. Safe to share between threads, not across a fork."""

    def __init__(self, base_url: str, timeouts: Timeouts) -> None:
        self.base_url = httpx.URL(base_url)
        self._client = httpx.Client(
            verify=self.base_url.scheme == "https",  # loading the certificate store for plain http costs 0.1 s
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(
                connect=timeouts.connect, read=timeouts.read, write=timeouts.write, pool=timeouts.pool
            ),
            limits=httpx.Limits(max_connections=20, max_keepalive_connections=10, keepalive_expiry=20.0),
            headers={"User-Agent": "quits/1.0", "Accept-Encoding": "identity"},
        )

    def send(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        content: bytes | None = None,
        limit: int = ANSWER_LIMIT,
    ) -> Answer:
        """Send one request. ``target`` is path and query, sent byte for byte as signed."""
        url = self.base_url.copy_with(raw_path=target.encode("ascii"))
        return self._exchange(self._client, method, url, headers, content, limit)

    def fetch(self, url: str, *, limit: int) -> Answer:
        """Get a file whose address a verified answer gave. A host of its own gets a client of its own."""
        address = httpx.URL(url)
        if address.host == self.base_url.host:
            return self._exchange(self._client, "GET", address, {}, None, limit)
        with httpx.Client(trust_env=False, follow_redirects=False, timeout=self._client.timeout) as client:
            return self._exchange(client, "GET", address, {}, None, limit)

    @staticmethod
    def _exchange(
        client: httpx.Client,
        method: str,
        url: httpx.URL,
        headers: Mapping[str, str],
        content: bytes | None,
        limit: int,
    ) -> Answer:
        try:
            with client.stream(method, url, headers=headers, content=content) as response:
                chunks, size = [], 0
                for chunk in response.iter_bytes():
                    size += len(chunk)
                    if size > limit:
                        raise ChannelUnknown(Doubt.MALFORMED, f"more than {limit} bytes", response.status_code)
                    chunks.append(chunk)
                return Answer(response.status_code, dict(response.headers.items()), b"".join(chunks))
        except httpx.TimeoutException as error:
            raise ChannelUnknown(Doubt.TIMEOUT, type(error).__name__) from error
        except httpx.HTTPError as error:
            raise ChannelUnknown(Doubt.CONNECTION, f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        self._client.close()
