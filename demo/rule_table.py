"""docs/rules.md: every rule of reconciliation, from the rules themselves."""

from __future__ import annotations

from reconciliation.repairs import repair_named
from reconciliation.rules import DAY, Rule
from reconciliation.rules.registry import comparisons, state_rules

HEAD = """# The rules of reconciliation

<!-- Made by `bin/manage draw_states`; edit the rules, not this page. -->

"""


def rule_table() -> str:
    """One section per comparison, then the rules on the tables as they stand."""
    parts = [_section(str(comparison.title), comparison.rules) for comparison in comparisons()]
    return "".join([HEAD, *parts, _section("The tables as they stand", state_rules())]).rstrip() + "\n"


def _section(title: str, rules: tuple[Rule, ...]) -> str:
    lines = [
        f"## {title}",
        "",
        "| | rule | what it means | what to do | looked at |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {rule.severity} | `{rule.code}` | {rule.title} | {rule.advice}{_repair(rule)} | {_when(rule)} |"
        for rule in rules
    ]
    return "\n".join(lines) + "\n\n"


def _repair(rule: Rule) -> str:
    repair = repair_named(rule.repair) if rule.repair else None
    return f" *Repair: {repair.title}.*" if repair else ""


def _when(rule: Rule) -> str:
    if rule.gate:
        return "every minute and daily"
    return "the day's books" if rule.scope == DAY else "daily"
