"""`bin/bench`: the benchmarks on private servers that keep their promises (fsync on), started for the occasion."""

from __future__ import annotations

from house import environment, gate, postgres, testbed
from house.layout import PROJECT, PYTHON, Trouble

USAGE = """\
bin/bench                        every benchmark
bin/bench NAME …                 these (coupons, orders, aftersales, reconciliation …)
bin/bench [NAME …] --json FILE   also write the figures to a file
bin/bench [NAME …] --rounds N    interleaved rounds per figure (5)
bin/bench coupons --only PART …  some parts (commands, bulk, http, sizes, size)

Figures are ratios within one run; docs/performance.md explains each. Leave the machine alone meanwhile.
"""


def main(arguments: list[str]) -> int:
    if arguments in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    if not (PROJECT / "benchmarks" / "__main__.py").exists():
        raise Trouble("benchmarks/ has nothing to run")
    environment.ensure(dev=True)
    directory = testbed.directory("bench")
    testbed.stop(directory)
    try:
        with testbed.borrowed(directory, durable=True) as (bed, keys):
            values = gate.test_environment(bed, keys, directory)
            values["QUITS_BENCH_PROGRAMS"] = str(postgres.wheel_programs())
            return gate.follow([str(PYTHON), "-m", "benchmarks", *arguments], values)
    finally:
        testbed.stop(directory)
