"""Coupons: lock and redeem against plain SQL and the usual ORM, the batch form, the scanner."""

from functools import partial
from statistics import median

from django.db import connection

from benchmarks.coupon_cells import sql, work
from benchmarks.coupon_cells.rows import MERCHANT, Wanted, fill
from benchmarks.harness import Bench, Cell, Figures, Pgbench, Work

STRIDE = 5_000
CLIENTS = (2, 4, 8)
FREE = 100_000
HELD = 100_000
LOCKS = 1_200
BATCH = 100
PAGE = 500


def run(*, figures: Figures, rounds: int) -> None:
    """Every figure of the coupons."""
    with Bench("coupons", partial(fill, Wanted(free=FREE, held=HELD)), after=check) as bench:
        for number in range(rounds):
            print(f"  round {number + 1}", flush=True)
            rates = bench.round(cells())
            for command in ("lock", "redeem"):
                ratios = [rates[f"{command}/{c}"] / rates[f"{command} plain/{c}"] for c in CLIENTS]
                figures.add(f"coupon_{command}_vs_plain", median(ratios))
                for clients, ratio in zip(CLIENTS, ratios, strict=True):
                    figures.add(f"coupon_{command}_vs_plain_{clients}", ratio)
            figures.add(
                "coupon_lock_vs_usual_orm", median(rates[f"lock/{c}"] / rates[f"lock usual/{c}"] for c in CLIENTS)
            )
            figures.add(
                "plain_vs_usual_orm", median(rates[f"lock plain/{c}"] / rates[f"lock usual/{c}"] for c in CLIENTS)
            )
            figures.add(
                "one_statement_vs_plain", median(rates[f"lock one/{c}"] / rates[f"lock plain/{c}"] for c in CLIENTS)
            )
            figures.add("batch_vs_one_statement", BATCH * rates["release batch"] / rates["release one"])
            figures.add("scanner_vs_rows", PAGE * rates["scan"] / rates["scan by rows"])


def cells() -> list[Cell]:
    free = {"first": 1, "stride": STRIDE}
    held = {"first": FREE + 1, "stride": STRIDE}
    found = []
    for clients in CLIENTS:
        each = LOCKS // clients * 2
        found += [
            Cell(f"lock/{clients}", clients, each, Work(work.lock(**free))),
            Cell(f"lock plain/{clients}", clients, each, Pgbench(plain(sql.lock_plain, **free))),
            Cell(f"lock one/{clients}", clients, each, Pgbench(plain(sql.lock_one, **free))),
            Cell(f"lock usual/{clients}", clients, each // 4, Work(work.usual_lock(**free))),
            Cell(f"redeem/{clients}", clients, each, Work(work.redeem(**held))),
            Cell(f"redeem plain/{clients}", clients, each, Pgbench(plain(sql.redeem_plain, **held))),
        ]
    return [
        *found,
        Cell("release batch", 2, 30, Work(work.release_batches(**held, size=BATCH), warm_up=1)),
        Cell("release one", 2, LOCKS, Pgbench(plain(sql.release_one, **held))),
        Cell("scan", 1, 40, Work(work.scan(page=PAGE), warm_up=1)),
        Cell("scan by rows", 1, 400, Work(work.scan_by_rows(), warm_up=10)),
    ]


def plain(script, **where: int):
    return lambda clients: script(MERCHANT["id"], **where)


def check(cell: str) -> None:
    """The rows that a cell left contradict nothing, and it did leave some."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FILTER (WHERE c.id IS NULL OR o.id IS NULL)"
            " FROM user_coupon c FULL JOIN (SELECT DISTINCT ON (coupon_id) * FROM coupon_operation"
            " ORDER BY coupon_id, to_version DESC) o"
            " ON o.coupon_id = c.id AND o.to_version = c.state_version AND o.to_status = c.status",
        )
        broken = cursor.fetchone()[0]
        cursor.execute("SELECT count(*) FROM coupon_operation")
        written = cursor.fetchone()[0] - FREE - 2 * HELD
    if broken or written < 100:
        raise RuntimeError(f"{cell}: {broken} coupons contradict their ledger, {written} operations written")
