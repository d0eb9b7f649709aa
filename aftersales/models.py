"""The after-sales order and its evidence.

The status graph is declared here by django-fsm with empty bodies: ``kernel.statemachine.advance`` looks an edge up and
moves the row in one conditional statement.  An edge holds only for the types named beside it; the same table stands
in the database as a CHECK on the log, and a row cannot move without its log line.
"""

from collections.abc import Callable
from typing import Any

import pgtrigger
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _
from django_fsm import FSMField, transition

from kernel import numbers
from kernel.append_only import append_only


class Type(models.IntegerChoices):
    REFUND_ONLY = 1, _("Refund only")
    RETURN = 2, _("Return and refund")
    EXCHANGE = 3, _("Exchange")
    RESHIP = 4, _("Reship")
    PRICE_PROTECTION = 5, _("Price protection")


class Status(models.TextChoices):
    WAIT_AUDIT = "WAIT_AUDIT", _("Waiting for audit")
    WAIT_BUYER_RETURN = "WAIT_BUYER_RETURN", _("Waiting for the buyer's parcel")
    WAIT_MERCHANT_RECEIVE = "WAIT_MERCHANT_RECEIVE", _("Waiting for receipt and inspection")
    WAIT_BUYER_PAY = "WAIT_BUYER_PAY", _("Waiting for the buyer's supplement")
    WAIT_MERCHANT_SHIP = "WAIT_MERCHANT_SHIP", _("Waiting for the merchant's parcel")
    WAIT_BUYER_CONFIRM = "WAIT_BUYER_CONFIRM", _("Waiting for the buyer's confirmation")
    REFUNDING = "REFUNDING", _("Refunding")
    REFUND_FAILED = "REFUND_FAILED", _("Refund failed")
    REFUND_SUCCESS = "REFUND_SUCCESS", _("Refunded")
    COMPLETED = "COMPLETED", _("Completed")
    REJECTED = "REJECTED", _("Rejected")
    CANCELED = "CANCELED", _("Canceled")

    @classmethod
    def final(cls) -> tuple["Status", ...]:
        return (cls.REFUND_SUCCESS, cls.COMPLETED, cls.REJECTED, cls.CANCELED)


FINAL = Status.final()


class Liability(models.TextChoices):
    BUYER = "buyer", _("Buyer")
    MERCHANT = "merchant", _("Merchant")


class Hold(models.TextChoices):
    """What a claim does to an ordinal.

    CONSUMES: the unit is given back for good while the claim is live. DEDUCTS: the unit stays, but is worth less by
    the amount paid (price protection, compensation). BORROWS: the unit is being replaced, and free again afterwards.
    TOPS_UP: pays more for a unit that was given back already (arbitration, the difference of an exchange).
    """

    CONSUMES = "consumes", _("Gives the unit back")
    DEDUCTS = "deducts", _("Keeps the unit, worth less")
    BORROWS = "borrows", _("Replaced, then free again")
    TOPS_UP = "tops_up", _("Pays more for a unit given back")


class GoodsState(models.TextChoices):
    """Where the units were when the claim was made."""

    UNSHIPPED = "unshipped", _("Not shipped")
    IN_TRANSIT = "in_transit", _("On the way")
    SIGNED = "signed", _("Signed for")


class Disposition(models.TextChoices):
    """What inspection made of a returned unit; in the order in which ordinals are handed out."""

    SELLABLE = "sellable", _("Sellable")
    DEFECT = "defect", _("Defective")
    MISSING = "missing", _("Not in the parcel")


class RefundChannel(models.TextChoices):
    ORIGINAL = "original", _("The way it was paid")
    BALANCE = "balance", _("Balance")
    OFFLINE = "offline", _("Offline, with voucher")


class Actor(models.TextChoices):
    BUYER = "buyer", _("Buyer")
    MERCHANT = "merchant", _("Merchant")
    PLATFORM = "platform", _("Platform")
    SYSTEM = "system", _("System")
    CHANNEL = "channel", _("Payment channel")


REFUNDABLE = (Type.REFUND_ONLY, Type.RETURN, Type.EXCHANGE, Type.PRICE_PROTECTION)
RETURNING = (Type.RETURN, Type.EXCHANGE)
SHIPPING = (Type.EXCHANGE, Type.RESHIP)


def edge(*types: Type, source: Status | list[Status], target: Status) -> Callable[..., Any]:
    """An FSM edge that holds for these types only."""
    return transition(field="status", source=source, target=target, custom={"types": types or tuple(Type)})


