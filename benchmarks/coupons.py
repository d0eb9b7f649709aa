"""Coupons: commands against plain SQL and the usual ORM, the batch form, the scanner, size, HTTP, wallets, verify."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from statistics import median
from urllib.parse import urlsplit, urlunsplit

from django.db import connection

from benchmarks.coupon_cells import http, rows, sql, work
from benchmarks.coupon_cells.rows import MERCHANT, Wanted, fill
from benchmarks.harness import Bench, Cell, Figures, Pgbench, Work, run_work, server
from coupons import tasks
from coupons.models import CouponRefusal

STRIDE = 5_000
CLIENTS = (2, 4, 8)
FREE = HELD = 50_000
LOCKS = 1_000
BATCH = 100
PAGE = 500
WALLET = 8
CHECKOUTS = 60
SMALL = 10_000
LARGE = int(os.environ.get("BENCH_LARGE", "1000000"))
HUGE = 5 * LARGE
HUGE_HELD = LARGE // 5
PAGES = 16
FEW = 300

FREE_ROWS = {"first": 1, "stride": STRIDE}
HELD_ROWS = {"first": FREE + 1, "stride": STRIDE}
SHOP = Wanted(free=FREE, held=HELD, wallet=WALLET)


def commands(*, figures: Figures, rounds: int) -> None:
    """Lock and redeem against plain SQL and the usual ORM, and what the database's guarantees cost them."""
    with (
        Bench("coupons", partial(fill, SHOP), after=check) as bench,
        Bench("coupons_bare", rows.take_guarantees_off, after=check, like=bench) as bare,
    ):
        for number in range(rounds):
            print(f"  round {number + 1}", flush=True)
            rates = bench.round([*command_cells(), *guaranteed_cells()])
            without = bare.round(guaranteed_cells())
            for command in ("lock", "redeem"):
                ratios = [rates[f"{command}/{c}"] / rates[f"{command} plain/{c}"] for c in CLIENTS]
                figures.add(f"coupon_{command}_vs_plain", median(ratios))
                for clients, ratio in zip(CLIENTS, ratios, strict=True):
                    figures.add(f"coupon_{command}_vs_plain_{clients}", ratio)
                figures.add(f"guaranteed_{command}_vs_bare", rates[f"{command} one/4"] / without[f"{command} one/4"])
            usual = [rates[f"lock/{c}"] / rates[f"lock usual/{c}"] for c in CLIENTS]
            figures.add("coupon_lock_vs_usual_orm", median(usual))
            figures.add("baseline_one_statement_vs_plain", rates["lock one/4"] / rates["lock plain/4"])
            figures.add("baseline_usual_orm_vs_plain", rates["lock usual/4"] / rates["lock plain/4"])


def command_cells() -> list[Cell]:
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
    return found


