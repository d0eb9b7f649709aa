"""`manage.py callback_matrix [--write]`: the callback matrix as a table, on the screen or into the documentation."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from orders import matrix_page


class Command(BaseCommand):
    help = "Print what a payment callback does in every case, or write it to docs/payment-callbacks.md."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--write", action="store_true", help="write docs/payment-callbacks.md")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["write"]:
            path = Path(settings.BASE_DIR) / matrix_page.PATH
            path.write_text(matrix_page.page(), encoding="utf-8")
            self.stdout.write(f"{path}: {matrix_page.summary()}")
        else:
            self.stdout.write(matrix_page.page())
