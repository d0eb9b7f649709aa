"""Books that only grow: stock, points, wallets, commission, sales by day, and the journal of money.

Every movement is an entry that is never changed or deleted; a wrong one is answered by an opposite one. Balances are
kept beside the entries or summed from them (journal), and `ledgers/checks.py` proves that both agree.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from kernel import numbers
from kernel.append_only import append_only


class StockItem(models.Model):
    """How many pieces of a SKU a merchant has, by bucket. A SKU without a row is not tracked."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    sku = models.CharField(_("SKU"), max_length=64)
    title = models.CharField(_("title"), max_length=200, blank=True, default="")
    sellable = models.BigIntegerField(_("sellable"), default=0)
    reserved = models.BigIntegerField(_("reserved"), default=0)
    defect = models.BigIntegerField(_("defect"), default=0)
    version = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(_("created"))

    class Meta:
        db_table = "stock_item"
        indexes = [
            models.Index(fields=["sku", "id"], name="stock_item_by_sku"),
        ]
        verbose_name = _("stock item")
        verbose_name_plural = _("stock")
        constraints = [
            models.UniqueConstraint(fields=["merchant", "sku"], name="sku_is_tracked_once"),
            models.CheckConstraint(condition=Q(sellable__gte=0), name="sellable_is_not_negative"),
            models.CheckConstraint(condition=Q(reserved__gte=0), name="reserved_is_not_negative"),
            models.CheckConstraint(condition=Q(defect__gte=0), name="defect_is_not_negative"),
        ]

    def __str__(self) -> str:
        return self.sku


