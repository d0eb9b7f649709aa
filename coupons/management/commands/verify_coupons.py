from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from coupons.verification import count_rows, verify
from merchants.models import Merchant


class Command(BaseCommand):
    help = "Rebuild every coupon from its ledger and compare. Ends with 1 and the first differences when one is found."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--merchant", help="code of one merchant; all without it")

    def handle(self, *args: Any, **options: Any) -> None:
        merchant_id = None
        if options["merchant"]:
            merchant_id = Merchant.objects.values_list("pk", flat=True).filter(code=options["merchant"]).first()
            if merchant_id is None:
                raise CommandError(f"no merchant {options['merchant']}")
        coupons, operations, plain = count_rows(merchant_id=merchant_id)
        self.stdout.write(f"{coupons:,} coupons, {operations:,} operations (a plain count of them: {plain:.2f} s)")
        found, seconds = 0, 0.0
        for check in verify(merchant_id=merchant_id):
            found += check.differences
            seconds += check.seconds
            mark = "ok" if not check.differences else f"{check.differences:,} differences"
            self.stdout.write(f"  {check.name:<42} {mark:>20} {check.seconds:8.2f} s")
            for coupon_id, said in check.first:
                self.stdout.write(f"      {coupon_id}  {said}")
        ratio = seconds / plain if plain else 0.0
        self.stdout.write(f"{found:,} differences in {seconds:.2f} s, {ratio:.1f} × the plain count")
        if found:
            raise CommandError("the coupons contradict their ledger", returncode=1)
