"""Coupons: commands against plain SQL and the usual ORM, the batch form, the scanner, size, HTTP, wallets, verify."""

import os
import resource
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter

from django.db import connection

from benchmarks.coupon_cells import http, rows, sql, work
from benchmarks.coupon_cells.rows import MERCHANT, Wanted, fill
from benchmarks.harness import Bench, Cell, Figures, Pgbench, Work, _run_work
from coupons import tasks, verification
from coupons.models import CouponRefusal

STRIDE = 5_000
CLIENTS = (2, 4, 8)
FREE = 100_000
HELD = 100_000
LOCKS = 1_200
BATCH = 100
PAGE = 500
WALLET = 8
LARGE = int(os.environ.get("QUITS_BENCH_LARGE", "1_000_000"))
HUGE = 5 * LARGE
SMALL = 10_000
PAGES = 16

FREE_ROWS = {"first": 1, "stride": STRIDE}
HELD_ROWS = {"first": FREE + 1, "stride": STRIDE}


def run(*, figures: Figures, rounds: int) -> None:
    """Every figure of the coupons."""
    commands(figures, rounds)
    over_http(figures, rounds)
    by_size(figures, rounds)


def commands(figures: Figures, rounds: int) -> None:
    """One shop of 100,000 free and 100,000 held coupons."""
    filled = partial(fill, Wanted(free=FREE, held=HELD, wallet=WALLET))
    with (
        Bench("coupons", filled, after=check) as bench,
        Bench("coupons_bare", lambda: (filled(), rows.take_guarantees_off())) as bare,
    ):
        for number in range(rounds):
            print(f"  round {number + 1}", flush=True)
            rates = bench.round(cells())
            without = bare.round(bare_cells())
            for command in ("lock", "redeem"):
                ratios = [rates[f"{command}/{c}"] / rates[f"{command} plain/{c}"] for c in CLIENTS]
                figures.add(f"coupon_{command}_vs_plain", median(ratios))
                for clients, ratio in zip(CLIENTS, ratios, strict=True):
                    figures.add(f"coupon_{command}_vs_plain_{clients}", ratio)
                figures.add(f"guaranteed_{command}_vs_bare", rates[f"{command} one/4"] / without[f"{command} one/4"])
            usual = [rates[f"lock/{c}"] / rates[f"lock usual/{c}"] for c in CLIENTS]
            figures.add("coupon_lock_vs_usual_orm", median(usual))
            figures.add("lock_one_statement_vs_plain", rates["lock one/4"] / rates["lock plain/4"])
            figures.add("lock_plain_vs_usual_orm", rates["lock plain/4"] / rates["lock usual/4"])
            figures.add("batch_vs_one_statement", BATCH * rates["release batch"] / rates["release one"])
            figures.add("scanner_vs_rows", PAGE * rates["scan"] / rates["scan by rows"])
            figures.add("locks_while_scanning", rates["lock beside scanner"] / rates["lock/2"])
            figures.add("wallet_queued_vs_colliding", rates["wallet queued"] / rates["wallet colliding"])
            figures.add("wallet_collisions_queued", COLLISIONS["wallet queued"])
            figures.add("wallet_collisions_colliding", COLLISIONS["wallet colliding"])