class AfterSalesOrder(models.Model):
    """One order line, a quantity of it, one wish. Money in fen, frozen per ordinal when the claim was made."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", on_delete=models.PROTECT, related_name="+")
    after_sales_no = models.CharField(_("after-sales no."), max_length=20)
    order = models.ForeignKey("orders.Order", on_delete=models.PROTECT, related_name="after_sales")
    order_no = models.CharField(_("order no."), max_length=20)
    line = models.ForeignKey("orders.OrderLine", on_delete=models.PROTECT, related_name="after_sales")
    line_no = models.PositiveIntegerField(_("line"))
    user_id = models.CharField(_("user"), max_length=64)
    batch_id = models.UUIDField(help_text="the application that made this and its sisters in one transaction")
    origin = models.CharField(max_length=16, default="buyer", help_text="buyer, system, arbitration or exchange")
    parent = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="linked")

    type = models.PositiveSmallIntegerField(_("type"), choices=Type.choices)
    hold = models.CharField(_("effect on the units"), max_length=16, choices=Hold.choices)
    goods_state = models.CharField(_("goods"), max_length=16, choices=GoodsState.choices)
    qty = models.PositiveIntegerField(_("quantity"))
    accepted_qty = models.PositiveIntegerField(_("accepted quantity"), null=True)
    reason_code = models.CharField(_("reason"), max_length=32)
    description = models.TextField(_("description"), blank=True, default="")
    device_hash = models.CharField(max_length=64, blank=True, default="")
    liability_proposed = models.CharField(max_length=16, choices=Liability.choices)
    liability = models.CharField(_("liability"), max_length=16, choices=Liability.choices, blank=True, default="")
    liability_reason = models.CharField(max_length=200, blank=True, default="")

    status = FSMField(_("status"), max_length=24, choices=Status.choices, default=Status.WAIT_AUDIT)
    version = models.PositiveIntegerField(default=1)
    applied_goods_fen = models.BigIntegerField(_("applied for goods"))
    applied_freight_fen = models.BigIntegerField(_("applied for freight"))
    entitled_goods_fen = models.BigIntegerField(_("goods entitlement"))
    entitled_freight_fen = models.BigIntegerField(
        _("freight entitlement"), help_text="what the units' freight is worth, refundable or not"
    )
    approved_goods_fen = models.BigIntegerField(_("approved for goods"), null=True)
    approved_freight_fen = models.BigIntegerField(_("approved for freight"), null=True)
    reduction_reason = models.CharField(_("why the amount was lowered"), max_length=200, blank=True, default="")
    rejection_asked_by = models.CharField(max_length=64, blank=True, default="")
    rejection_reason = models.CharField(max_length=400, blank=True, default="")
    refund_channel = models.CharField(
        _("refund channel"), max_length=16, choices=RefundChannel.choices, default=RefundChannel.ORIGINAL
    )
    algorithm = models.CharField(max_length=32)
    terms_version = models.CharField(max_length=32, blank=True, default="")

    due_at = models.DateTimeField(_("deadline"), null=True)
    due_left_seconds = models.PositiveIntegerField(null=True, help_text="what was left when the clock was stopped")
    timer_not_before = models.DateTimeField(null=True, help_text="a timer has taken the row until then")
    held_for_review = models.BooleanField(default=False, help_text="a risk rule keeps timers and auto-approval away")
    is_disputed = models.BooleanField(default=False, help_text="arbitration is open: no audit, no cancel, no timer")
    decided_at = models.DateTimeField(null=True)
    refunding_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(_("applied at"))
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "after_sales_order"
        verbose_name = _("after-sales order")
        verbose_name_plural = _("after-sales orders")
        constraints = [
            models.UniqueConstraint(fields=["after_sales_no", "merchant"], name="after_sales_no_is_used_once"),
            models.CheckConstraint(condition=Q(qty__gte=1), name="after_sales_has_units"),
            models.CheckConstraint(
                condition=Q(accepted_qty__isnull=True) | Q(accepted_qty__lte=F("qty")),
                name="after_sales_accepts_at_most_what_was_claimed",
            ),
            models.CheckConstraint(
                condition=Q(
                    applied_goods_fen__gte=0,
                    applied_freight_fen__gte=0,
                    applied_goods_fen__lte=F("entitled_goods_fen"),
                    applied_freight_fen__lte=F("entitled_freight_fen"),
                )
                | Q(accepted_qty__isnull=False),
                name="after_sales_applied_within_entitlement",
            ),
            models.CheckConstraint(
                condition=Q(approved_goods_fen__isnull=True, approved_freight_fen__isnull=True)
                | Q(
                    approved_goods_fen__isnull=False,  # a comparison with NULL would pass the check
                    approved_freight_fen__isnull=False,
                    approved_goods_fen__gte=0,
                    approved_freight_fen__gte=0,
                    approved_goods_fen__lte=F("entitled_goods_fen"),
                    approved_freight_fen__lte=F("entitled_freight_fen"),
                ),
                name="after_sales_approved_within_entitlement",
            ),
            models.CheckConstraint(
                condition=~Q(status__in=[Status.REFUNDING, Status.REFUND_FAILED, Status.REFUND_SUCCESS])
                | Q(approved_goods_fen__isnull=False, approved_freight_fen__isnull=False, refunding_at__isnull=False),
                name="after_sales_refund_has_amount_and_time",
            ),
            models.CheckConstraint(
                condition=Q(status__in=FINAL, finished_at__isnull=False, due_at__isnull=True)
                | (~Q(status__in=FINAL) & Q(finished_at__isnull=True)),
                name="after_sales_final_has_time_and_no_deadline",
            ),
        ]
        indexes = [
            models.Index(fields=["order_no"], name="after_sales_by_order"),
            models.Index(fields=["merchant", "-created_at", "-id"], name="after_sales_by_merchant"),
            models.Index(fields=["merchant", "user_id", "-created_at"], name="after_sales_by_user"),
            models.Index(
                fields=["merchant", "device_hash"], condition=~Q(device_hash=""), name="after_sales_by_device"
            ),
            models.Index(fields=["-created_at", "-id"], name="after_sales_newest"),
            models.Index(fields=["due_at"], condition=Q(due_at__isnull=False), name="after_sales_due"),
            models.Index(
                fields=["status", "due_at", "id"], condition=~Q(status__in=FINAL), name="after_sales_by_status"
            ),
            models.Index(
                fields=["merchant", "due_at", "id"],
                condition=~Q(status__in=FINAL),
                name="after_sales_open",
            ),
            models.Index(fields=["type", "-created_at", "-id"], name="after_sales_by_type"),
            models.Index(fields=["finished_at"], condition=Q(status="REFUND_SUCCESS"), name="after_sales_by_end"),
            models.Index(fields=["decided_at"], condition=Q(decided_at__isnull=False), name="after_sales_by_decision"),
        ]
        triggers = [
            pgtrigger.Trigger(
                name="moves_only_with_its_version",
                when=pgtrigger.Before,
                operation=pgtrigger.Update,
                condition=pgtrigger.Condition(
                    "OLD.version IS DISTINCT FROM NEW.version - 1 AND ("
                    "OLD.version IS DISTINCT FROM NEW.version"
                    " OR OLD.status IS DISTINCT FROM NEW.status"
                    " OR OLD.approved_goods_fen IS DISTINCT FROM NEW.approved_goods_fen"
                    " OR OLD.approved_freight_fen IS DISTINCT FROM NEW.approved_freight_fen"
                    " OR OLD.entitled_goods_fen IS DISTINCT FROM NEW.entitled_goods_fen"
                    " OR OLD.entitled_freight_fen IS DISTINCT FROM NEW.entitled_freight_fen"
                    " OR OLD.liability IS DISTINCT FROM NEW.liability"
                    " OR OLD.hold IS DISTINCT FROM NEW.hold)"
                ),
                func="RAISE EXCEPTION 'after-sales order % changed without its version', OLD.after_sales_no;",
            ),
            pgtrigger.ReadOnly(
                name="claim_is_fixed",
                fields=[
                    "id",
                    "merchant",
                    "after_sales_no",
                    "order",
                    "order_no",
                    "line",
                    "line_no",
                    "user_id",
                    "type",
                    "qty",
                    "applied_goods_fen",
                    "applied_freight_fen",
                    "created_at",
                ],
            ),
            pgtrigger.Protect(name="is_never_deleted", operation=pgtrigger.Delete),
        ]

    def __str__(self) -> str:
        return self.after_sales_no

    @property
    def approved_total_fen(self) -> int | None:
        if self.approved_goods_fen is None or self.approved_freight_fen is None:
            return None
        return self.approved_goods_fen + self.approved_freight_fen

    @property
    def applied_total_fen(self) -> int:
        return self.applied_goods_fen + self.applied_freight_fen

    @edge(Type.REFUND_ONLY, Type.PRICE_PROTECTION, source=Status.WAIT_AUDIT, target=Status.REFUNDING)
    def approve_refund(self) -> None: ...

    @edge(*RETURNING, source=Status.WAIT_AUDIT, target=Status.WAIT_BUYER_RETURN)
    def approve_return(self) -> None: ...

    @edge(Type.RESHIP, source=Status.WAIT_AUDIT, target=Status.WAIT_MERCHANT_SHIP)
    def approve_reship(self) -> None: ...

    @edge(source=Status.WAIT_AUDIT, target=Status.REJECTED)
    def reject(self) -> None: ...

    @edge(source=Status.WAIT_AUDIT, target=Status.CANCELED)
    def cancel(self) -> None: ...

    @edge(*RETURNING, source=Status.WAIT_BUYER_RETURN, target=Status.CANCELED)
    def cancel_return(self) -> None: ...

    @edge(*RETURNING, source=Status.WAIT_BUYER_RETURN, target=Status.WAIT_MERCHANT_RECEIVE)
    def ship_return(self) -> None: ...

    @edge(Type.RETURN, source=Status.WAIT_MERCHANT_RECEIVE, target=Status.REFUNDING)
    def confirm_return(self) -> None: ...

    @edge(*RETURNING, source=Status.WAIT_MERCHANT_RECEIVE, target=Status.REJECTED)
    def reject_return(self) -> None: ...

    @edge(Type.EXCHANGE, source=Status.WAIT_MERCHANT_RECEIVE, target=Status.WAIT_BUYER_PAY)
    def ask_supplement(self) -> None: ...

    @edge(Type.EXCHANGE, source=Status.WAIT_MERCHANT_RECEIVE, target=Status.WAIT_MERCHANT_SHIP)
    def accept_exchange(self) -> None: ...

    @edge(Type.EXCHANGE, source=Status.WAIT_BUYER_PAY, target=Status.WAIT_MERCHANT_SHIP)
    def confirm_supplement(self) -> None: ...

    @edge(Type.EXCHANGE, source=Status.WAIT_BUYER_PAY, target=Status.REFUNDING)
    def give_up_supplement(self) -> None: ...

    @edge(Type.EXCHANGE, source=Status.WAIT_MERCHANT_SHIP, target=Status.REFUNDING)
    def convert_to_refund(self) -> None: ...

    @edge(Type.EXCHANGE, Type.RESHIP, source=Status.WAIT_MERCHANT_SHIP, target=Status.WAIT_BUYER_CONFIRM)
    def ship_replacement(self) -> None: ...

    @edge(Type.EXCHANGE, Type.RESHIP, source=Status.WAIT_BUYER_CONFIRM, target=Status.COMPLETED)
    def confirm_replacement(self) -> None: ...

    @edge(*REFUNDABLE, source=[Status.REFUNDING, Status.REFUND_FAILED], target=Status.REFUND_SUCCESS)
    def succeed(self) -> None: ...

    @edge(*REFUNDABLE, source=Status.REFUNDING, target=Status.REFUND_FAILED)
    def fail(self) -> None: ...

    @edge(*REFUNDABLE, source=Status.REFUND_FAILED, target=Status.REFUNDING)
    def retry(self) -> None: ...

    @edge(*REFUNDABLE, source=Status.REFUND_FAILED, target=Status.REJECTED)
    def reject_failed(self) -> None: ...

    @edge(source=Status.WAIT_AUDIT, target=Status.CANCELED)
    @edge(*RETURNING, source=[Status.WAIT_BUYER_RETURN, Status.WAIT_MERCHANT_RECEIVE], target=Status.CANCELED)
    @edge(Type.EXCHANGE, source=Status.WAIT_BUYER_PAY, target=Status.CANCELED)
    @edge(*SHIPPING, source=[Status.WAIT_MERCHANT_SHIP, Status.WAIT_BUYER_CONFIRM], target=Status.CANCELED)
    def end_by_arbitration(self) -> None: ...


def edges_by_type() -> set[tuple[int, str, str]]:
    """(type, from, to) of every declared edge: what the log's CHECK, the diagrams and the tests are made from."""
    field = AfterSalesOrder._meta.get_field("status")
    return {
        (int(kind), str(step.source), str(step.target))
        for step in field.get_all_transitions(AfterSalesOrder)
        for kind in step.custom["types"]
    }


