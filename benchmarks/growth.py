"""How cost grows with the rows: commands and sweeps among ten thousand, a hundred thousand and a million, as a picture.

A command should cost the same everywhere (flat), a sweep as much a row everywhere (a straight line on two logarithmic
scales). The picture is written to `growth.svg` in the bench's directory; docs/performance.md shows one.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from math import log10
from pathlib import Path
from statistics import median

from benchmarks.coupon_cells import work
from benchmarks.coupon_cells.rows import Wanted as Coupons
from benchmarks.coupon_cells.rows import fill as fill_coupons
from benchmarks.coupons import FEW, scattered
from benchmarks.harness import Bench, Cell, Figures, Work, switch_database
from benchmarks.reconciliation_cells.rows import DAY
from benchmarks.reconciliation_cells.rows import Wanted as Orders
from benchmarks.reconciliation_cells.rows import fill as fill_orders
from coupons.verification import verify
from demo.shop import day_at
from reconciliation.commands.run_reconciliation import run_reconciliation

SIZES = tuple(int(os.environ.get("BENCH_LARGE", "1000000")) // part for part in (100, 10, 1))
PAGE, PAGES = 500, 8
COMMANDS, SCANNER = ("lock", "renew", "redeem", "release"), "scanner, 500 rows"
SWEEPS = ("verify_coupons", "reconciliation")
Curves = dict[str, dict[int, float]]


def run(*, figures: Figures, rounds: int) -> None:
    """Seconds of each thing by size; the last size ÷ the first goes into the figures."""
    commands: Curves = {name: {} for name in (*COMMANDS, SCANNER)}
    sweeps: Curves = {name: {} for name in SWEEPS}
    for name, ratio in _coupons(rounds, commands, sweeps):
        figures.add(f"growth_{name.partition(',')[0]}", ratio)
    for size in SIZES:
        sweeps["reconciliation"][size] = _reconciliation(size)
        said = [f"{name} {curve[size] * 1e6:,.0f} µs" for name, curve in commands.items()]
        said += [f"{name} {curve[size]:.2f} s" for name, curve in sweeps.items()]
        print(f"  {size:,}: {', '.join(said)}", flush=True)
    for name, curve in sweeps.items():
        figures.add(f"growth_{name}", curve[SIZES[-1]] / curve[SIZES[0]])
    target = Path(os.environ.get("QUITS_VAR", ".")) / "growth.svg"
    target.write_text(picture(commands, sweeps), encoding="utf-8")
    print(f"  {target}", flush=True)


def _coupons(rounds: int, commands: Curves, sweeps: Curves) -> Iterator[tuple[str, float]]:
    """All sizes side by side, so that a slow minute of the machine is in each of them; the ratios of every round.

    The scanner runs on copies; the commands in place, each round on coupons of its own: a copy would start cold, and a
    large one colder.
    """
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    with ExitStack() as stack:
        benches = {
            size: stack.enter_context(
                Bench(f"growth_{size}", partial(fill_coupons, Coupons(free=size // 2, held=size // 2)))
            )
            for size in SIZES
        }
        for size, bench in benches.items():
            sweeps["verify_coupons"][size] = _seconds_of_verification(bench)
        pages = Cell("scan", 1, min(PAGES, SIZES[0] // 2 // PAGE - 1), Work(work.scan(page=PAGE), warm_up=1))
        for _number in range(rounds):
            for size, bench in benches.items():
                times[SCANNER, size].append(1 / bench.rate(pages))
        for number in range(rounds):
            for place, name in enumerate(COMMANDS):
                turn = number if name == "lock" else number * (len(COMMANDS) - 1) + place - 1
                for size, bench in benches.items():
                    command = Work(work.COMMANDS[name](**scattered(name, turn, size // 2, size // 2)))
                    times[name, size].append(1 / bench.in_place(Cell(name, 1, FEW, command)))
    for (name, size), each in times.items():
        commands[name][size] = median(each)
    for name in commands:
        for large, small in zip(times[name, SIZES[-1]], times[name, SIZES[0]], strict=True):
            yield name, large / small


def _seconds_of_verification(bench: Bench) -> float:
    def measure() -> float:
        began = time.perf_counter()
        wrong = [checked for checked in verify() if checked.differences]
        if wrong:
            raise RuntimeError(f"honest coupons, and yet: {wrong}")
        return time.perf_counter() - began

    return bench.on_copy(lambda: min(measure() for _ in range(2)))


def _reconciliation(orders: int) -> float:
    wanted = Orders(orders=orders, paid_on_day=orders * 6 // 100, refunded_on_day=orders * 4 // 100)
    with Bench("growth_books", partial(fill_orders, wanted)) as bench:
        switch_database(bench.template)
        began = time.perf_counter()
        result = run_reconciliation(on_date=DAY, now=day_at(DAY + timedelta(days=1), 10, 30))
        if result.findings_seen:
            raise RuntimeError(f"honest books, and yet: {result}")
        return time.perf_counter() - began


WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 460, 320, 64, 44, 44
COLOURS = ("#0f766e", "#c2410c", "#1d4ed8", "#7e22ce", "#475569")


def picture(commands: Mapping[str, Mapping[int, float]], sweeps: Mapping[str, Mapping[int, float]]) -> str:
    """Two panels on logarithmic scales: commands (flat is good), sweeps (a straight line is good)."""
    panels = [
        _panel(
            "One command or page, µs",
            {name: {n: s * 1e6 for n, s in curve.items()} for name, curve in commands.items()},
        ),
        _panel("One sweep, seconds", sweeps),
    ]
    body = "".join(f'<g transform="translate({place * WIDTH},0)">{panel}</g>' for place, panel in enumerate(panels))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT}" font-family="sans-serif"'
        f' font-size="12" role="img"><title>Cost by rows</title><rect width="100%" height="100%" fill="#fff"/>'
        f"{body}</svg>\n"
    )


def _panel(title: str, curves: Mapping[str, Mapping[int, float]]) -> str:
    sizes: Sequence[int] = SIZES
    values = [value for curve in curves.values() for value in curve.values()]
    low, high = 10 ** int(log10(min(values)) - (min(values) < 1)), 10 ** (int(log10(max(values))) + (max(values) >= 1))
    right, floor = WIDTH - 130, HEIGHT - BOTTOM

    def x(size: int) -> float:
        return LEFT + (right - LEFT) * log10(size / sizes[0]) / log10(sizes[-1] / sizes[0])

    def y(value: float) -> float:
        return floor - (floor - TOP) * log10(value / low) / log10(high / low)

    parts = [f'<text x="{LEFT}" y="22" font-size="14" font-weight="bold">{title}</text>']
    decade = low
    while decade <= high:
        parts.append(f'<line x1="{LEFT}" x2="{right}" y1="{y(decade):.1f}" y2="{y(decade):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(decade) + 4:.1f}" text-anchor="end">{_plain(decade)}</text>')
        decade *= 10
    parts += [f'<text x="{x(n):.1f}" y="{floor + 18}" text-anchor="middle">{n:,}</text>' for n in sizes]
    parts.append(f'<text x="{(LEFT + right) / 2:.0f}" y="{floor + 36}" text-anchor="middle" fill="#555">rows</text>')
    for name, colour in zip(curves, COLOURS, strict=False):
        points = " ".join(f"{x(size):.1f},{y(curves[name][size]):.1f}" for size in sizes)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{each.split(",")[0]}" cy="{each.split(",")[1]}" r="3" fill="{colour}"/>'
            for each in points.split()
        ]
    for name, place in _apart({name: y(curve[sizes[-1]]) for name, curve in curves.items()}, floor - 4):
        colour = COLOURS[list(curves).index(name)]
        parts.append(f'<text x="{right + 10}" y="{place + 4:.1f}" fill="{colour}">{name}</text>')
    return "".join(parts)


def _apart(places: Mapping[str, float], lowest: float) -> Iterator[tuple[str, float]]:
    """Labels near their curves, none over another and none below the axis."""
    for name, place in sorted(places.items(), key=lambda item: -item[1]):
        lowest = min(place, lowest)
        yield name, lowest
        lowest -= 16


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