def cells() -> list[Cell]:
    found = []
    for clients in CLIENTS:
        each = LOCKS // clients * 2
        found += [
            Cell(f"lock/{clients}", clients, each, Work(work.lock(**FREE_ROWS))),
            Cell(f"lock plain/{clients}", clients, each, Pgbench(plain(sql.lock_plain, **FREE_ROWS))),
            Cell(f"lock usual/{clients}", clients, each // 4, Work(work.usual_lock(**FREE_ROWS))),
            Cell(f"redeem/{clients}", clients, each, Work(work.redeem(**HELD_ROWS))),
            Cell(f"redeem plain/{clients}", clients, each, Pgbench(plain(sql.redeem_plain, **HELD_ROWS))),
        ]
    beside = work.lock_beside_scanner(**FREE_ROWS, page=PAGE, rate=tasks.ROWS_PER_SECOND)
    colliding = work.take_from_one_wallet(user_id="wallet", queued=False)
    queued = work.take_from_one_wallet(user_id="wallet", queued=True)
    return [
        *found,
        *bare_cells(),
        Cell("release batch", 2, 30, Work(work.release_batches(**HELD_ROWS, size=BATCH), warm_up=1)),
        Cell("release one", 2, LOCKS, Pgbench(plain(sql.release_one, **HELD_ROWS))),
        Cell("scan", 1, 40, Work(work.scan(page=PAGE), warm_up=1)),
        Cell("scan by rows", 1, 400, Work(work.scan_by_rows(), warm_up=10)),
        Cell("lock beside scanner", 2, LOCKS, Work(beside)),
        Cell("wallet colliding", WALLET, 60, Work(colliding, warm_up=2)),
        Cell("wallet queued", WALLET, 60, Work(queued, warm_up=2)),
    ]


def bare_cells() -> list[Cell]:
    return [
        Cell("lock one/4", 4, LOCKS // 2, Pgbench(plain(sql.lock_one, **FREE_ROWS))),
        Cell("redeem one/4", 4, LOCKS // 2, Pgbench(plain(sql.redeem_one, **HELD_ROWS))),
    ]


def plain(script: Callable[..., str], **where: int) -> Callable[[int], str]:
    return lambda clients: script(MERCHANT["id"], **where)


COLLISIONS: dict[str, int] = {}
"""Refused commands that a wallet's cell left, per 100 checkouts."""


def check(cell: str) -> None:
    """The rows that a cell left contradict nothing, and it did leave some."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FILTER (WHERE c.id IS NULL OR o.id IS NULL)"
            " FROM user_coupon c FULL JOIN (SELECT DISTINCT ON (coupon_id) * FROM coupon_operation"
            " ORDER BY coupon_id, to_version DESC) o"
            " ON o.coupon_id = c.id AND o.to_version = c.state_version AND o.to_status = c.status"
        )
        broken = cursor.fetchone()[0]
        cursor.execute("SELECT count(*) FROM coupon_operation")
        written = cursor.fetchone()[0] - FREE - 2 * HELD
    if broken or written < 100:
        raise RuntimeError(f"{cell}: {broken} coupons contradict their ledger, {written} operations written")
    if cell.startswith("wallet"):
        COLLISIONS[cell] = round(CouponRefusal.objects.count() * 100 / (WALLET * 62))


def over_http(figures: Figures, rounds: int) -> None:
    """The lock over HTTP ÷ the direct command ÷ DRF and the usual ORM, with as many clients."""
    clients, each = 4, 600

    def filled() -> None:
        fill(Wanted(free=SMALL * 4, held=0))
        http.make_client()

    with Bench("coupons_http", filled) as bench:
        for number in range(rounds):
            print(f"  round {number + 1}", flush=True)
            direct = bench.rate(Cell("lock direct", clients, each, Work(work.lock(**FREE_ROWS))))
            ours = _served(bench, "config.urls", clients, each, signed=True)
            usual = _served(bench, "benchmarks.coupon_cells.usual_api", clients, each // 3, signed=False)
            print(f"    direct {direct:,.0f} /s, HTTP {ours:,.0f} /s, usual DRF {usual:,.0f} /s", flush=True)
            figures.add("http_lock_vs_command", ours / direct)
            figures.add("http_lock_vs_drf_usual", ours / usual)


def _served(bench: Bench, urls: str, clients: int, each: int, *, signed: bool) -> float:
    def measure() -> float:
        with http.web_server(urls=urls) as port:
            requests = http.post_locks(port, **FREE_ROWS, signed=signed, operations=each)
            return _run_work(Cell("lock over HTTP", clients, each, Work(requests)))

    return clients * each / bench.on_copy(measure)


def by_size(figures: Figures, rounds: int) -> None:
    """The same commands on ten thousand, a million and five million coupons."""
    with (
        Bench("coupons_small", partial(fill, Wanted(free=0, held=SMALL))) as small,
        Bench("coupons_large", partial(fill, Wanted(free=0, held=LARGE))) as large,
    ):
        for number in range(rounds):
            print(f"  round {number + 1}", flush=True)
            pages = Cell("scan", 1, PAGES, Work(work.scan(page=PAGE), warm_up=1))
            few, many = small.rate(pages), large.rate(pages)
            print(f"    scanner {few * PAGE:,.0f} /s among 10k, {many * PAGE:,.0f} /s among 1M", flush=True)
            figures.add("scanner_1m_vs_10k", many / few)
        verify_all(figures, large)
    with (
        Bench("coupons_few", partial(fill, Wanted(free=SMALL, held=SMALL, keys=False))) as few_rows,
        Bench("coupons_huge", partial(fill, Wanted(free=HUGE, held=SMALL * 10, keys=False))) as huge_rows,
    ):
        for number in range(rounds):
            print(f"  round {number + 1}", flush=True)
            # In place, each round on coupons of its own, scattered over all of them: a copy would start cold.
            near = {"first": 1 + number, "stride": 0, "step": SMALL // 1_000}
            far = {"first": 1 + number, "stride": 0, "step": HUGE // 1_000}
            near_held = {"first": SMALL + 1 + number, "stride": 0, "step": SMALL // 1_000}
            far_held = {"first": HUGE + 1 + number, "stride": 0, "step": SMALL // 100}
            locks = _in_place(few_rows, work.lock(**near)), _in_place(huge_rows, work.lock(**far))
            redeems = _in_place(few_rows, work.redeem(**near_held)), _in_place(huge_rows, work.redeem(**far_held))
            for name, (few, many) in {"lock": locks, "redeem": redeems}.items():
                print(f"    {name} {few:,.0f} /s among 10k, {many:,.0f} /s among 5M", flush=True)
            figures.add("latency_5m_vs_10k", max(locks[0] / locks[1], redeems[0] / redeems[1]))


def _in_place(bench: Bench, prepare: Callable[[int, int], Callable[[int], object]]) -> float:
    """Operations a second of one client on the template itself."""
    return bench.in_place(Cell("one client", 1, 800, Work(prepare)))


def verify_all(figures: Figures, bench: Bench) -> None:
    """verify_coupons over a million coupons: how often a plain count it costs, and what it takes here in memory."""

    def measure() -> float:
        connection.close()
        verification.count_rows()
        _coupons, _operations, counted = verification.count_rows()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = perf_counter()
        found = sum(check.differences for check in verification.verify())
        seconds = perf_counter() - started
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(
            f"    verify 1M coupons: {seconds:.2f} s, a plain count {counted:.2f} s, {grown} KiB more memory",
            flush=True,
        )
        if found or grown > 20_000:
            raise RuntimeError(f"{found} differences, {grown} KiB")
        return seconds / counted

    figures.add("verify_1m_vs_count", bench.on_copy(measure))