def _edge_check() -> Q:
    condition = Q(from_status__isnull=True, from_version__isnull=True, to_version=1, to_status=Status.WAIT_AUDIT)
    for source, target in sorted({(source, target) for _type, source, target in edges_by_type()}):
        types = sorted(kind for kind, start, end in edges_by_type() if (start, end) == (source, target))
        condition |= Q(from_version=F("to_version") - 1, from_status=source, to_status=target, type__in=types)
    return (
        condition
        & (
            Q(from_status__isnull=True, from_version__isnull=True)
            | Q(from_status__isnull=False, from_version__isnull=False)  # a comparison with NULL would pass the check
        )
        & (Q(from_version__isnull=False) | Q(to_version=1))
    )


class AfterSalesUnit(models.Model):
    """One ordinal of a line under one claim. The partial unique index is the units guard."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", on_delete=models.PROTECT, related_name="+")
    after_sales = models.ForeignKey(AfterSalesOrder, on_delete=models.PROTECT, related_name="units")
    line = models.ForeignKey("orders.OrderLine", on_delete=models.PROTECT, related_name="+")
    ordinal = models.PositiveIntegerField()
    hold = models.CharField(max_length=16, choices=Hold.choices)
    live = models.BooleanField(default=True, help_text="not known dead")
    is_open = models.BooleanField(default=True, help_text="the claim has not ended")
    protects_price = models.BooleanField(default=False)
    worth_fen = models.BigIntegerField()
    earlier_fen = models.BigIntegerField(default=0)
    goods_fen = models.BigIntegerField()
    freight_fen = models.BigIntegerField()
    disposition = models.CharField(max_length=16, choices=Disposition.choices, blank=True, default="")

    class Meta:
        db_table = "after_sales_unit"
        constraints = [
            models.UniqueConstraint(
                fields=["line", "ordinal"],
                condition=Q(live=True) & (Q(hold=Hold.CONSUMES) | Q(is_open=True)) & ~Q(hold=Hold.TOPS_UP),
                name="unit_has_one_live_claim",
            ),
            models.UniqueConstraint(
                fields=["line", "ordinal"],
                condition=Q(live=True, is_open=True, hold=Hold.TOPS_UP),
                name="unit_is_topped_up_by_one_claim_at_a_time",
            ),
            models.UniqueConstraint(
                fields=["line", "ordinal"],
                condition=Q(live=True, protects_price=True),
                name="unit_has_one_price_protection",
            ),
            models.UniqueConstraint(fields=["after_sales", "ordinal"], name="unit_is_named_once_per_claim"),
            models.CheckConstraint(condition=Q(live=True) | Q(is_open=False), name="unit_of_dead_claim_is_not_open"),
            models.CheckConstraint(
                condition=Q(
                    ordinal__gte=1,
                    goods_fen__gte=0,
                    freight_fen__gte=0,
                    earlier_fen__gte=0,
                    worth_fen__gte=F("goods_fen") + F("earlier_fen"),
                ),
                name="unit_pays_at_most_what_is_left_of_it",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.after_sales_id} #{self.ordinal}"


class AfterSalesLog(models.Model):
    """One line per transition: who, in which role, from what to what, why, on what evidence."""

    id = models.BigAutoField(primary_key=True)
    after_sales = models.ForeignKey(AfterSalesOrder, on_delete=models.PROTECT, related_name="log")
    type = models.PositiveSmallIntegerField(choices=Type.choices)
    command = models.CharField(max_length=40)
    from_version = models.PositiveIntegerField(null=True)
    from_status = models.CharField(max_length=24, choices=Status.choices, null=True)
    to_version = models.PositiveIntegerField()
    to_status = models.CharField(max_length=24, choices=Status.choices)
    actor_kind = models.CharField(max_length=16, choices=Actor.choices)
    actor_id = models.CharField(max_length=64, blank=True, default="")
    reason = models.CharField(max_length=400, blank=True, default="")
    evidence = models.JSONField(default=dict)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "after_sales_log"
        constraints = [
            models.UniqueConstraint(
                fields=["after_sales", "to_version", "to_status"], name="after_sales_log_names_the_state"
            ),
            models.UniqueConstraint(fields=["after_sales", "to_version"], name="after_sales_log_has_no_fork"),
            models.CheckConstraint(condition=_edge_check(), name="after_sales_log_is_a_declared_edge"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.after_sales_id} v{self.to_version} {self.to_status}"


class System(models.TextChoices):
    STOCK = "stock", _("Stock")
    COUPON = "coupon", _("Coupon")
    POINTS = "points", _("Points")
    COMMISSION = "commission", _("Commission")
    SALES = "sales", _("Sales figures")
    ENTITLEMENT = "entitlement", _("Granted rights")


ALWAYS_TURNED_BACK = (System.STOCK, System.COUPON, System.POINTS, System.COMMISSION, System.SALES)
"""The five that follow every refund; granted rights only where something was granted."""


class Rollback(models.Model):
    """One of the things to turn back after a refund; PENDING → DONE commits together with the effect."""

    class State(models.TextChoices):
        PENDING = "PENDING", _("Waiting")
        DONE = "DONE", _("Done")

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", on_delete=models.PROTECT, related_name="+")
    after_sales = models.ForeignKey(AfterSalesOrder, on_delete=models.PROTECT, related_name="rollbacks")
    system = models.CharField(max_length=16, choices=System.choices)
    state = models.CharField(max_length=8, choices=State.choices, default=State.PENDING)
    event_id = models.UUIDField(help_text="the outbox message that asks for it")
    result = models.JSONField(default=dict)
    requested_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "after_sales_rollback"
        constraints = [
            models.UniqueConstraint(fields=["after_sales", "system"], name="rollback_happens_once_per_system"),
            models.CheckConstraint(
                condition=Q(state="DONE", done_at__isnull=False) | Q(state="PENDING", done_at__isnull=True),
                name="rollback_done_has_time",
            ),
        ]
        indexes = [
            models.Index(fields=["requested_at"], condition=Q(state="PENDING"), name="rollback_pending"),
        ]

    def __str__(self) -> str:
        return f"{self.after_sales_id} {self.system} {self.state}"


class ReturnShipment(models.Model):
    """A parcel of the claim: the buyer's, the replacement, or refused goods on their way back."""

    class Direction(models.TextChoices):
        TO_MERCHANT = "to_merchant", _("Buyer's return")
        REPLACEMENT = "replacement", _("Replacement")
        SENT_BACK = "sent_back", _("Sent back to the buyer")

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    after_sales = models.ForeignKey(AfterSalesOrder, on_delete=models.PROTECT, related_name="shipments")
    direction = models.CharField(max_length=16, choices=Direction.choices)
    carrier = models.CharField(max_length=32)
    tracking_no = models.CharField(max_length=64)
    entered_at = models.DateTimeField()
    first_moved_at = models.DateTimeField(null=True)
    delivered_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "return_shipment"
        constraints = [
            models.UniqueConstraint(fields=["after_sales", "direction"], name="claim_has_one_parcel_per_direction"),
        ]
        indexes = [models.Index(fields=["tracking_no", "carrier"], name="return_shipment_by_tracking")]

    def __str__(self) -> str:
        return f"{self.carrier} {self.tracking_no}"


