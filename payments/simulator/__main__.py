"""``python -m payments.simulator --host 127.0.0.1 --port 9100 --state DIR``"""

from __future__ import annotations

import argparse
import ipaddress
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from payments.simulator.keys import ensure_keys


def main() -> int:
    parser = argparse.ArgumentParser(prog="payments.simulator", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9100, help="0 takes a free one")
    parser.add_argument("--state", type=Path, required=True, help="keys.json and the channels' memory")
    parser.add_argument("--keys-only", action="store_true", help="make keys.json and leave")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=JSON", help="a setting, e.g. notify_speed=300"
    )
    parser.add_argument("--log-level", default="WARNING")
    options = parser.parse_args()
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if os.environ.get("QUITS_ENV") == "production":
        sys.stderr.write("payments.simulator: refuses to run with QUITS_ENV=production\n")
        return 2
    if not is_loopback(options.host):
        sys.stderr.write(f"payments.simulator: {options.host} is not this machine alone\n")
        return 2
    if options.keys_only:
        ensure_keys(options.state)
        return 0
    return serve(options)


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(options: argparse.Namespace) -> int:
    from payments.simulator.server import Simulator  # after the refusals: they need no store

    try:
        simulator = Simulator((options.host, options.port), options.state)
    except OSError as error:
        sys.stderr.write(f"payments.simulator: {options.host}:{options.port}: {error.strerror}\n")
        return 1
    changes = dict(each.split("=", 1) for each in options.set)
    if changes:
        simulator.world.change_settings({name: json.loads(value) for name, value in changes.items()})
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: threading.Thread(target=simulator.shutdown).start())
    host, port = simulator.server_address[:2]
    sys.stdout.write(f"channel simulator: http://{host!s}:{port}/\n")
    sys.stdout.flush()
    try:
        simulator.serve_forever(poll_interval=0.1)
    finally:
        simulator.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
