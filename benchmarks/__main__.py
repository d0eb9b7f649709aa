"""`python -m benchmarks [NAME …] [--only PART …] …`: what bin/bench runs on servers of its own."""

import argparse
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import django

GOALS = {
    "coupon_lock_vs_plain": ("≥", 0.9),
    "coupon_redeem_vs_plain": ("≥", 0.9),
    "coupon_lock_vs_usual_orm": ("≥", 5.0),
    "order_confirm_vs_plain": ("≥", 0.7),
    "aftersales_approve_vs_plain": ("≥", 0.7),
    "batch_vs_one_statement": ("≥", 2.5),
    "http_lock_vs_command": ("≥", 0.45),
    "http_lock_vs_drf_usual": ("≥", 4.0),
    "scanner_vs_rows": ("≥", 50.0),
    "scanner_1m_vs_10k": ("≥", 0.6),
    "locks_while_scanning": ("≥", 0.7),
    "relay_vs_celery_noop": ("≥", 45.0),
    "relay_vs_procrastinate": ("≥", 60.0),
    "recon_vs_rows": ("≥", 200.0),
    "recon_vs_group_by": ("≤", 10.0),
    "latency_5m_vs_10k": ("≤", 1.2),
    "admin_1m_vs_10k": ("≤", 1.5),
}
BASELINES = {
    "coupon_lock_vs_usual_orm": ("baseline_usual_orm_vs_plain", 0.085),
    "batch_vs_one_statement": ("baseline_one_statement_vs_plain", 0.7),
    "scanner_vs_rows": ("baseline_row_loop_vs_usual_orm", 0.5),
    "http_lock_vs_drf_usual": ("baseline_drf_vs_usual_orm", 0.28),
    "relay_vs_celery_noop": ("baseline_celery_vs_relay", 1 / 120),
    "relay_vs_procrastinate": ("baseline_procrastinate_vs_relay", 1 / 160),
}
"""{figure: (its baseline ÷ something better, the least of it)}: a slow baseline wins any ratio, so it voids it."""


def names() -> list[str]:
    """Every module here that has a `run(figures, rounds)`."""
    here = Path(__file__).parent
    return sorted(path.stem for path in here.glob("*.py") if path.stem not in ("__init__", "__main__", "harness"))


def parts_of(name: str, only: list[str]) -> dict[str, Callable[..., Any]]:
    """What to run of a benchmark: its `PARTS` that were asked for, or all of it."""
    module = importlib.import_module(f"benchmarks.{name}")
    if not only:
        return {name: module.run}
    return {part: run for part, run in getattr(module, "PARTS", {name: module.run}).items() if part in only}


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    from benchmarks import harness

    parser = argparse.ArgumentParser(prog="bin/bench")
    parser.add_argument("name", nargs="*", choices=[*names(), []])
    parser.add_argument("--only", nargs="+", default=[], metavar="PART")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    figures = harness.Figures()
    for name in asked.name or names():
        for part, run in parts_of(name, asked.only).items():
            began = monotonic()
            print(part, flush=True)
            run(figures=figures, rounds=asked.rounds)
            print(f"{part}: {monotonic() - began:,.0f} s", flush=True)
    harness.report(figures.summary(), GOALS, BASELINES)
    if asked.json:
        harness.write_json(asked.json, figures=figures.summary(), rounds=asked.rounds)


if __name__ == "__main__":
    main()