class Inspection(models.Model):
    """What the merchant found in the buyer's parcel. What became of each unit stands on the unit."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    after_sales = models.OneToOneField(AfterSalesOrder, on_delete=models.PROTECT, related_name="inspection")
    sellable_qty = models.PositiveIntegerField()
    defect_qty = models.PositiveIntegerField()
    missing_qty = models.PositiveIntegerField()
    note = models.TextField(blank=True, default="")
    inspected_by = models.CharField(max_length=64, blank=True, default="")
    inspected_at = models.DateTimeField()

    class Meta:
        db_table = "inspection"
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.after_sales_id}: {self.sellable_qty} + {self.defect_qty} − {self.missing_qty}"


class Exchange(models.Model):
    """What a type 3 claim gives instead, priced when it was applied for. Amounts in fen, for all its units."""

    after_sales = models.OneToOneField(AfterSalesOrder, on_delete=models.PROTECT, related_name="exchange")
    sku = models.CharField(_("replacement SKU"), max_length=64)
    title = models.CharField(_("replacement"), max_length=200)
    unit_price_fen = models.BigIntegerField(_("unit price"))
    credit_fen = models.BigIntegerField(
        _("credit"), null=True, help_text="what the accepted units are worth; known from the inspection on"
    )
    supplement_fen = models.BigIntegerField(_("supplement"), null=True)
    difference_fen = models.BigIntegerField(_("difference back"), null=True)
    supplement_no = models.CharField(_("payment number"), max_length=32, blank=True, default="")
    replacement_line = models.ForeignKey(
        "orders.OrderLine", null=True, on_delete=models.PROTECT, related_name="born_of_exchange"
    )

    class Meta:
        db_table = "after_sales_exchange"
        constraints = [
            models.CheckConstraint(condition=Q(unit_price_fen__gte=0), name="replacement_has_a_price"),
            models.CheckConstraint(
                condition=Q(credit_fen__isnull=True, supplement_fen__isnull=True, difference_fen__isnull=True)
                | Q(credit_fen__gte=0, supplement_fen__gte=0, difference_fen__gte=0)
                & (Q(supplement_fen=0) | Q(difference_fen=0)),
                name="exchange_owes_one_way_only",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.after_sales_id} → {self.sku}"


class CarrierEvent(models.Model):
    """What a carrier said about a parcel; the same thing said again is the same row."""

    class What(models.TextChoices):
        MOVED = "moved", _("On the way")
        DELIVERED = "delivered", _("Delivered")
        REFUSED = "refused", _("Refused by the recipient")
        LOST = "lost", _("Lost")

    id = models.BigAutoField(primary_key=True)
    merchant = models.ForeignKey("merchants.Merchant", on_delete=models.PROTECT, related_name="+")
    carrier = models.CharField(max_length=32)
    tracking_no = models.CharField(max_length=64)
    what = models.CharField(max_length=16, choices=What.choices)
    happened_at = models.DateTimeField()
    heard_at = models.DateTimeField()

    class Meta:
        db_table = "carrier_event"
        constraints = [
            models.UniqueConstraint(
                fields=["merchant", "carrier", "tracking_no", "what", "happened_at"], name="carrier_says_it_once"
            ),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.carrier} {self.tracking_no} {self.what}"


class ArbitrationCase(models.Model):
    """A quarrel over some units of a line, decided by the platform. While it is open nobody else decides."""

    class State(models.TextChoices):
        OPEN = "OPEN", _("Open")
        DECIDED = "DECIDED", _("Decided")
        WITHDRAWN = "WITHDRAWN", _("Withdrawn")

    class Cause(models.TextChoices):
        REJECTED = "rejected", _("The merchant refused")
        WINDOW_OVER = "window_over", _("The time to apply was over")
        AMOUNT = "amount", _("The amount was lowered")
        NOT_RECEIVED = "not_received", _("The replacement never came")
        MERCHANT_SILENT = "merchant_silent", _("The merchant did not answer")
        CARRIER_SILENT = "carrier_silent", _("The carrier says nothing")

    class Responsible(models.TextChoices):
        BUYER = "buyer", _("Buyer")
        MERCHANT = "merchant", _("Merchant")
        CARRIER = "carrier", _("Carrier")
        PLATFORM = "platform", _("Platform")

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", on_delete=models.PROTECT, related_name="+")
    order = models.ForeignKey("orders.Order", on_delete=models.PROTECT, related_name="+")
    order_no = models.CharField(_("order no."), max_length=20)
    line = models.ForeignKey("orders.OrderLine", on_delete=models.PROTECT, related_name="+")
    line_no = models.PositiveIntegerField(_("line"))
    user_id = models.CharField(_("user"), max_length=64)
    after_sales = models.ForeignKey(
        AfterSalesOrder, null=True, on_delete=models.PROTECT, related_name="arbitrations", verbose_name=_("claim")
    )
    cause = models.CharField(_("cause"), max_length=20, choices=Cause.choices)
    opened_by = models.CharField(_("opened by"), max_length=16, choices=Actor.choices)
    opened_by_id = models.CharField(max_length=64, blank=True, default="")
    wish = models.TextField(_("what is asked for"), blank=True, default="")
    holds_line = models.BooleanField(default=False, help_text="the case, not a claim, keeps the units on the line")
    state = FSMField(_("state"), max_length=12, choices=State.choices, default=State.OPEN)
    version = models.PositiveIntegerField(default=1)
    entitled_fen = models.BigIntegerField(_("left of these units"))
    awarded_goods_fen = models.BigIntegerField(_("awarded for goods"), null=True)
    awarded_freight_fen = models.BigIntegerField(_("awarded for freight"), null=True)
    responsible = models.CharField(_("responsible"), max_length=16, choices=Responsible.choices, blank=True, default="")
    decision = models.TextField(_("decision"), blank=True, default="")
    decided_by = models.CharField(_("decided by"), max_length=64, blank=True, default="")
    result = models.ForeignKey(
        AfterSalesOrder, null=True, on_delete=models.PROTECT, related_name="decided_by_arbitration"
    )
    opened_at = models.DateTimeField(_("opened"))
    closed_at = models.DateTimeField(_("closed"), null=True)

    class Meta:
        db_table = "arbitration_case"
        verbose_name = _("arbitration case")
        verbose_name_plural = _("arbitration")
        constraints = [
            models.CheckConstraint(
                condition=Q(state="OPEN", closed_at__isnull=True) | (~Q(state="OPEN") & Q(closed_at__isnull=False)),
                name="arbitration_closed_has_time",
            ),
            models.CheckConstraint(
                condition=~Q(state="DECIDED")
                | (
                    Q(awarded_goods_fen__gte=0, awarded_freight_fen__gte=0)
                    & ~Q(responsible="")
                    & ~Q(decision="")
                    & ~Q(decided_by="")
                ),
                name="arbitration_decided_says_what_and_who",
            ),
            models.UniqueConstraint(
                fields=["after_sales"], condition=Q(state="OPEN"), name="claim_has_one_open_arbitration"
            ),
        ]
        indexes = [
            models.Index(fields=["opened_at", "id"], condition=Q(state="OPEN"), name="arbitration_open"),
            models.Index(fields=["order_no"], name="arbitration_by_order"),
            models.Index(fields=["opened_at", "id"], name="arbitration_by_time"),
        ]

    def __str__(self) -> str:
        return f"{self.order_no} #{self.line_no}"

    @transition(field="state", source=State.OPEN, target=State.DECIDED)
    def decide(self) -> None: ...

    @transition(field="state", source=State.OPEN, target=State.WITHDRAWN)
    def withdraw(self) -> None: ...


class ArbitrationUnit(models.Model):
    """An ordinal that an open case holds: no other case, and no new claim of the buyer's, beside it."""

    id = models.BigAutoField(primary_key=True)
    case = models.ForeignKey(ArbitrationCase, on_delete=models.PROTECT, related_name="units")
    line = models.ForeignKey("orders.OrderLine", on_delete=models.PROTECT, related_name="+")
    ordinal = models.PositiveIntegerField()
    is_open = models.BooleanField(default=True)

    class Meta:
        db_table = "arbitration_unit"
        constraints = [
            models.UniqueConstraint(
                fields=["line", "ordinal"], condition=Q(is_open=True), name="unit_has_one_open_arbitration"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.case_id} #{self.ordinal}"


class ArbitrationStatement(models.Model):
    """What a party says in a case. Only grows."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    case = models.ForeignKey(ArbitrationCase, on_delete=models.PROTECT, related_name="statements")
    side = models.CharField(max_length=16, choices=Actor.choices)
    author = models.CharField(max_length=64, blank=True, default="")
    text = models.TextField()
    created_at = models.DateTimeField()

    class Meta:
        db_table = "arbitration_statement"
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.side}: {self.text[:40]}"


class Evidence(models.Model):
    """An image a party shows. The file lies outside the web root under its own digest; only the parties are served."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", on_delete=models.PROTECT, related_name="+")
    after_sales = models.ForeignKey(AfterSalesOrder, null=True, on_delete=models.PROTECT, related_name="evidence")
    arbitration = models.ForeignKey(
        "aftersales.ArbitrationCase", null=True, on_delete=models.PROTECT, related_name="evidence"
    )
    side = models.CharField(max_length=16, choices=Actor.choices)
    author = models.CharField(max_length=64, blank=True, default="")
    note = models.CharField(max_length=200, blank=True, default="")
    content_type = models.CharField(max_length=32)
    size = models.PositiveIntegerField()
    width = models.PositiveIntegerField()
    height = models.PositiveIntegerField()
    sha256 = models.CharField(max_length=64)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "after_sales_evidence"
        constraints = [
            models.UniqueConstraint(
                fields=["after_sales", "arbitration", "side", "sha256"],
                nulls_distinct=False,
                name="evidence_is_shown_once_per_side",
            ),
            models.CheckConstraint(
                condition=Q(after_sales__isnull=False) | Q(arbitration__isnull=False), name="evidence_belongs_somewhere"
            ),
            models.CheckConstraint(
                condition=Q(content_type__in=["image/jpeg", "image/png", "image/webp", "image/gif"]),
                name="evidence_is_an_image",
            ),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.content_type} {self.sha256[:12]}"