class StockEntry(models.Model):
    """One movement in one bucket."""

    class Bucket(models.TextChoices):
        SELLABLE = "sellable", _("Sellable")
        RESERVED = "reserved", _("Reserved")
        DEFECT = "defect", _("Defect")

    class Kind(models.TextChoices):
        RESERVE = "reserve", _("Reserved")
        RELEASE = "release", _("Released")
        SHIP = "ship", _("Shipped")
        RESTOCK = "restock", _("Restocked")
        ADJUST = "adjust", _("Adjusted")

    id = models.BigAutoField(primary_key=True)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    item = models.ForeignKey(StockItem, models.PROTECT, related_name="entries")
    kind = models.CharField(_("kind"), max_length=16, choices=Kind.choices)
    bucket = models.CharField(_("bucket"), max_length=16, choices=Bucket.choices)
    delta = models.BigIntegerField(_("change"))
    balance_after = models.BigIntegerField(_("balance"))
    business_key = models.CharField(_("business key"), max_length=128)
    reference = models.CharField(_("reference"), max_length=64)
    created_at = models.DateTimeField(_("time"))

    class Meta:
        db_table = "stock_entry"
        verbose_name = _("stock entry")
        verbose_name_plural = _("stock entries")
        constraints = [
            models.UniqueConstraint(fields=["merchant", "business_key", "bucket"], name="stock_movement_happens_once"),
            models.CheckConstraint(condition=~Q(delta=0), name="stock_entry_moves_something"),
            models.CheckConstraint(condition=Q(balance_after__gte=0), name="stock_balance_is_not_negative"),
        ]
        indexes = [
            models.Index(fields=["item", "id"], include=["bucket", "delta"], name="stock_entry_by_item"),
            models.Index(fields=["merchant", "reference"], name="stock_entry_by_reference"),
            models.Index(fields=["-id"], name="stock_entry_newest"),
            models.Index(fields=["kind", "-id"], name="stock_entry_by_kind"),
            models.Index(fields=["bucket", "-id"], name="stock_entry_by_bucket"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.kind} {self.delta:+d} {self.bucket}"


class JournalEntry(models.Model):
    """One posting: at least two lines that sum to zero, checked by the database at commit."""

    class Kind(models.TextChoices):
        PAYMENT = "payment", _("Payment")
        REFUND = "refund", _("Refund")
        TOP_UP = "top_up", _("Wallet top-up")
        CORRECTION = "correction", _("Correction")

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    kind = models.CharField(_("kind"), max_length=16, choices=Kind.choices)
    business_key = models.CharField(_("business key"), max_length=128)
    reference = models.CharField(_("reference"), max_length=64, help_text=_("Payment or refund number."))
    order_no = models.CharField(_("order number"), max_length=32, blank=True, default="")
    posted_at = models.DateTimeField(_("posted"), help_text=_("When the money moved, by the channel's word."))
    created_at = models.DateTimeField(_("created"))

    class Meta:
        db_table = "journal_entry"
        verbose_name = _("journal entry")
        verbose_name_plural = _("journal entries")
        constraints = [
            models.UniqueConstraint(fields=["merchant", "business_key"], name="journal_posts_once"),
        ]
        indexes = [
            models.Index(fields=["merchant", "reference"], name="journal_entry_by_reference"),
            models.Index(fields=["merchant", "order_no"], name="journal_entry_by_order"),
            models.Index(fields=["kind", "posted_at"], name="journal_entry_by_day"),
            models.Index(fields=["-created_at", "-id"], name="journal_entry_newest"),
            models.Index(fields=["kind", "-created_at", "-id"], name="journal_entry_by_kind"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.kind} {self.reference}"


class JournalLine(models.Model):
    """One side of a posting: positive = debit, negative = credit, in fen."""

    id = models.BigAutoField(primary_key=True)
    entry = models.ForeignKey(JournalEntry, models.PROTECT, related_name="lines")
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    account = models.CharField(_("account"), max_length=48)
    amount_fen = models.BigIntegerField(_("amount"))

    class Meta:
        db_table = "journal_line"
        verbose_name = _("journal line")
        verbose_name_plural = _("journal lines")
        constraints = [
            models.UniqueConstraint(fields=["entry", "account"], name="journal_account_once_per_entry"),
            models.CheckConstraint(condition=~Q(amount_fen=0), name="journal_line_is_not_zero"),
        ]
        indexes = [
            models.Index(fields=["merchant", "account"], include=["amount_fen"], name="journal_line_by_account"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.account} {self.amount_fen:+d}"


class PointsAccount(models.Model):
    """A user's points at one merchant. Taking earned points back may lead below zero; spending never does."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    user_id = models.CharField(_("user"), max_length=64)
    balance = models.BigIntegerField(_("balance"), default=0)
    version = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(_("created"))

    class Meta:
        db_table = "points_account"
        verbose_name = _("points account")
        verbose_name_plural = _("points")
        constraints = [
            models.UniqueConstraint(fields=["merchant", "user_id"], name="points_account_is_one_per_user"),
        ]
        indexes = [models.Index(fields=["-created_at", "-id"], name="points_account_newest")]

    def __str__(self) -> str:
        return self.user_id


class PointsEntry(models.Model):
    """One movement of points."""

    class Kind(models.TextChoices):
        SPEND = "spend", _("Spent on an order")
        GIVE_BACK = "give_back", _("Spent points given back")
        EARN = "earn", _("Earned")
        TAKE_BACK = "take_back", _("Earned points taken back")
        ADJUST = "adjust", _("Adjusted")

    id = models.BigAutoField(primary_key=True)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    account = models.ForeignKey(PointsAccount, models.PROTECT, related_name="entries")
    kind = models.CharField(_("kind"), max_length=16, choices=Kind.choices)
    delta = models.BigIntegerField(_("change"))
    balance_after = models.BigIntegerField(_("balance"))
    business_key = models.CharField(_("business key"), max_length=128)
    reference = models.CharField(_("reference"), max_length=64)
    created_at = models.DateTimeField(_("time"))

    class Meta:
        db_table = "points_entry"
        verbose_name = _("points entry")
        verbose_name_plural = _("points entries")
        constraints = [
            models.UniqueConstraint(fields=["merchant", "business_key"], name="points_movement_happens_once"),
            models.CheckConstraint(condition=~Q(delta=0), name="points_entry_moves_something"),
            models.CheckConstraint(
                condition=Q(kind__in=["spend", "take_back"], delta__lt=0)
                | Q(kind__in=["give_back", "earn"], delta__gt=0)
                | Q(kind="adjust"),
                name="points_entry_has_the_sign_of_its_kind",
            ),
            models.CheckConstraint(
                condition=~Q(kind="spend") | Q(balance_after__gte=0), name="points_are_spent_within_the_balance"
            ),
        ]
        indexes = [
            models.Index(fields=["account", "-id"], include=["delta"], name="points_entry_by_account"),
            models.Index(fields=["merchant", "reference"], name="points_entry_by_reference"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.kind} {self.delta:+d}"


class PointsSpent(models.Model):
    """Points spent on one order line, and how many of them went back. Unit j of n is worth C(j) − C(j−1) of them,
    with C(q) = ⌈points·q / n⌉."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    account = models.ForeignKey(PointsAccount, models.PROTECT, related_name="+")
    order_no = models.CharField(_("order number"), max_length=32)
    line_no = models.PositiveIntegerField(_("line"))
    units = models.PositiveIntegerField(_("units"))
    points = models.BigIntegerField(_("points"))
    given_back = models.BigIntegerField(_("given back"), default=0)
    created_at = models.DateTimeField(_("created"))

    class Meta:
        db_table = "points_spent"
        verbose_name = _("points spent on a line")
        verbose_name_plural = _("points spent")
        constraints = [
            models.UniqueConstraint(fields=["merchant", "order_no", "line_no"], name="points_are_spent_once_per_line"),
            models.CheckConstraint(condition=Q(points__gt=0) & Q(units__gt=0), name="points_spent_is_positive"),
            models.CheckConstraint(
                condition=Q(given_back__gte=0) & Q(given_back__lte=models.F("points")),
                name="points_given_back_within_spent",
            ),
        ]


class PointsEarned(models.Model):
    """Points earned by one order line, and how many were taken back: E of the goods money refunded so far."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    account = models.ForeignKey(PointsAccount, models.PROTECT, related_name="+")
    order_no = models.CharField(_("order number"), max_length=32)
    line_no = models.PositiveIntegerField(_("line"))
    base_fen = models.BigIntegerField(_("goods paid"))
    points = models.BigIntegerField(_("points"))
    refunded_fen = models.BigIntegerField(_("goods refunded"), default=0)
    taken_back = models.BigIntegerField(_("taken back"), default=0)
    created_at = models.DateTimeField(_("created"))

    class Meta:
        db_table = "points_earned"
        verbose_name = _("points earned by a line")
        verbose_name_plural = _("points earned")
        constraints = [
            models.UniqueConstraint(fields=["merchant", "order_no", "line_no"], name="points_are_earned_once_per_line"),
            models.CheckConstraint(condition=Q(points__gte=0) & Q(base_fen__gte=0), name="points_earned_not_negative"),
            models.CheckConstraint(
                condition=Q(refunded_fen__gte=0)
                & Q(refunded_fen__lte=models.F("base_fen"))
                & Q(taken_back__gte=0)
                & Q(taken_back__lte=models.F("points")),
                name="points_taken_back_within_earned",
            ),
        ]


class WalletAccount(models.Model):
    """A user's money at one merchant. It is never below zero: a wallet gives no credit."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    user_id = models.CharField(_("user"), max_length=64)
    balance_fen = models.BigIntegerField(_("balance"), default=0)
    version = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(_("created"))

    class Meta:
        db_table = "wallet_account"
        verbose_name = _("wallet")
        verbose_name_plural = _("wallets")
        constraints = [
            models.UniqueConstraint(fields=["merchant", "user_id"], name="wallet_is_one_per_user"),
            models.CheckConstraint(condition=Q(balance_fen__gte=0), name="wallet_is_not_overdrawn"),
        ]
        indexes = [models.Index(fields=["-created_at", "-id"], name="wallet_newest")]

    def __str__(self) -> str:
        return self.user_id


class WalletEntry(models.Model):
    """One movement of a wallet. `reference` is the payment's, the refund's or the top-up's number."""

    class Kind(models.TextChoices):
        TOP_UP = "top_up", _("Topped up")
        CHARGE = "charge", _("Paid with")
        CREDIT = "credit", _("Refunded to the wallet")

    id = models.BigAutoField(primary_key=True)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    account = models.ForeignKey(WalletAccount, models.PROTECT, related_name="entries")
    kind = models.CharField(_("kind"), max_length=16, choices=Kind.choices)
    delta_fen = models.BigIntegerField(_("change"))
    balance_after_fen = models.BigIntegerField(_("balance"))
    reference = models.CharField(_("reference"), max_length=64)
    charge_no = models.CharField(
        _("payment number"), max_length=64, blank=True, default="", help_text=_("Of a refund: what was paid.")
    )
    note = models.CharField(_("note"), max_length=200, blank=True, default="")
    entered_by = models.CharField(_("entered by"), max_length=150, blank=True, default="")
    created_at = models.DateTimeField(_("time"))

    class Meta:
        db_table = "wallet_entry"
        verbose_name = _("wallet entry")
        verbose_name_plural = _("wallet entries")
        constraints = [
            models.UniqueConstraint(fields=["merchant", "kind", "reference"], name="wallet_movement_happens_once"),
            models.CheckConstraint(
                condition=Q(kind="charge", delta_fen__lt=0) | Q(kind__in=["top_up", "credit"], delta_fen__gt=0),
                name="wallet_entry_has_the_sign_of_its_kind",
            ),
            models.CheckConstraint(condition=Q(balance_after_fen__gte=0), name="wallet_entry_is_not_overdrawn"),
            models.CheckConstraint(
                condition=Q(kind="credit") & ~Q(charge_no="") | ~Q(kind="credit") & Q(charge_no=""),
                name="wallet_credit_names_its_charge",
            ),
        ]
        indexes = [
            models.Index(fields=["account", "-id"], include=["delta_fen"], name="wallet_entry_by_account"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.kind} {self.delta_fen:+d}"


class WalletCharge(models.Model):
    """What became of a payment number at the wallet: paid, or closed for ever. One row per number, so it is never
    both; and never more goes back to a charge than it took."""

    class Outcome(models.TextChoices):
        PAID = "PAID", _("Paid")
        CLOSED = "CLOSED", _("Closed")

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    number = models.CharField(_("payment number"), max_length=64)
    outcome = models.CharField(_("outcome"), max_length=8, choices=Outcome.choices)
    account = models.ForeignKey(WalletAccount, models.PROTECT, null=True, related_name="charges")
    amount_fen = models.BigIntegerField(_("amount"), default=0)
    refunded_fen = models.BigIntegerField(_("refunded"), default=0)
    created_at = models.DateTimeField(_("time"))

    class Meta:
        db_table = "wallet_charge"
        verbose_name = _("wallet charge")
        verbose_name_plural = _("wallet charges")
        constraints = [
            models.UniqueConstraint(fields=["merchant", "number"], name="wallet_charge_is_decided_once"),
            models.CheckConstraint(
                condition=Q(outcome="PAID", account__isnull=False, amount_fen__gt=0)
                | Q(outcome="CLOSED", account__isnull=True, amount_fen=0),
                name="wallet_charge_paid_has_account_and_amount",
            ),
            models.CheckConstraint(
                condition=Q(refunded_fen__gte=0) & Q(refunded_fen__lte=models.F("amount_fen")),
                name="wallet_refunds_within_charge",
            ),
        ]
        triggers = append_only(may_change=["refunded_fen"])

    def __str__(self) -> str:
        return f"{self.number} {self.outcome}"


class CommissionAccount(models.Model):
    """What a beneficiary has at one merchant, by bucket. Only `withdrawable` may be below zero: a debt that later
    commissions offset, which no person is ever asked to pay."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    beneficiary = models.CharField(_("beneficiary"), max_length=64)
    pending_fen = models.BigIntegerField(_("pending"), default=0)
    withdrawable_fen = models.BigIntegerField(_("withdrawable"), default=0)
    frozen_fen = models.BigIntegerField(_("frozen"), default=0)
    withdrawn_fen = models.BigIntegerField(_("withdrawn"), default=0)
    version = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(_("created"))

    class Meta:
        db_table = "commission_account"
        verbose_name = _("commission account")
        verbose_name_plural = _("commission accounts")
        constraints = [
            models.UniqueConstraint(fields=["merchant", "beneficiary"], name="commission_account_is_one_each"),
            models.CheckConstraint(condition=Q(pending_fen__gte=0), name="commission_pending_is_not_negative"),
            models.CheckConstraint(condition=Q(frozen_fen__gte=0), name="commission_frozen_is_not_negative"),
            models.CheckConstraint(condition=Q(withdrawn_fen__gte=0), name="commission_withdrawn_is_not_negative"),
        ]
        indexes = [models.Index(fields=["-created_at", "-id"], name="commission_account_newest")]

    def __str__(self) -> str:
        return self.beneficiary


class Commission(models.Model):
    """What one order line earns one beneficiary at one level; reversed is E of the goods money refunded so far."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    account = models.ForeignKey(CommissionAccount, models.PROTECT, related_name="commissions")
    order_no = models.CharField(_("order number"), max_length=32)
    line_no = models.PositiveIntegerField(_("line"))
    level = models.PositiveSmallIntegerField(_("level"))
    base_fen = models.BigIntegerField(_("goods paid"))
    amount_fen = models.BigIntegerField(_("commission"))
    refunded_fen = models.BigIntegerField(_("goods refunded"), default=0)
    reversed_fen = models.BigIntegerField(_("reversed"), default=0)
    hold_until = models.DateTimeField(_("held until"))
    matured_at = models.DateTimeField(_("withdrawable since"), null=True)
    created_at = models.DateTimeField(_("created"))

    class Meta:
        db_table = "commission"
        verbose_name = _("commission")
        verbose_name_plural = _("commissions")
        constraints = [
            models.UniqueConstraint(
                fields=["merchant", "order_no", "line_no", "account", "level"], name="commission_is_earned_once"
            ),
            models.CheckConstraint(
                condition=Q(amount_fen__gte=0) & Q(amount_fen__lte=models.F("base_fen")),
                name="commission_within_goods_paid",
            ),
            models.CheckConstraint(
                condition=Q(refunded_fen__gte=0)
                & Q(refunded_fen__lte=models.F("base_fen"))
                & Q(reversed_fen__gte=0)
                & Q(reversed_fen__lte=models.F("amount_fen")),
                name="commission_reversed_within_earned",
            ),
        ]
        indexes = [
            models.Index(fields=["hold_until"], condition=Q(matured_at__isnull=True), name="commission_to_mature"),
            models.Index(fields=["account", "-id"], name="commission_by_account"),
        ]

    def __str__(self) -> str:
        return f"{self.order_no} {self.line_no} {self.level}"


class CommissionShare(models.Model):
    """Who will earn from an order line, and what part of its net goods, told before the order completes. Only grows."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    order_no = models.CharField(_("order number"), max_length=32)
    line_no = models.PositiveIntegerField(_("line"))
    level = models.PositiveSmallIntegerField(_("level"))
    beneficiary = models.CharField(_("beneficiary"), max_length=64)
    rate_bp = models.PositiveIntegerField(_("rate (basis points)"))
    created_at = models.DateTimeField(_("created"))

    class Meta:
        db_table = "commission_share"
        verbose_name = _("commission share")
        verbose_name_plural = _("commission shares")
        constraints = [
            models.UniqueConstraint(
                fields=["merchant", "order_no", "line_no", "level"], name="one_beneficiary_per_line_and_level"
            ),
            models.CheckConstraint(
                condition=Q(rate_bp__range=(1, 10_000)), name="commission_rate_is_part_of_the_goods"
            ),
            models.CheckConstraint(condition=Q(level__range=(1, 9)), name="commission_level_is_1_to_9"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.order_no} {self.line_no} {self.level}"


class CommissionHold(models.Model):
    """An open after-sales order on a commission: it does not mature meanwhile, and what had matured is frozen."""

    class Outcome(models.TextChoices):
        OPEN = "open", _("Open")
        SETTLED = "settled", _("Settled")
        RELEASED = "released", _("Released")

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    commission = models.ForeignKey(Commission, models.PROTECT, related_name="holds")
    after_sales_no = models.CharField(_("after-sales number"), max_length=32)
    frozen_fen = models.BigIntegerField(_("frozen"), default=0)
    outcome = models.CharField(_("outcome"), max_length=16, choices=Outcome.choices, default=Outcome.OPEN)
    created_at = models.DateTimeField(_("created"))
    ended_at = models.DateTimeField(_("ended"), null=True)

    class Meta:
        db_table = "commission_hold"
        verbose_name = _("commission hold")
        verbose_name_plural = _("commission holds")
        constraints = [
            models.UniqueConstraint(fields=["commission", "after_sales_no"], name="commission_is_held_once_per_claim"),
            models.CheckConstraint(condition=Q(frozen_fen__gte=0), name="commission_hold_is_not_negative"),
            models.CheckConstraint(
                condition=Q(outcome="open", ended_at__isnull=True) | (~Q(outcome="open") & Q(ended_at__isnull=False)),
                name="commission_hold_ended_has_time",
            ),
        ]
        indexes = [
            models.Index(fields=["commission"], condition=Q(outcome="open"), name="commission_hold_open"),
            models.Index(fields=["merchant", "after_sales_no"], name="commission_hold_by_claim"),
        ]


class CommissionEntry(models.Model):
    """One movement in one bucket of a commission account."""

    class Bucket(models.TextChoices):
        PENDING = "pending", _("Pending")
        WITHDRAWABLE = "withdrawable", _("Withdrawable")
        FROZEN = "frozen", _("Frozen")
        WITHDRAWN = "withdrawn", _("Withdrawn")

    class Kind(models.TextChoices):
        ACCRUE = "accrue", _("Earned")
        MATURE = "mature", _("Became withdrawable")
        FREEZE = "freeze", _("Frozen by a claim")
        RELEASE = "release", _("Released")
        REVERSE = "reverse", _("Reversed by a refund")
        WITHDRAW = "withdraw", _("Withdrawn")

    id = models.BigAutoField(primary_key=True)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    account = models.ForeignKey(CommissionAccount, models.PROTECT, related_name="entries")
    commission = models.ForeignKey(Commission, models.PROTECT, null=True, related_name="entries")
    kind = models.CharField(_("kind"), max_length=16, choices=Kind.choices)
    bucket = models.CharField(_("bucket"), max_length=16, choices=Bucket.choices)
    delta_fen = models.BigIntegerField(_("change"))
    balance_after_fen = models.BigIntegerField(_("balance"))
    business_key = models.CharField(_("business key"), max_length=160)
    reference = models.CharField(_("reference"), max_length=64)
    created_at = models.DateTimeField(_("time"))

    class Meta:
        db_table = "commission_entry"
        verbose_name = _("commission entry")
        verbose_name_plural = _("commission entries")
        constraints = [
            models.UniqueConstraint(
                fields=["merchant", "business_key", "bucket"], name="commission_movement_happens_once"
            ),
            models.CheckConstraint(condition=~Q(delta_fen=0), name="commission_entry_moves_something"),
            models.CheckConstraint(
                condition=~Q(kind="withdraw", bucket="withdrawable") | Q(balance_after_fen__gte=0),
                name="commission_is_withdrawn_within_balance",
            ),
        ]
        indexes = [
            models.Index(
                fields=["account", "-id"], include=["bucket", "delta_fen"], name="commission_entry_by_account"
            ),
            models.Index(fields=["merchant", "reference"], name="commission_entry_by_reference"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.kind} {self.delta_fen:+d} {self.bucket}"


class SalesDay(models.Model):
    """What one SKU sold and took back on one day of the merchant's own calendar."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    on_date = models.DateField(_("day"))
    sku = models.CharField(_("SKU"), max_length=64)
    sold_qty = models.BigIntegerField(_("sold"), default=0)
    sold_fen = models.BigIntegerField(_("sales"), default=0)
    returned_qty = models.BigIntegerField(_("taken back"), default=0)
    returned_fen = models.BigIntegerField(_("refunds"), default=0)

    class Meta:
        db_table = "sales_day"
        verbose_name = _("sales of a day")
        verbose_name_plural = _("sales by day")
        constraints = [
            models.UniqueConstraint(fields=["merchant", "on_date", "sku"], name="sales_day_is_one_row_per_sku"),
            models.CheckConstraint(
                condition=Q(sold_qty__gte=0, sold_fen__gte=0, returned_qty__gte=0, returned_fen__gte=0),
                name="sales_figures_are_not_negative",
            ),
        ]
        indexes = [models.Index(fields=["-on_date", "sku"], name="sales_day_newest")]

    def __str__(self) -> str:
        return f"{self.on_date} {self.sku}"


class SalesEntry(models.Model):
    """One sale or return, counted on the day it happened."""

    class Kind(models.TextChoices):
        SALE = "sale", _("Sale")
        RETURN = "return", _("Return")

    id = models.BigAutoField(primary_key=True)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    kind = models.CharField(_("kind"), max_length=16, choices=Kind.choices)
    on_date = models.DateField(_("day"))
    sku = models.CharField(_("SKU"), max_length=64)
    qty = models.BigIntegerField(_("pieces"))
    amount_fen = models.BigIntegerField(_("amount"))
    business_key = models.CharField(_("business key"), max_length=128)
    reference = models.CharField(_("reference"), max_length=64)
    created_at = models.DateTimeField(_("time"))

    class Meta:
        db_table = "sales_entry"
        verbose_name = _("sales entry")
        verbose_name_plural = _("sales entries")
        constraints = [
            models.UniqueConstraint(fields=["merchant", "business_key"], name="sale_is_counted_once"),
            models.CheckConstraint(condition=Q(qty__gte=0) & Q(amount_fen__gte=0), name="sales_entry_not_negative"),
        ]
        indexes = [
            models.Index(
                fields=["merchant", "on_date", "sku"],
                include=["kind", "qty", "amount_fen"],
                name="sales_entry_by_day",
            ),
            models.Index(fields=["merchant", "reference"], name="sales_entry_by_reference"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.kind} {self.sku} × {self.qty}"
