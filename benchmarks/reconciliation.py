"""Reconciliation of a million orders: the whole daily run against a row loop and against plain GROUP BY passes."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Self

from django.db import connection

from benchmarks.harness import Bench, Figures
from benchmarks.reconciliation_cells import loop
from benchmarks.reconciliation_cells.rows import DAY, Wanted, fill
from demo.shop import day_at
from reconciliation.commands.run_reconciliation import run_reconciliation

ORDERS = int(os.environ.get("BENCH_LARGE", "1000000"))
SAMPLE = 1_500
LIMIT = 500
"""Megabytes, for the client and for the database's processes each."""

GROUP_BY = (
    ("coupon_operation", "coupon_id", "to_version"),
    ("coupon_redemption", "coupon_id", "1"),
    ("user_coupon", "id", "state_version"),
    ("order_status_log", "order_id", "to_version"),
    ("orders", "order_no", "payable_fen"),
    ("payment", "order_no", "amount_fen"),
    ("journal_line", "account", "amount_fen"),
    ("bill_line", "(refund_no, out_trade_no, reference)", "amount_fen"),
    ("after_sales_log", "after_sales_id", "to_version"),
    ("after_sales_rollback", "after_sales_id", "1"),
)
"""One pass over the rows that the run reads, grouped by what each row is about, and nothing compared."""


def run(*, figures: Figures, rounds: int, wanted: Wanted = Wanted(orders=ORDERS)) -> None:  # noqa: B008 (frozen)
    """The run as it is, the loop extrapolated from a sample of rows (said so), the passes as they are."""
    with Bench("reconciliation", partial(fill, wanted)):
        for number in range(rounds):
            grouped = _grouped()
            with Peak() as peak:
                ours = _ours()
            if peak.megabytes > LIMIT:
                raise RuntimeError(f"{peak.megabytes} MB in the database's processes")
            rows = _rows(wanted)
            figures.add("recon_vs_rows", rows / ours)
            figures.add("recon_vs_group_by", ours / grouped)
            print(
                f"  round {number + 1}: run {ours:.1f} s, GROUP BY passes {grouped:.1f} s,"
                f" row loop {rows:,.0f} s (from {SAMPLE} rows of each kind); at most {_megabytes()} MB in the client"
                f" and {peak.megabytes} MB in the database's processes beside shared buffers",
                flush=True,
            )


def _ours() -> float:
    began = time.perf_counter()
    result = run_reconciliation(on_date=DAY, now=day_at(DAY + timedelta(days=1), 10, 30))
    took = time.perf_counter() - began
    if result.findings_seen or result.items != result.matched or result.items < 1_000:
        raise RuntimeError(f"honest books, and yet: {result}")
    if _megabytes() > LIMIT:
        raise RuntimeError(f"{_megabytes()} MB in the client")
    return took


def _grouped() -> float:
    began = time.perf_counter()
    with connection.cursor() as cursor:
        for table, key, figure in GROUP_BY:
            figures = f"count(*) AS n, max({figure}) AS top, sum({figure}) AS total"
            each = f"SELECT {key} AS about, {figures} FROM {table} GROUP BY 1"
            cursor.execute(f"SELECT count(about), sum(n), max(top), sum(total) FROM ({each}) AS grouped")
            cursor.fetchone()
    return time.perf_counter() - began


def _rows(wanted: Wanted) -> float:
    return (
        wanted.orders * loop.seconds_per_order(SAMPLE)
        + wanted.paid_on_day * loop.seconds_per_payment_of_the_day(SAMPLE)
        + wanted.refunded_on_day * loop.seconds_per_refund_of_the_day(SAMPLE, DAY)
    )


def _megabytes() -> int:
    """The most this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


class Peak:
    """The most private memory that the server's processes held together while this block ran.

    The kernel keeps no such mark, so it is looked at ten times a second; the run takes some tens of seconds, and its
    sorts and hashes fill up over seconds.
    """

    megabytes = 0

    def __enter__(self) -> Self:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            status = Path(f"/proc/{cursor.fetchone()[0]}/status").read_text()
        self._postmaster = int(status.split("PPid:")[1].split()[0])
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()
        return self

    def __exit__(self, *_what: object) -> None:
        self._over.set()
        self._watch.join()

    def _look(self) -> None:
        children = Path(f"/proc/{self._postmaster}/task/{self._postmaster}/children")
        while not self._over.wait(0.1):
            held = 0
            for pid in children.read_text().split():
                with contextlib.suppress(OSError, IndexError):  # it ended meanwhile
                    held += int(Path(f"/proc/{pid}/status").read_text().split("RssAnon:")[1].split()[0])
            self.megabytes = max(self.megabytes, held // 1024)
