import json
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from kernel import clock
from kernel.errors import Refusal
from merchants.commands.rotate_key import rotate_key


class Command(BaseCommand):
    help = "Issue a new key for a client; older keys end after the overlap. Prints the key once as JSON."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("client_id", type=UUID)
        parser.add_argument("--overlap-seconds", type=int, default=86_400)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            issued = rotate_key(
                client_id=options["client_id"], overlap_seconds=options["overlap_seconds"], now=clock.now()
            )
        except Refusal as refusal:
            raise CommandError(f"{refusal} {refusal.data}") from refusal
        shown = {"client_id": str(issued.client_id), "key_id": issued.key_id, "secret": issued.secret}
        self.stdout.write(json.dumps(shown))