def guaranteed_cells() -> list[Cell]:
    return [
        Cell("lock one/4", 4, LOCKS // 2, Pgbench(plain(sql.lock_one, **FREE_ROWS))),
        Cell("redeem one/4", 4, LOCKS // 2, Pgbench(plain(sql.redeem_one, **HELD_ROWS))),
    ]


def plain(script: Callable[..., str], **where: int) -> Callable[[int], str]:
    return lambda clients: script(MERCHANT["id"], **where)


def bulk(*, figures: Figures, rounds: int) -> None:
    """The batch form of release, the scanner and what it does to locks beside it, a wallet that everybody wants."""
    beside = work.lock_beside_scanner(**FREE_ROWS, page=PAGE, rate=tasks.ROWS_PER_SECOND)
    colliding = work.take_from_one_wallet(user_id="wallet", queued=False)
    queued = work.take_from_one_wallet(user_id="wallet", queued=True)
    cells = [
        Cell("release batch", 2, 30, Work(work.release_batches(**HELD_ROWS, size=BATCH), warm_up=1)),
        Cell("release one", 2, LOCKS, Pgbench(plain(sql.release_one, **HELD_ROWS))),
        Cell("scan", 1, 40, Work(work.scan(page=PAGE), warm_up=1)),
        Cell("scan by rows", 1, 400, Work(work.scan_by_rows(), warm_up=10)),
        Cell("lock alone", 2, LOCKS, Work(work.lock(**FREE_ROWS))),
        Cell("lock beside scanner", 2, LOCKS, Work(beside)),
        Cell("lock usual, one client", 1, 400, Work(work.usual_lock(**FREE_ROWS))),
        Cell("wallet colliding", WALLET, CHECKOUTS, Work(colliding, warm_up=2)),
        Cell("wallet queued", WALLET, CHECKOUTS, Work(queued, warm_up=2)),
    ]
    with Bench("coupons", partial(fill, SHOP), after=check) as bench:
        for number in range(rounds):
            print(f"  round {number + 1}", flush=True)
            rates = bench.round(cells)
            figures.add("batch_vs_one_statement", BATCH * rates["release batch"] / rates["release one"])
            figures.add("scanner_vs_rows", PAGE * rates["scan"] / rates["scan by rows"])
            figures.add("baseline_row_loop_vs_usual_orm", rates["scan by rows"] / rates["lock usual, one client"])
            figures.add("locks_while_scanning", rates["lock beside scanner"] / rates["lock alone"])
            figures.add("wallet_queued_vs_colliding", rates["wallet queued"] / rates["wallet colliding"])
            for name, refused in COLLISIONS.items():
                figures.add(f"{name.replace(' ', '_')}_refusals", refused)


COLLISIONS: dict[str, float] = {}
"""Refused commands that a wallet's cell left, per checkout."""


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
        COLLISIONS[cell] = CouponRefusal.objects.count() / (WALLET * (CHECKOUTS + 2))


def over_http(*, figures: Figures, rounds: int) -> None:
    """The lock over HTTP ÷ the direct command ÷ DRF and the usual ORM on the same server, with as many clients."""
    clients, each = 4, 600

    def filled() -> None:
        fill(SHOP)
        http.make_client()

    with Bench("coupons_http", filled, after=check) as bench:
        for number in range(rounds):
            direct = bench.rate(Cell("lock direct", clients, each, Work(work.lock(**FREE_ROWS))))
            ours = _served(bench, "config.urls", clients, each, signed=True)
            usual = _served(bench, "benchmarks.coupon_cells.usual_api", clients, each // 3, signed=False)
            orm = bench.rate(Cell("lock usual", clients, each // 3, Work(work.usual_lock(**FREE_ROWS))))
            print(
                f"  round {number + 1}: command {direct:,.0f} /s, HTTP {ours:,.0f} /s, usual DRF {usual:,.0f} /s,"
                f" usual ORM without HTTP {orm:,.0f} /s",
                flush=True,
            )
            figures.add("http_lock_vs_command", ours / direct)
            figures.add("http_lock_vs_drf_usual", ours / usual)
            figures.add("baseline_drf_vs_usual_orm", usual / orm)


def _served(bench: Bench, urls: str, clients: int, each: int, *, signed: bool) -> float:
    def measure() -> float:
        with http.web_server(urls=urls) as port:
            requests = http.post_locks(port, **FREE_ROWS, signed=signed, operations=each)
            seconds = run_work(Cell("lock over HTTP", clients, each, Work(requests)))
        check(urls)
        return seconds

    return clients * each / bench.on_copy(measure)


def sizes(*, figures: Figures, rounds: int) -> None:
    """The scanner among ten thousand and among a million overdue leases; verify_coupons over them."""
    with (
        Bench("coupons_small", partial(fill, Wanted(free=0, held=SMALL))) as small,
        Bench("coupons_large", partial(fill, Wanted(free=0, held=LARGE))) as large,
    ):
        pages = Cell("scan", 1, PAGES, Work(work.scan(page=PAGE), warm_up=1))
        for number in range(rounds):
            few, many = small.rate(pages), large.rate(pages)
            print(
                f"  round {number + 1}: scanner {few * PAGE:,.0f} /s among {SMALL:,}, {many * PAGE:,.0f} /s among"
                f" {LARGE:,}",
                flush=True,
            )
            figures.add("scanner_1m_vs_10k", many / few)
        _ratio, little = _verify(small)
        ratio, much = _verify(large)
        figures.add("verify_1m_vs_count", ratio)
        figures.add("verify_memory_1m_vs_10k", much / little)


def _verify(bench: Bench) -> tuple[float, float]:
    """manage.py verify_coupons on the template itself: its own ratio to a plain count, its peak memory in KiB."""
    address = server()
    target = urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{bench.template}"))
    for _time in range(2):  # the second time finds what the first has read in memory, for both sides of the ratio
        running = subprocess.Popen(
            [sys.executable, "manage.py", "verify_coupons"],
            env={**os.environ, "DATABASE_URL": target, "DATABASE_OWNER_URL": target, "PGPASSWORD": address["PASSWORD"]},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert running.stdout is not None
        said = running.stdout.read()
        _pid, status, used = os.wait4(running.pid, 0)
        found = re.search(r"^0 differences in .* s, ([\d.]+) × the plain count", said, re.MULTILINE)
        if status or not found:
            raise RuntimeError(said)
    print(f"{said}  {used.ru_maxrss:,} KiB at most", flush=True)
    return float(found.group(1)), used.ru_maxrss


def size(*, figures: Figures, rounds: int) -> None:
    """One client's latency of the commands among ten thousand coupons and among five million.

    In place, each round on coupons of its own that are scattered over all of them: a copy would start cold.
    """
    with (
        Bench("coupons_few", partial(fill, Wanted(free=SMALL, held=SMALL))) as few_rows,
        Bench("coupons_huge", partial(fill, Wanted(HUGE - HUGE_HELD, HUGE_HELD, issue_keys=False))) as huge_rows,
    ):
        for number in range(rounds):
            print(f"  round {number + 1}", flush=True)
            for place, (name, command) in enumerate(work.COMMANDS.items()):
                turn = place + 4 * number
                near = Work(command(**scattered(name, turn, SMALL, SMALL)))
                far = Work(command(**scattered(name, turn, HUGE - HUGE_HELD, HUGE_HELD)))
                few = few_rows.in_place(Cell(name, 1, FEW, near))
                huge = huge_rows.in_place(Cell(name, 1, FEW, far))
                print(f"    {name}: {1e6 / few:,.0f} µs, {1e6 / huge:,.0f} µs among {HUGE:,}", flush=True)
                figures.add(f"latency_5m_vs_10k_{name}", few / huge)
        worst = max(work.COMMANDS, key=lambda name: median(figures.values[f"latency_5m_vs_10k_{name}"]))
        figures.values["latency_5m_vs_10k"] = figures.values[f"latency_5m_vs_10k_{worst}"]


def scattered(name: str, turn: int, free: int, held: int) -> dict[str, int]:
    """Every step-th free (for lock) or held coupon, a different set at each turn."""
    first, count = (1, free) if name == "lock" else (free + 1, held)
    step = count // (FEW + work.WARM)
    if turn >= step:
        raise ValueError(f"coupons for {step // 4} rounds")
    return {"first": first + turn, "stride": 0, "step": step}


PARTS = {"commands": commands, "bulk": bulk, "http": over_http, "sizes": sizes, "size": size}


def run(*, figures: Figures, rounds: int) -> None:
    """Every figure of the coupons."""
    for name, part in PARTS.items():
        print(f" {name}", flush=True)
        part(figures=figures, rounds=rounds)
