"""What can be wrong, each as one rule: a set-based SELECT, a severity, words for people, a repair.

A rule's SELECT yields one row per finding:

    key         text    what it is about; with the rule's code it identifies the finding for ever
    merchant_id uuid    whose it is (NULL when nobody can say)
    ours        jsonb   our side's figures        } times and numbers, never ages: an accepted finding
    theirs      jsonb   the other side's figures  } stays quiet exactly as long as these stay the same
    amount_fen  bigint  by how much the books differ

and may use the parameters `now`, `day`, `day_start`, `day_end` (the channel's day in Asia/Shanghai) and
`merchant_id` (NULL: all merchants).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DAY = "day"
STATE = "state"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One thing that must never be seen.

    `scope` DAY: the rule judges one day's books, and a later look at the same day closes its findings.
    STATE: it judges the tables as they stand, and any later look closes them.
    `gate`: cheap enough, and urgent enough, for every minute; its SELECT then uses `{changed}`.
    `repair`: the name of a registered repair (reconciliation.repairs), or "" when a person must decide.
    """

    code: str
    severity: str
    scope: str
    sql: str
    title: Any
    advice: Any
    gate: bool = False
    repair: str = ""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A pair of books joined item by item into a temporary table, which rules then read.

    `prepare` are the statements that create and judge the table (it lives until the transaction ends), `drop` is
    its end; `totals` selects one row per merchant and channel with all sides' counts and sums; `timing` selects
    the items that differ by time only.
    """

    name: str
    title: Any
    prepare: tuple[str, ...]
    drop: str
    totals: str
    timing: str
    rules: tuple[Rule, ...]
