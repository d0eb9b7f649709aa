"""Books that only grow: stock by bucket, and the journal of money.

Every movement is an entry that is never changed or deleted; a wrong one is answered by an opposite one. Balances are
kept beside the entries (stock) or summed from them (journal), and `ledgers/checks.py` proves that both agree.
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
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.kind} {self.delta:+d} {self.bucket}"


class JournalEntry(models.Model):
    """One posting: at least two lines that sum to zero, checked by the database at commit."""

    class Kind(models.TextChoices):
        PAYMENT = "payment", _("Payment")
        REFUND = "refund", _("Refund")
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
