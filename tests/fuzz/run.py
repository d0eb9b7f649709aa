"""`bin/test fuzz [REQUESTS] [SEED]`: the OpenAPI fuzz of tests/fuzz as a campaign of 20,000 requests or more."""

import os
import random
import sys
from pathlib import Path

import pytest

DEFAULT_REQUESTS = 20_500


def main(arguments: list[str]) -> int:
    requests = arguments[0] if arguments else str(DEFAULT_REQUESTS)
    seed = arguments[1] if len(arguments) > 1 else str(random.SystemRandom().randrange(2**31))
    print(f"fuzz: {requests} requests, seed {seed} (bin/test fuzz {requests} {seed} repeats it)", flush=True)
    os.environ |= {"FUZZ_REQUESTS": requests, "FUZZ_SEED": seed}
    return int(pytest.main(["-q", "-s", "--reuse-db", "--create-db", str(Path(__file__).parent / "test_fuzz.py")]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
