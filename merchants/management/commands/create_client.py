import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from kernel import clock
from kernel.errors import Refusal
from merchants.commands.create_client import create_client
from merchants.models import Merchant, Scope


class Command(BaseCommand):
    help = "Create an API client of a merchant; prints its key once as JSON."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("merchant", help="the merchant's code")
        parser.add_argument("name", help="what the client is, for example mini-program")
        parser.add_argument("--scopes", default=",".join(Scope.values), help="comma-separated")
        parser.add_argument("--requests-per-minute", type=int, default=30_000)

    def handle(self, *args: Any, **options: Any) -> None:
        merchant = Merchant.objects.filter(code=options["merchant"]).first()
        if merchant is None:
            raise CommandError(f"no merchant has the code {options['merchant']}")
        try:
            issued = create_client(
                merchant_id=merchant.pk,
                name=options["name"],
                scopes=[scope for scope in options["scopes"].split(",") if scope],
                requests_per_minute=options["requests_per_minute"],
                now=clock.now(),
            )
        except Refusal as refusal:
            raise CommandError(f"{refusal} {refusal.data}") from refusal
        shown = {"client_id": str(issued.client_id), "key_id": issued.key_id, "secret": issued.secret}
        self.stdout.write(json.dumps(shown))
