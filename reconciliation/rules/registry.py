"""All rules by their code, and which comparison each belongs to. Order of running is the order here."""

from __future__ import annotations

from functools import lru_cache

from reconciliation.rules import Comparison, Rule


@lru_cache(maxsize=1)
def comparisons() -> tuple[Comparison, ...]:
    from reconciliation.rules.flows import FLOWS
    from reconciliation.rules.payments import PAYMENTS
    from reconciliation.rules.refunds import REFUNDS

    return (REFUNDS, PAYMENTS, FLOWS)


@lru_cache(maxsize=1)
def state_rules() -> tuple[Rule, ...]:
    from reconciliation.rules import coupons, ledgers, messages, orders

    return (*coupons.RULES, *orders.RULES, *ledgers.RULES, *messages.RULES)


@lru_cache(maxsize=1)
def all_rules() -> dict[str, Rule]:
    rules = [*state_rules(), *(rule for each in comparisons() for rule in each.rules)]
    named = {rule.code: rule for rule in rules}
    if len(named) != len(rules):
        raise ValueError("two rules share a code")
    return named


def rule_named(code: str) -> Rule | None:
    return all_rules().get(code)


def comparison_of(rule: Rule) -> Comparison | None:
    return next((each for each in comparisons() if rule in each.rules), None)
