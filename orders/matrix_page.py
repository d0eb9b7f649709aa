"""The callback matrix as a page of the documentation, printed from `orders.matrix` so that they cannot disagree."""

from collections.abc import Iterator, Mapping

from orders.matrix import TABLE, Decision, Rule, Said, Situation
from orders.tender import Answer

PATH = "docs/payment-callbacks.md"
HEAD = """# What a payment callback does

Printed from `orders/matrix.py` by `manage.py callback_matrix --write`; a test holds this page against the code.
`tests/orders/test_callback_matrix.py` walks the cells through the real commands.

A callback is verified, stored and acknowledged first; then it is decided by three things: where the order stands, what
the callback says, and, where the table asks for it, what the channel answers to our own query. The money that counts
is what the query confirms. *Later*: the work item stays and is tried again with back-off. In brackets: the anomaly that
is opened beside.
"""
WORDS = {
    Answer.PAID_EQUAL: "paid, our amount",
    Answer.PAID_DIFFERENT: "paid, another amount",
    Answer.REFUNDED: "refunded there",
    Answer.UNPAID: "unpaid",
    Answer.OVER: "closed there",
    Answer.NOT_FOUND: "not found",
    Answer.UNKNOWN: "no answer",
}


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for situation, rules in TABLE.items():
        parts.append(f"\n## Order {situation}\n")
        parts.append("\n".join(table(rules)))
        parts.append("\n")
    return "\n".join(parts).rstrip() + "\n"


def table(rules: Mapping[Said, Rule]) -> Iterator[str]:
    """One situation: a row per callback, a column per answer of the channel; decided without asking in one cell."""
    yield "| the callback says | " + " | ".join(WORDS.values()) + " |"
    yield "| --- |" + " --- |" * len(WORDS)
    for said in Said:
        rule = rules[said]
        if isinstance(rule, Decision):
            cells = [f"*not asked:* {cell(rule)}"] + [""] * (len(WORDS) - 1)
        else:
            cells = [cell(rule[answer]) for answer in WORDS]
        yield f"| {said} | " + " | ".join(cells) + " |"


def cell(decision: Decision) -> str:
    """A decision in words."""
    return f"{decision.action} ({decision.anomaly})" if decision.anomaly else str(decision.action)


def summary() -> str:
    """How many cells there are and that none is open."""
    cells = sum(1 if isinstance(rule, Decision) else len(rule) for rules in TABLE.values() for rule in rules.values())
    return f"{len(Situation)} situations × {len(Said)} callbacks: {cells} cells, all decided"
