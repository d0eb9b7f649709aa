import getpass
import os
import secrets
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from kernel import clock
from kernel.errors import Refusal
from merchants.commands.create_staff import create_staff
from merchants.models import Merchant
from merchants.roles import Role


class Command(BaseCommand):
    help = "Create a login of the back office. The password is read from QUITS_STAFF_PASSWORD, asked, or made up."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("role", choices=Role.values)
        parser.add_argument("--merchant", help="the merchant's code, for merchant roles")
        parser.add_argument("--generate", action="store_true", help="make up a first password and print it")

    def handle(self, *args: Any, **options: Any) -> None:
        merchant = None
        if options["merchant"]:
            merchant = Merchant.objects.filter(code=options["merchant"]).first()
            if merchant is None:
                raise CommandError(f"no merchant has the code {options['merchant']}")
        password = os.environ.get("QUITS_STAFF_PASSWORD", "")
        if options["generate"]:
            password = secrets.token_urlsafe(12)
        elif not password:
            password = getpass.getpass("First password: ")
        try:
            made = create_staff(
                username=options["username"],
                password=password,
                role=options["role"],
                merchant_id=merchant.pk if merchant else None,
                now=clock.now(),
            )
        except Refusal as refusal:
            raise CommandError(f"{refusal} {refusal.data}") from refusal
        shown = f" first password: {password}" if options["generate"] else ""
        self.stdout.write(f"{made.username} may log in.{shown}")
