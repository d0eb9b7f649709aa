"""Only `commands/` writes: the admin, the API, queries and tasks call them. Kept by reading the code itself."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
APPS = ["merchants", "payments", "ledgers", "coupons", "orders", "aftersales", "reconciliation", "demo"]
MANAGER_WRITES = {
    "create",
    "bulk_create",
    "bulk_update",
    "get_or_create",
    "update_or_create",
    "update",
    "delete",
    "acreate",
    "aupdate",
    "adelete",
}
WRITING_SQL = re.compile(r"^\s*(WITH\b.*\b)?(INSERT\s+INTO|UPDATE|DELETE\s+FROM|TRUNCATE)\b", re.I | re.S)
QUERYSET = {"objects", "filter", "exclude", "all", "order_by", "select_for_update"}


def modules() -> list[Path]:
    return [
        path
        for app in APPS
        for path in sorted((ROOT / app).rglob("*.py"))
        if not {"commands", "migrations", "simulator"} & set(path.relative_to(ROOT).parts[:-1])
        or "management" in path.parts
    ]


def names_in_chain(node: ast.expr) -> set[str]:
    """The attribute names of `a.b.c(…).d`, from the right to the left."""
    found: set[str] = set()
    while True:
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return found


def writes(tree: ast.Module) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
            continue
        if isinstance(node.func, ast.Name):
            if node.func.id == "advance":
                found.append((node.lineno, "advance"))
            continue
        name, chain = node.func.attr, names_in_chain(node.func.value)
        if (name in MANAGER_WRITES and chain & QUERYSET) or (name == "save" and not node.args):
            found.append((node.lineno, name))
        statement = node.args[0] if name == "execute" and node.args else None
        if isinstance(statement, ast.Constant) and WRITING_SQL.match(str(statement.value)):
            found.append((node.lineno, "SQL"))
    return found


def test_there_is_something_to_read() -> None:
    assert len(modules()) > 20


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_outside_commands_writes(path: Path) -> None:
    found = writes(ast.parse(path.read_text()))
    assert not found, f"{path.relative_to(ROOT)} writes outside commands/: {found}"


def test_the_check_can_fail() -> None:
    for line in (
        "Order.objects.filter(id=1).update(status=2)",
        "Order.objects.create(id=1)",
        "order.save()",
        "advance(PAY, pk=1, params={})",
        "cursor.execute('UPDATE orders SET status = 1')",
    ):
        assert writes(ast.parse(line)), line
    for line in ("seen.update({1})", "digest.update(b'x')", "cursor.execute('SELECT 1')"):
        assert not writes(ast.parse(line)), line
