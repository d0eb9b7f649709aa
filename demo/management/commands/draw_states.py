"""Draw every state machine into docs/states and list the rules in docs/rules.md, or check that they are current."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import translation

from demo.rule_table import rule_table
from demo.state_diagrams import DIRECTORY, pages


class Command(BaseCommand):
    help = "Draw the state machines as mermaid pages under docs/states."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is stale")

    def handle(self, *args: Any, **options: Any) -> None:
        docs = Path(settings.BASE_DIR) / "docs"
        with translation.override("en"):
            drawn = {DIRECTORY / name: text for name, text in pages().items()}
            drawn[Path("docs") / "rules.md"] = rule_table()
        root = docs.parent
        present = {path.relative_to(root): path.read_text("utf-8") for path in (root / DIRECTORY).glob("*.md")}
        if (docs / "rules.md").exists():
            present[Path("docs") / "rules.md"] = (docs / "rules.md").read_text("utf-8")
        stale = sorted(path for path in drawn.keys() | present.keys() if drawn.get(path) != present.get(path))
        if options["check"]:
            if stale:
                raise CommandError(f"stale: {', '.join(map(str, stale))}. Run bin/manage draw_states")
            return
        (root / DIRECTORY).mkdir(parents=True, exist_ok=True)
        for path in stale:
            if path in drawn:
                (root / path).write_text(drawn[path], "utf-8")
            else:
                (root / path).unlink()
        self.stdout.write(f"{len(drawn) - 2} machines drawn, {len(stale)} pages changed")
