"""Everything the simulated channels ever accepted, in SQLite: committed before it is answered, so kill -9
loses nothing."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS trade (
    channel TEXT, account TEXT, out_trade_no TEXT, app_id TEXT, payer TEXT, description TEXT, notify_url TEXT,
    total_fen INTEGER, expires_at REAL, prepay_id TEXT, state TEXT, created_at REAL, trade_no TEXT,
    PRIMARY KEY (channel, account, out_trade_no));
CREATE TABLE IF NOT EXISTS charge (
    channel TEXT, account TEXT, trade_no TEXT PRIMARY KEY, out_trade_no TEXT, amount_fen INTEGER, payer_fen
    INTEGER, voucher_fen INTEGER, paid_at REAL);
CREATE INDEX IF NOT EXISTS charge_of ON charge (channel, account, out_trade_no);
CREATE INDEX IF NOT EXISTS charge_at ON charge (channel, account, paid_at);
CREATE TABLE IF NOT EXISTS refund (
    channel TEXT, account TEXT, refund_no TEXT, refund_id TEXT UNIQUE, trade_no TEXT, out_trade_no TEXT,
    amount_fen INTEGER, payer_fen INTEGER, voucher_fen INTEGER, total_fen INTEGER, state TEXT, first_state
    TEXT, reason TEXT, notify_url TEXT, received_by TEXT, created_at REAL, succeeded_at REAL, settle_at REAL,
    settle_to TEXT, PRIMARY KEY (channel, account, refund_no));
CREATE INDEX IF NOT EXISTS refund_of ON refund (channel, account, trade_no);
CREATE INDEX IF NOT EXISTS refund_at ON refund (channel, account, created_at);
CREATE INDEX IF NOT EXISTS refund_due ON refund (settle_at) WHERE state = 'PROCESSING';
CREATE TABLE IF NOT EXISTS notify (
    id TEXT PRIMARY KEY, channel TEXT, account TEXT, kind TEXT, event TEXT, out_trade_no TEXT, refund_no TEXT,
    url TEXT, content TEXT, state TEXT, tries INTEGER, next_at REAL, created_at REAL, faults TEXT);
CREATE INDEX IF NOT EXISTS notify_due ON notify (next_at) WHERE state IN ('PENDING', 'HELD');
CREATE INDEX IF NOT EXISTS notify_of ON notify (out_trade_no);
CREATE TABLE IF NOT EXISTS delivery (
    id INTEGER PRIMARY KEY, notify_id TEXT, at REAL, status INTEGER, fault TEXT, note TEXT, seconds REAL);
CREATE INDEX IF NOT EXISTS delivery_of ON delivery (notify_id);
CREATE TABLE IF NOT EXISTS call (
    id INTEGER PRIMARY KEY, at REAL, operation TEXT, method TEXT, target TEXT, status INTEGER, code TEXT,
    fault TEXT, out_trade_no TEXT, refund_no TEXT);
CREATE INDEX IF NOT EXISTS call_of ON call (out_trade_no);
CREATE INDEX IF NOT EXISTS call_refund ON call (refund_no);
CREATE TABLE IF NOT EXISTS fault (
    id INTEGER PRIMARY KEY, operation TEXT, kind TEXT, params TEXT, match TEXT, remaining INTEGER, probability
    REAL, used INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS bill_file (token TEXT PRIMARY KEY, body BLOB, made_at REAL);
"""

TABLES = ("trade", "charge", "refund", "notify", "delivery", "call", "fault", "bill_file", "meta")

Row = dict[str, Any]


class Store:
    """One connection behind one lock: the channels' whole state fits in memory, and order is worth more than
    speed."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.executescript(SCHEMA)
        self._lock = threading.RLock()
        self._depth = 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Committed at the end of the outermost block, undone by an exception."""
        with self._lock:
            outermost = self._depth == 0
            if outermost:
                self._db.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
            except BaseException:
                if outermost:
                    self._db.execute("ROLLBACK")
                raise
            else:
                if outermost:
                    self._db.execute("COMMIT")
            finally:
                self._depth -= 1

    def run(self, sql: str, *values: Any) -> int:
        """Execute one statement; how many rows it touched."""
        with self._lock:
            return self._db.execute(sql, values).rowcount

    def insert(self, table: str, **values: Any) -> int:
        names = ", ".join(values)
        marks = ", ".join("?" for _ in values)
        with self._lock:
            done = self._db.execute(
                f"INSERT INTO {table} ({names}) VALUES ({marks})",
                tuple(values.values()),
            )
            return int(done.lastrowid or 0)

    def all(self, sql: str, *values: Any) -> list[Row]:
        with self._lock:
            return [dict(row) for row in self._db.execute(sql, values)]

    def one(self, sql: str, *values: Any) -> Row | None:
        found = self.all(sql, *values)
        return found[0] if found else None

    def setting(self, key: str, default: Any) -> Any:
        row = self.one("SELECT value FROM meta WHERE key = ?", key)
        return default if row is None else json.loads(row["value"])

    def set(self, key: str, value: Any) -> None:
        self.run("INSERT OR REPLACE INTO meta VALUES (?, ?)", key, json.dumps(value))

    def wipe(self) -> None:
        with self.transaction():
            for table in TABLES:
                self.run(f"DELETE FROM {table}")

    def close(self) -> None:
        with self._lock:
            self._db.close()