class RiskRule(models.Model):
    """One rule of the risk desk, editable. `params` are the rule kind's own figures (aftersales/risk.py)."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey(
        "merchants.Merchant", null=True, on_delete=models.PROTECT, related_name="+", help_text="none: all merchants"
    )
    kind = models.CharField(_("rule"), max_length=32)
    params = models.JSONField(_("figures"), default=dict)
    is_active = models.BooleanField(_("active"), default=True)
    version = models.PositiveIntegerField(default=1)
    changed_by = models.CharField(max_length=64, blank=True, default="")
    changed_at = models.DateTimeField()

    class Meta:
        db_table = "risk_rule"
        verbose_name = _("risk rule")
        verbose_name_plural = _("risk rules")
        constraints = [
            models.UniqueConstraint(
                fields=["merchant", "kind"], nulls_distinct=False, name="risk_rule_stands_once_per_merchant"
            ),
        ]

    def __str__(self) -> str:
        return self.kind


class RiskReview(models.Model):
    """A claim that hit risk rules, why, and what a person decided."""

    class State(models.TextChoices):
        OPEN = "OPEN", _("Waiting")
        CLEARED = "CLEARED", _("Cleared")
        CONFIRMED = "CONFIRMED", _("Confirmed")

    after_sales = models.OneToOneField(
        AfterSalesOrder, primary_key=True, on_delete=models.PROTECT, related_name="risk_review"
    )
    hits = models.JSONField(_("rules hit"), help_text="kind, figures and what was found, per rule")
    state = FSMField(_("state"), max_length=12, choices=State.choices, default=State.OPEN)
    version = models.PositiveIntegerField(default=1)
    decided_by = models.CharField(_("decided by"), max_length=64, blank=True, default="")
    reason = models.CharField(_("reason"), max_length=400, blank=True, default="")
    created_at = models.DateTimeField(_("found"))
    decided_at = models.DateTimeField(_("decided"), null=True)

    class Meta:
        db_table = "risk_review"
        verbose_name = _("risk review")
        verbose_name_plural = _("risk queue")
        constraints = [
            models.CheckConstraint(
                condition=Q(state="OPEN", decided_at__isnull=True)
                | (~Q(state="OPEN") & Q(decided_at__isnull=False) & ~Q(decided_by="")),
                name="risk_decision_has_person_and_time",
            ),
        ]
        indexes = [
            models.Index(fields=["created_at"], condition=Q(state="OPEN"), name="risk_review_open"),
            models.Index(fields=["created_at", "after_sales"], name="risk_review_by_time"),
        ]

    def __str__(self) -> str:
        return str(self.after_sales_id)

    @transition(field="state", source=State.OPEN, target=State.CLEARED)
    def clear(self) -> None: ...

    @transition(field="state", source=State.OPEN, target=State.CONFIRMED)
    def confirm(self) -> None: ...


class ShadowDay(models.Model):
    """How often a second algorithm ran beside the live one on a day, and how often it said something else."""

    id = models.BigAutoField(primary_key=True)
    merchant = models.ForeignKey("merchants.Merchant", on_delete=models.PROTECT, related_name="+")
    live = models.CharField(max_length=32)
    shadow = models.CharField(max_length=32)
    on_date = models.DateField()
    calculations = models.PositiveBigIntegerField(default=0)
    differences = models.PositiveBigIntegerField(default=0)

    class Meta:
        db_table = "shadow_day"
        indexes = [
            models.Index(fields=["-on_date", "-id"], name="shadow_day_newest"),
        ]
        verbose_name = _("shadow run")
        verbose_name_plural = _("shadow runs")
        constraints = [
            models.UniqueConstraint(
                fields=["merchant", "live", "shadow", "on_date"], name="shadow_is_counted_once_per_day"
            ),
            models.CheckConstraint(
                condition=Q(differences__lte=F("calculations")), name="shadow_differs_at_most_each_time"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.live} / {self.shadow} {self.on_date}"


class ShadowDifference(models.Model):
    """One calculation on which the two algorithms disagree, with both figures. Only the live one had effect."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", on_delete=models.PROTECT, related_name="+")
    order_no = models.CharField(_("order no."), max_length=20)
    line_no = models.PositiveIntegerField(_("line"))
    step = models.CharField(_("calculation"), max_length=16, help_text="preview or apply")
    live = models.CharField(_("live algorithm"), max_length=32)
    shadow = models.CharField(_("second algorithm"), max_length=32)
    ordinals = models.JSONField(_("units"))
    live_fen = models.BigIntegerField(_("live amount"))
    shadow_fen = models.BigIntegerField(_("second amount"))
    inputs = models.JSONField(_("facts"))
    created_at = models.DateTimeField(_("calculated"))

    class Meta:
        db_table = "shadow_difference"
        verbose_name = _("shadow difference")
        verbose_name_plural = _("shadow differences")
        indexes = [
            models.Index(fields=["merchant", "-created_at", "-id"], name="shadow_difference_newest"),
            models.Index(fields=["-created_at", "-id"], name="shadow_difference_all_newest"),
            models.Index(fields=["order_no"], name="shadow_difference_by_order"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.order_no} #{self.line_no}"


class AfterSalesSettings(models.Model):
    """What a merchant set beyond the windows on the merchant itself. No row: the defaults of the fields hold."""

    merchant = models.OneToOneField(
        "merchants.Merchant", primary_key=True, on_delete=models.PROTECT, related_name="after_sales_settings"
    )
    instant_refund_up_to_fen = models.BigIntegerField(
        _("approve unshipped refunds at once up to (fen)"), null=True, blank=True
    )
    carrier_silence_days = models.PositiveSmallIntegerField(_("escalate when the carrier is silent (days)"), default=20)
    warn_before_hours = models.PositiveSmallIntegerField(_("warn before a deadline (hours)"), default=12)
    points_per_yuan = models.PositiveSmallIntegerField(
        _("points earned per yuan of goods"), default=0, help_text=_("Granted when the order completes.")
    )
    commission_hold_days = models.PositiveSmallIntegerField(_("commission is held after completion (days)"), default=7)
    algorithm = models.CharField(_("amount algorithm"), max_length=32, default="ordinals-1")
    shadow_algorithm = models.CharField(_("second algorithm"), max_length=32, blank=True, default="")
    shadow_since = models.DateTimeField(_("second algorithm runs since"), null=True, blank=True)
    shadow_minimum = models.PositiveIntegerField(_("calculations before it may go live"), default=1000)
    version = models.PositiveIntegerField(default=1)

    class Meta:
        db_table = "after_sales_settings"
        verbose_name = _("after-sales settings")
        verbose_name_plural = _("after-sales settings")
        constraints = [
            models.CheckConstraint(condition=Q(points_per_yuan__lte=100), name="points_per_yuan_at_most_100"),
            models.CheckConstraint(condition=Q(commission_hold_days__lte=365), name="commission_held_at_most_a_year"),
        ]

    def __str__(self) -> str:
        return str(self.merchant_id)
