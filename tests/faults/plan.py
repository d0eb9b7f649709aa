"""What will be broken, and when: drawn from the seed before the run begins, so that a run can be had again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

WEIGHTS = {"web": 5, "worker": 6, "skewed": 3, "beat": 2, "stream": 2, "postgres": 4, "valkey": 4}
"""`skewed` is the worker whose clock is wrong. PostgreSQL and Valkey are hit as often as a busy part."""
KILLS_PER_MINUTE, PAUSES_PER_MINUTE = 8.5, 2.5
FIRST_SECONDS, GAP_SECONDS = 8.0, 2.5
NOTIFY_FAULTS = (
    ("silent", 0.08, {}),
    ("duplicate", 0.12, {"copies": 3}),
    ("delay", 0.12, {"seconds": 4}),
    ("out_of_order", 0.06, {"seconds": 4}),
    ("forged", 0.04, {}),
    ("altered_body", 0.03, {}),
    ("stale", 0.03, {}),
    ("malformed", 0.02, {}),
)
CALL_FAULTS = (
    ("timeout_after", 0.02, {"seconds": 4}),
    ("timeout", 0.02, {"seconds": 4}),
    ("reset_after", 0.04, {}),
    ("reset", 0.03, {}),
    ("server_error_after", 0.04, {}),
    ("server_error", 0.03, {}),
    ("rate_limited", 0.02, {}),
    ("altered_body", 0.02, {}),
    ("unsigned", 0.02, {}),
    ("delay", 0.05, {"seconds": 1}),
)


@dataclass(frozen=True)
class Blow:
    """One thing done to one part, so many seconds after the traffic began."""

    at: float
    what: str  # kill, kill_one (a single process of the part), pause
    part: str
    seconds: float = 0.0

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.at:6.1f} {self.what} {self.part}{lasting}"


@dataclass(frozen=True)
class Plan:
    seed: int
    seconds: float
    skew_seconds: int
    blows: tuple[Blow, ...]


def draw(seed: int, *, minutes: float) -> Plan:
    """The plan of a seed: the same seed and length give the same plan."""
    will = random.Random(seed)
    seconds = minutes * 60
    skew = will.choice([-1, 1]) * will.randrange(90, 151)
    kills, pauses = round(KILLS_PER_MINUTE * minutes), round(PAUSES_PER_MINUTE * minutes)
    kinds = ["kill"] * kills + ["pause"] * pauses
    will.shuffle(kinds)
    return Plan(seed, seconds, skew, tuple(_blows(will, kinds, seconds)))


def _blows(will: random.Random, kinds: list[str], seconds: float) -> Iterator[Blow]:
    """Spread over the time with at least GAP_SECONDS between two."""
    free = max(0.0, seconds - FIRST_SECONDS - GAP_SECONDS * len(kinds))
    offsets = sorted(will.random() * free for _ in kinds)
    for number, (kind, offset) in enumerate(zip(kinds, offsets, strict=True)):
        at = FIRST_SECONDS + number * GAP_SECONDS + offset
        [part] = will.choices(list(WEIGHTS), list(WEIGHTS.values()))
        if kind == "pause":
            yield Blow(at, "pause", part, 1.0 + will.random() * (9.0 if part in ("worker", "skewed") else 4.0))
        else:
            alone = part in ("web", "worker", "postgres") and will.random() < 0.35
            yield Blow(at, "kill_one" if alone else "kill", part)
