"""Orders: the confirmation of a payment against the same transaction in plain SQL, and callbacks over HTTP."""

from functools import partial
from statistics import median

from django.db import connection

from benchmarks.coupon_cells.rows import MERCHANT
from benchmarks.harness import Bench, Cell, Figures, Pgbench, Work
from benchmarks.order_cells import callbacks, confirm
from benchmarks.order_cells.rows import fill

STRIDE = 1_500
CLIENTS = (2, 4, 8)
ORDERS = STRIDE * max(CLIENTS)
CONFIRMATIONS = 1_200
CALLBACKS = 800


def run(*, figures: Figures, rounds: int) -> None:
    """Every figure of the orders."""
    with Bench("orders", partial(fill, ORDERS), after=check) as bench:
        for number in range(rounds):
            print(f"  round {number + 1}", flush=True)
            rates = bench.round(cells())
            ratios = [rates[f"confirm/{c}"] / rates[f"confirm plain/{c}"] for c in CLIENTS]
            figures.add("order_confirm_vs_plain", median(ratios))
            for clients, ratio in zip(CLIENTS, ratios, strict=True):
                figures.add(f"order_confirm_vs_plain_{clients}", ratio)
            over_http(bench, figures)


def over_http(bench: Bench, figures: Figures) -> None:
    """Callbacks a second with four channels' connections, the middle one's time with one, and RSA's share of that."""
    alone = bench.on_copy(lambda: callbacks.measure(1, CALLBACKS // 2))
    crowd = bench.on_copy(lambda: callbacks.measure(4, CALLBACKS // 2))
    rsa = callbacks.rsa_seconds()
    figures.add("callback_per_second", crowd.per_second)
    figures.add("callback_p50_ms", 1000 * alone.p50_seconds)
    figures.add("callback_rsa_percent", 100 * rsa / alone.p50_seconds)
    print(
        f"    callbacks: {crowd.per_second:,.0f} /s, p50 {1000 * alone.p50_seconds:.2f} ms alone and"
        f" {1000 * crowd.p50_seconds:.2f} ms at four, one RSA verification {1e6 * rsa:.0f} µs",
        flush=True,
    )


def cells() -> list[Cell]:
    where = {"first": 1, "stride": STRIDE}
    found = []
    for clients in CLIENTS:
        each = CONFIRMATIONS // clients * 2
        found += [
            Cell(f"confirm/{clients}", clients, each, Work(confirm.confirm(**where))),
            Cell(f"confirm plain/{clients}", clients, each, Pgbench(plain(**where))),
        ]
    return found


def plain(**where: int):
    return lambda clients: confirm.confirm_plain(MERCHANT["id"], **where)


def check(cell: str) -> None:
    """What a cell confirmed, it confirmed wholly: order, log, payment, redemption."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), count(l.id), count(p.id), count(r.id) FROM orders o"
            " LEFT JOIN order_status_log l ON l.order_id = o.id AND l.to_status = 10 AND l.to_version = o.version"
            " LEFT JOIN payment p ON p.order_no = o.order_no AND p.status = 'PAID' AND p.trade_no = o.trade_no"
            " LEFT JOIN coupon_redemption r ON r.order_no = o.order_no AND r.ended_by_id IS NULL"
            " WHERE o.status = 10"
        )
        orders, logs, payments, redemptions = cursor.fetchone()
    if orders < 100 or not orders == logs == payments == redemptions:
        raise RuntimeError(f"{cell}: {orders} orders, {logs} logs, {payments} payments, {redemptions} redemptions")
