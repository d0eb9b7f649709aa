"""Ports on the loopback address."""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"
# Below the kernel's range for outgoing connections (32768 and up), so that a chosen port is not taken in passing.
QUIET_RANGE = range(21000, 32000)


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a server could listen on this port now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def pick(preferred: int | None = None, *, taken: set[int] | None = None, host: str = LOOPBACK) -> int:
    """The preferred port when it is free, otherwise any other free one; `taken` is excluded and extended."""
    taken = set() if taken is None else taken
    candidates = [preferred] if preferred else []
    candidates += random.sample(QUIET_RANGE, 200)
    for port in candidates:
        if port not in taken and is_free(port, host):
            taken.add(port)
            return port
    raise OSError("no free port found")


def accepts(port: int, host: str = LOOPBACK, timeout: float = 0.5) -> bool:
    """Whether somebody listens on this port."""
    try:
        with socket.create_connection((host, port), timeout=timeout):
            return True
    except OSError:
        return False
