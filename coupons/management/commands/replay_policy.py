from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from coupons.models import ReturnPolicy
from coupons.policy_replay import replay_policy


class Command(BaseCommand):
    help = "Show which past return decisions a version of a return policy would have made otherwise. Changes nothing."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("merchant", help="code of the merchant")
        parser.add_argument("policy", help="code of the policy")
        parser.add_argument("--policy-version", type=int, help="the newest one, draft or not, unless given")

    def handle(self, *args: Any, **options: Any) -> None:
        versions = ReturnPolicy.objects.filter(merchant__code=options["merchant"], code=options["policy"])
        if options["policy_version"]:
            versions = versions.filter(version=options["policy_version"])
        policy = versions.select_related("merchant").order_by("-version").first()
        if policy is None:
            raise CommandError("no such policy version")
        replayed = replay_policy(policy)
        state = "published" if policy.published_at else "draft"
        self.stdout.write(f"{policy} ({state}) over {replayed.looked_at:,} decisions of {policy.merchant.code}")
        self.stdout.write(f"{'then':<8} {'now':<8} {'count':>10}  reasons")
        for change in replayed.changes:
            self.stdout.write(f"{change.then:<8} {change.now:<8} {change.count:>10,}  {', '.join(change.reasons)}")
            self.stdout.write(f"{'':28}e.g. {', '.join(change.order_nos[:5])}")
        self.stdout.write(f"{replayed.changed:,} would change, {replayed.unchanged:,} would stay")
