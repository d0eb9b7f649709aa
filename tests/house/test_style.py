"""House rules that no linter knows: keyword-only commands that are told the time, short functions, no plumbing."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
APPS = [
    "kernel",
    "merchants",
    "payments",
    "ledgers",
    "coupons",
    "orders",
    "aftersales",
    "reconciliation",
    "demo",
    "config",
]
FORBIDDEN_NAMES = {"utils.py", "helpers.py", "common.py", "services.py", "misc.py", "signals.py"}
LONGEST_FUNCTION = 80


def modules() -> list[Path]:
    return [path for app in APPS for path in sorted((ROOT / app).rglob("*.py")) if "migrations" not in path.parts]


def command_files() -> list[Path]:
    """One verb per file; `_name.py` holds what several commands of the room share."""
    return [
        path
        for path in modules()
        if path.parent.name == "commands" and "management" not in path.parts and not path.name.startswith("_")
    ]


def test_no_room_is_named_after_nothing() -> None:
    assert not [path for path in modules() if path.name in FORBIDDEN_NAMES]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_are_short(path: Path) -> None:
    tree = ast.parse(path.read_text())
    long = [
        (node.name, node.end_lineno - node.lineno + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno
        and node.end_lineno - node.lineno + 1 > LONGEST_FUNCTION
    ]
    assert not long


@pytest.mark.parametrize("path", command_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_command_takes_keywords_is_documented_and_never_reads_the_clock(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == path.stem:
            assert ast.get_docstring(node), f"{node.name} has no docstring"
            assert not node.args.args, f"{node.name} takes positional arguments"
            break
    else:
        pytest.fail(f"{path.name} defines no command {path.stem}")
    calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    clocks = {"clock.now", "timezone.now", "datetime.now", "datetime.utcnow", "time.time", "date.today"}
    assert not clocks & set(calls)
