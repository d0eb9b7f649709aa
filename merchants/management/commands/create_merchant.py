from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from kernel import clock
from kernel.errors import Refusal
from merchants.commands.create_merchant import create_merchant


class Command(BaseCommand):
    help = "Create a merchant."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("code", help="short name: lower-case letters, digits, hyphens")
        parser.add_argument("name", help="the shop's name as people read it")
        parser.add_argument("--timezone", default="Asia/Shanghai")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            made = create_merchant(
                code=options["code"], name=options["name"], timezone=options["timezone"], now=clock.now()
            )
        except Refusal as refusal:
            raise CommandError(f"{refusal} {refusal.data}") from refusal
        self.stdout.write(f"merchant {made.code} {made.merchant_id}")
