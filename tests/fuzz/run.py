"""`bin/test fuzz [REQUESTS] [SEED]`: the OpenAPI fuzz of tests/fuzz as a campaign of 20,000 requests or more."""

import argparse
import os
import random
import sys
from pathlib import Path

import pytest

DEFAULT_REQUESTS = 20_500


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bin/test fuzz", description=__doc__)
    parser.add_argument("requests", nargs="?", type=int, default=DEFAULT_REQUESTS)
    parser.add_argument("seed", nargs="?", type=int, default=random.SystemRandom().randrange(2**31))
    wanted = parser.parse_args(arguments)
    requests, seed = str(wanted.requests), str(wanted.seed)
    print(f"fuzz: {requests} requests, seed {seed} (bin/test fuzz {requests} {seed} repeats it)", flush=True)
    os.environ |= {"FUZZ_REQUESTS": requests, "FUZZ_SEED": seed}
    return int(pytest.main(["-q", "-s", "--reuse-db", "--create-db", str(Path(__file__).parent / "test_fuzz.py")]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
