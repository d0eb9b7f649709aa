"""Reconcile one day: exits with 0 when nothing was found, 1 with findings, 2 when a bill is missing that something of
ours waits for. The bill of an account without any trade of the day is only mentioned."""

from __future__ import annotations

import sys
from datetime import date, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from kernel import clock
from kernel.money import display
from merchants.models import Merchant
from reconciliation.commands.reconcile_day import reconcile_day
from reconciliation.models import Finding, ReconciliationRun
from reconciliation.queries import SECTIONS


class Command(BaseCommand):
    help = "Reconcile a channel day: refunds three ways, payments, coupons four ways, ledgers, messages."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--date", help="the channel's day, YYYY-MM-DD (default: yesterday in Asia/Shanghai)")
        parser.add_argument("--merchant", help="only this merchant's code")

    def handle(self, *args: Any, **options: Any) -> None:
        now = clock.now()
        try:
            day = date.fromisoformat(options["date"]) if options["date"] else None
        except ValueError as error:
            raise CommandError(f"not a date: {options['date']}") from error
        merchant = Merchant.objects.filter(code=options["merchant"]).first() if options["merchant"] else None
        if options["merchant"] and merchant is None:
            raise CommandError(f"no merchant has the code {options['merchant']}")
        result = reconcile_day(
            on_date=day or clock.channel_day(now) - timedelta(days=1),
            merchant_id=merchant.pk if merchant else None,
            now=now,
        )
        run = ReconciliationRun.objects.get(pk=result.run_id)
        for section in SECTIONS:
            for row in run.totals.get(section, []):
                self.stdout.write(_line(section, row))
        self.stdout.write(
            f"{run.on_date}: {run.state}, {run.items} items, {run.matched} matched, {run.timing} timing,"
            f" {result.findings_seen} findings ({result.findings_opened} new)"
        )
        for finding in Finding.objects.filter(sightings__run=run).order_by("severity", "rule", "key"):
            self.stdout.write(f"  {finding.severity} {finding.rule} {finding.key} {finding.state}")
        for bill in result.waiting:
            self.stderr.write(f"  no bill yet: {bill}")
        if result.findings_seen:
            sys.exit(1)
        if any(_waits_for(run, bill) for bill in result.waiting):
            sys.exit(2)


def _waits_for(run: ReconciliationRun, bill: str) -> bool:
    """Whether something of ours on that day needs this bill ("merchant channel kind") to be judged."""
    merchant, channel, _kind = bill.split()
    rows = [row for section in SECTIONS for row in run.totals.get(section, [])]
    return any((row["merchant"], row["channel"]) == (merchant, channel) for row in rows)


def _line(section: str, row: dict[str, Any]) -> str:
    named = (("claims", "after-sales"), ("ours", "ours"), ("theirs", "channel"), ("booked", "journal"))
    sides = [
        " ".join([name, *([str(row[f"{side}_count"])] if row[f"{side}_count"] is not None else []), display(fen)])
        for side, name in named
        if (fen := row.get(f"{side}_fen")) is not None
    ]
    what = " ".join([section, row["merchant"] or "?", row["channel"], *([row["kind"]] if "kind" in row else [])])
    return f"{what}: " + " | ".join(sides)
