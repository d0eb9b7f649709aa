"""The product's settings; the benchmark may put other addresses in front (the usual way, for comparison)."""

import os

from config.settings import *  # noqa: F403

ROOT_URLCONF = os.environ.get("QUITS_BENCH_URLS", "config.urls")
