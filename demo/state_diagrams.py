"""State diagrams drawn from the models' own FSM edges, so that a picture cannot disagree with the code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from django.apps import apps
from django.db import models
from django_fsm import FSMFieldMixin

from coupons.models import EDGES as COUPON_EDGES
from coupons.models import UserCoupon

DIRECTORY = Path("docs") / "states"


def machines() -> Iterator[tuple[type[models.Model], FSMFieldMixin]]:
    """Every (model, state field) that has at least one edge, in a stable order."""
    for model in sorted(apps.get_models(), key=lambda each: each._meta.label):
        if not model.__module__.startswith(f"{model._meta.app_config.name}."):
            continue  # a machine that a test declared for itself
        for field in model._meta.get_fields():
            if isinstance(field, FSMFieldMixin) and list(field.get_all_transitions(model)):
                yield model, field


def edges_of(model: type[models.Model], field: FSMFieldMixin) -> dict[tuple[object, object], list[str]]:
    """{(source, target): commands} of every edge. Where an edge holds for some types only, they are named."""
    edges: dict[tuple[object, object], set[str]] = {}
    for transition in field.get_all_transitions(model):
        for target in _targets(transition):
            if _is_allowed(model, transition.name, transition.source, target):
                edges.setdefault((transition.source, target), set()).add(_label(transition))
    return {ends: sorted(edges[ends]) for ends in sorted(edges, key=lambda ends: (str(ends[0]), str(ends[1])))}


def _targets(transition) -> list[object]:
    target = transition.target
    if hasattr(target, "allowed_states"):  # RETURN_VALUE: the statement chooses among them
        return list(target.allowed_states or [])
    return [transition.source if target is None else target]


def _label(transition) -> str:
    types = sorted(int(each) for each in (transition.custom or {}).get("types", ()))
    return f"{transition.name} ({', '.join(map(str, types))})" if types and len(types) < 5 else transition.name


def _is_allowed(model: type[models.Model], command: str, source: object, target: object) -> bool:
    """A coupon's `reverse` may end in several states; the ledger's own table says from where it may end in which."""
    if model is not UserCoupon:
        return True
    name = {"give_back": "RETURN"}.get(command, command.upper())
    return (name, source, target) in COUPON_EDGES


def draw(model: type[models.Model], field: FSMFieldMixin) -> str:
    """One page: the diagram in mermaid, and the words that the states carry for people."""
    edges = edges_of(model, field)
    labels = {value: str(label) for value, label in (field.choices or [])}
    states = list(labels) or sorted({end for ends in edges for end in ends}, key=str)
    leaving = {source for source, target in edges if source != target}
    arriving = {target for source, target in edges if source != target}
    lines = [
        f"# {model._meta.label}.{field.name}",
        "",
        "<!-- Made by `bin/manage draw_states`; edit the model's transitions, not this page. -->",
        "",
        "```mermaid",
        "stateDiagram-v2",
    ]
    lines += [f"    {_node(state)} : {labels.get(state, state)} ({state})" for state in states]
    start = [state for state in states if state not in arriving and state in leaving]
    default = field.default if field.has_default() and not callable(field.default) else None
    first = default if default in states else (start[0] if start else None)
    if first is not None:
        lines.append(f"    [*] --> {_node(first)}")
    lines += [
        f"    {_node(source)} --> {_node(target)} : {', '.join(commands)}"
        for (source, target), commands in edges.items()
    ]
    lines += [f"    {_node(state)} --> [*]" for state in states if state in arriving and state not in leaving]
    lines += ["```", ""]
    return "\n".join(lines)


def _node(state: object) -> str:
    return f"s{state}" if isinstance(state, int) else str(state).replace("*", "ANY").replace("+", "OTHER")


def pages() -> dict[str, str]:
    """File name → content of every page, the index included."""
    drawn = {}
    index = [
        "# State machines",
        "",
        "<!-- Made by `bin/manage draw_states`. -->",
        "",
        "Every machine of Quits, drawn from the edges declared on its model. A command moves a row along exactly",
        "one edge, in one conditional statement that also writes the evidence and the event.",
        "",
    ]
    for model, field in machines():
        name = (
            f"{model._meta.model_name}.md"
            if field.name in ("status", "state")
            else (f"{model._meta.model_name}_{field.name}.md")
        )
        drawn[name] = draw(model, field)
        index.append(f"- [{model._meta.label}.{field.name}]({name})")
    drawn["README.md"] = "\n".join([*index, ""])
    return drawn
