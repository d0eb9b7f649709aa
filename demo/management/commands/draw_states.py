"""Draw every state machine into docs/states, or check that the drawings are current."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import translation

from demo.state_diagrams import DIRECTORY, pages


class Command(BaseCommand):
    help = "Draw the state machines as mermaid pages under docs/states."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is stale")

    def handle(self, *args: Any, **options: Any) -> None:
        folder = Path(settings.BASE_DIR) / DIRECTORY
        with translation.override("en"):
            drawn = pages()
        present = {path.name: path.read_text("utf-8") for path in folder.glob("*.md")}
        stale = sorted(name for name in drawn.keys() | present.keys() if drawn.get(name) != present.get(name))
        if options["check"]:
            if stale:
                raise CommandError(f"stale: {', '.join(stale)}. Run bin/manage draw_states")
            return
        folder.mkdir(parents=True, exist_ok=True)
        for name in stale:
            if name in drawn:
                (folder / name).write_text(drawn[name], "utf-8")
            else:
                (folder / name).unlink()
        self.stdout.write(f"{len(drawn) - 1} machines drawn, {len(stale)} pages changed")
