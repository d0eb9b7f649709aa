"""A gate for releases and deployments: exits non-zero while a P0 or P1 finding is not finished."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand

from reconciliation.queries import get_unfinished, get_unfinished_counts

SHOWN = 20


class Command(BaseCommand):
    help = "Print how many P0 and P1 findings are not finished, and the first of them; exit 1 if there is any."

    def handle(self, *args: Any, **options: Any) -> None:
        counts = get_unfinished_counts()
        self.stdout.write(f"P0 {counts['P0']}")
        self.stdout.write(f"P1 {counts['P1']}")
        for finding in get_unfinished(severities=("P0", "P1"), limit=SHOWN):
            self.stdout.write(f"{finding.severity} {finding.rule} {finding.key} {finding.state}")
        if counts["P0"] or counts["P1"]:
            sys.exit(1)
