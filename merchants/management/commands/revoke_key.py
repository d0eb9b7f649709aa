from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from kernel import clock
from kernel.errors import Refusal
from merchants.commands.revoke_key import revoke_key


class Command(BaseCommand):
    help = "Revoke an API key at once, everywhere."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("key_id")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            revoked = revoke_key(key_id=options["key_id"], now=clock.now())
        except Refusal as refusal:
            raise CommandError(f"{refusal} {refusal.data}") from refusal
        self.stdout.write(f"{revoked.key_id} revoked at {revoked.revoked_at.isoformat()}")
