"""A step of the quality gate: the drawings of the state machines are current."""

from __future__ import annotations

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = "Fail when a page under docs/states differs from the code."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("draw_states", check=True, stdout=self.stdout)
