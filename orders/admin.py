"""Orders, quotes and the anomaly queue in the back office. Every button calls exactly one command."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin as django_admin
from django.db.models import Q, QuerySet, Sum
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kernel import admin, money
from kernel.admin import Button, ButtonForm, Hit, QuitsAdmin, Scope, reveal
from kernel.admin.buttons import Reason
from kernel.idempotency import BusinessKey
from merchants import scoping
from merchants.roles import AUDITOR, CUSTOMER_SERVICE, FINANCE, MERCHANT, OPERATIONS, OWNER, READERS
from orders import anomaly_page, order_page
from orders.actors import staff
from orders.commands.ask_channel import ask_channel
from orders.commands.close_by_admin import close_by_admin
from orders.commands.honour_order import honour_order
from orders.commands.resolve_anomaly import assign_anomaly, resolve_anomaly
from orders.commands.revoke_order_token import revoke_order_token
from orders.commands.ship_order import ship_order
from orders.commands.sign_shipment import sign_shipment
from orders.legends import ANOMALIES, ORDERS, QUOTES
from orders.models import (
    Anomaly,
    CouponDecision,
    CouponState,
    Entitlement,
    Order,
    OrderBill,
    OrderCoupon,
    OrderLine,
    OrderStatusLog,
    Quote,
    Shipment,
    ShipmentLine,
)
from payments.words import REASONS

SALES = gettext_lazy("Orders")
PAYMENT_NUMBER = re.compile(r"(Q\d{14})P\d+")
"""A payment's number begins with its order's."""
CARE = CUSTOMER_SERVICE | OPERATIONS | FINANCE

scoping.register(
    Order,
    view=READERS,
    actions={
        "close": CUSTOMER_SERVICE | OPERATIONS,
        "ask": CARE | OWNER,
        "honour": OPERATIONS | OWNER,
        "ship": MERCHANT,
        "sign": MERCHANT | CUSTOMER_SERVICE,
        "revoke": CUSTOMER_SERVICE | OPERATIONS | OWNER,
        "export": FINANCE | AUDITOR | OWNER,
    },
)
scoping.register(Quote, view=READERS)
scoping.register(
    Anomaly,
    view=READERS,
    actions={"take": CARE, "ask": CARE, "honour": OPERATIONS, "resolve": CARE},
)
for part in (OrderLine, OrderCoupon, CouponDecision, OrderBill, Shipment, Entitlement):
    scoping.register(part)
scoping.register(OrderStatusLog, path="order__merchant")
scoping.register(ShipmentLine, path="shipment__merchant")
for owner in (Order, Quote):
    reveal.declare(owner, "user_id")
reveal.declare(Order, "address", lambda order: " ".join(str(part) for part in order.address.values()))

for place, (name, label, model, icon) in enumerate(
    [
        ("orders.orders", gettext_lazy("Orders"), Order, "shopping_bag"),
        ("orders.anomalies", gettext_lazy("Anomalies"), Anomaly, "crisis_alert"),
        ("orders.quotes", gettext_lazy("Quotes"), Quote, "request_quote"),
    ]
):
    admin.register_navigation(
        name,
        group=SALES,
        label=label,
        url=f"admin:orders_{model._meta.model_name}_changelist",
        page=model,
        icon=icon,
        order=100 + 10 * place,
    )

admin.register_waiting(
    "orders.anomalies",
    gettext_lazy("Anomalies"),
    query=lambda scope: admin.capped(scope.of(Anomaly).exclude(state=Anomaly.State.RESOLVED)),
    url="admin:orders_anomaly_changelist",
    params={"waiting": "1"},
    page=Anomaly,
    action="resolve",
    icon="crisis_alert",
    hint=gettext_lazy("Callbacks, charges and coupons that do not add up."),
    order=20,
)
admin.register_waiting(
    "orders.to_ship",
    gettext_lazy("Orders to ship"),
    query=lambda scope: admin.capped(
        scope.of(Order).filter(status=Order.Status.PAID, fulfilment__in=["waiting", "partial"])
    ),
    url="admin:orders_order_changelist",
    params={"status__exact": "10"},
    page=Order,
    action="ship",
    icon="local_shipping",
    hint=gettext_lazy("Paid, not yet wholly shipped."),
    order=40,
)


def _orders_today(scope: Scope) -> int:
    return scope.of(Order).filter(created_at__gte=scope.today_start).count()


def _sold_today(scope: Scope) -> int:
    rows = scope.of(Order).filter(paid_at__gte=scope.today_start)
    return rows.aggregate(fen=Sum("payable_fen"))["fen"] or 0


admin.register_figure(
    "orders.made_today",
    gettext_lazy("Orders today"),
    _orders_today,
    page=Order,
    url="admin:orders_order_changelist",
    format="count",
    order=10,
)
admin.register_figure(
    "orders.sold_today",
    gettext_lazy("Sold today"),
    _sold_today,
    page=Order,
    url="admin:orders_order_changelist",
    format="money",
    order=11,
)


REASONS.update(
    {
        "not_reopened": gettext_lazy("Refunded instead of reopened"),
        "second_charge": gettext_lazy("Second charge"),
        "trade_no_mismatch": gettext_lazy("Second charge"),
        "amount_mismatch": gettext_lazy("Amount differs"),
        "paid_on_closed": gettext_lazy("Paid after closing"),
        "paid_on_cancelled": gettext_lazy("Paid after cancelling"),
        "paid_after_cancel": gettext_lazy("Paid after cancelling"),
    }
)
"""Why a payment goes back that its order has no use for."""


def _find_order(scope: Scope, term: str) -> Iterable[Hit]:
    found = scope.of(Order).filter(Q(order_no=term) | Q(user_id=term) | Q(trade_no=term))
    for row in found.order_by("-created_at", "-id")[:5]:
        yield Hit(
            row.order_no,
            f"{_('Order')} {row.get_status_display()} {money.display(row.payable_fen)}",
            reverse("admin:orders_order_change", args=[row.pk]),
        )


admin.register_search("orders.order", _find_order, page=Order)


class ShipForm(ButtonForm):
    """Everything that is left of the order goes into one parcel."""

    carrier = forms.CharField(label=gettext_lazy("Carrier"), max_length=40)
    tracking_no = forms.CharField(label=gettext_lazy("Tracking number"), max_length=64)


def is_pending(order: Order) -> bool:
    return order.status == Order.Status.PENDING


def may_be_asked(order: Order) -> bool:
    return order.status in (Order.Status.PENDING, Order.Status.CLOSED, Order.Status.CANCELLED) and bool(
        order.payable_fen
    )


def may_ship(order: Order) -> bool:
    return (
        order.status == Order.Status.PAID
        and order.fulfilment in ("waiting", "partial")
        and order.coupon_state in Order.COUPON_IN_ORDER
    )


def may_sign(order: Order) -> bool:
    return (
        order.status in (Order.Status.PAID, Order.Status.DELIVERED) and order.shipments.filter(signed_at=None).exists()
    )


def in_conflict(order: Order) -> bool:
    return order.status == Order.Status.PAID and order.coupon_state == CouponState.CONFLICT


def price_kept(order: Order) -> str:
    """What honouring gives away."""
    return _("%(amount)s were taken off by a coupon that another order has now. You keep this price.") % {
        "amount": money.display(order.discount_fen)
    }


def told(asked: Any) -> str:
    """What came of asking the channel, in one line."""
    if not asked.answers:
        return _("Nothing was ever placed at the channel, or everything is accounted for.")
    parts = [f"{number}: {asked.answers[number]} → {asked.outcomes[number]}" for number in asked.answers]
    return _("The channel answered. %(what)s") % {"what": "; ".join(parts)}


def buyer_column(page: QuitsAdmin, request: HttpRequest) -> Any:
    """The buyer in a list, as this reader may see personal data."""

    @django_admin.display(description=gettext_lazy("User"))
    def user(row: Any) -> Any:
        return page.masked(request, row, "user_id")

    return user


@admin.register(Order)
class OrderAdmin(QuitsAdmin):
    """Orders, newest first; the page shows payment, coupon, parcels and every share."""

    list_display = [
        "order_no",
        admin.money("payable_fen", gettext_lazy("Payable")),
        admin.status("status", gettext_lazy("Status"), order_page.TONES),
        admin.status("fulfilment", gettext_lazy("Fulfilment"), order_page.FULFILMENT_TONES),
        admin.status("coupon_state", gettext_lazy("Coupon"), order_page.COUPON_TONES),
        "pay_method",
        admin.when("created_at", gettext_lazy("Created")),
        admin.when("paid_at", gettext_lazy("Paid")),
    ]
    list_filter = ["status", "fulfilment", "coupon_state", "closed_reason", "pay_method", admin.MerchantFilter]
    list_hint = gettext_lazy("Every order, newest first. Its page shows payments, coupon, parcels and shares.")
    legends = ORDERS
    search_fields = ["order_no"]
    search_help_text = gettext_lazy("A whole order, payment or trade number, or a user.")
    ordering = ["-created_at", "-id"]
    change_form_template = "orders/order.html"
    audit_fields = ["status", "version", "coupon_state", "fulfilment"]
    export_columns = [
        (gettext_lazy("Order number"), "order_no"),
        (gettext_lazy("Status"), "status"),
        (gettext_lazy("Payable (yuan)"), "payable_fen"),
        (gettext_lazy("Pay method"), "pay_method"),
        (gettext_lazy("Trade number"), "trade_no"),
        (gettext_lazy("Created"), "created_at"),
        (gettext_lazy("Paid"), "paid_at"),
    ]
    buttons = [
        Button(
            "ship",
            gettext_lazy("Ship what is left"),
            form=ShipForm,
            icon="local_shipping",
            variant="primary",
            confirm=gettext_lazy("One parcel with every unit that is neither shipped, refunded nor under a claim."),
            allowed=may_ship,
        ),
        Button(
            "sign",
            gettext_lazy("Sign for the parcels"),
            icon="task_alt",
            confirm=gettext_lazy("The parcels on their way have arrived. The return window of their units begins."),
            allowed=may_sign,
        ),
        Button(
            "ask",
            gettext_lazy("Ask the channel now"),
            icon="sync",
            confirm=gettext_lazy(
                "Every payment that was placed is asked about. What was paid is settled, reopened or refunded by the"
                " rules; nothing else moves."
            ),
            allowed=may_be_asked,
        ),
        Button(
            "honour",
            gettext_lazy("Keep the price without the coupon"),
            form=Reason,
            icon="handshake",
            confirm=lambda order: price_kept(order),
            allowed=in_conflict,
        ),
        Button(
            "revoke",
            gettext_lazy("Revoke the status token"),
            icon="key_off",
            confirm=gettext_lazy("Whoever holds the order's token no longer sees its status. A new one is made."),
        ),
        Button(
            "close",
            gettext_lazy("Close the order"),
            form=Reason,
            icon="cancel",
            variant="danger",
            confirm=gettext_lazy(
                "The channel is asked first. A payment that arrives later is refunded: an order closed by hand never"
                " reopens."
            ),
            allowed=is_pending,
        ),
    ]

    class Media:
        css = {"all": ["orders/order.css"]}

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        placed = PAYMENT_NUMBER.fullmatch(search_term.strip())
        return admin.exactly(queryset, placed.group(1) if placed else search_term, "order_no", "user_id", "trade_no")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return []

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        number, *rest = super().get_list_display(request)
        return [number, buyer_column(self, request), *rest]

    def page_context(self, request: HttpRequest, obj: Order) -> dict[str, Any]:
        return {
            **order_page.order_context(obj),
            "buyer": self.masked(request, obj, "user_id"),
            "address": self.masked(request, obj, "address"),
        }

    def do_ship(
        self, request: HttpRequest, obj: Order, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        shipped = ship_order(
            merchant_id=obj.merchant_id,
            order_no=obj.order_no,
            carrier=data["carrier"],
            tracking_no=data["tracking_no"],
            actor=staff(request.user.get_username()),
            key=key,
            now=now,
        )
        return _("%(units)s units are on their way.") % {"units": sum(line.qty for line in shipped.lines)}

    def do_sign(
        self, request: HttpRequest, obj: Order, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        sign_shipment(
            merchant_id=obj.merchant_id,
            order_no=obj.order_no,
            by=f"staff {request.user.get_username()}",
            key=key,
            now=now,
        )
        return _("Signed.")

    def do_ask(self, request: HttpRequest, obj: Order, data: dict[str, Any], *, key: BusinessKey, now: datetime) -> str:
        return told(ask_channel(order_id=obj.pk, now=now))

    def do_honour(
        self, request: HttpRequest, obj: Order, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        honour_order(order_id=obj.pk, username=request.user.get_username(), reason=data["reason"], now=now)
        return _("The price stands. The order is fulfilled now.")

    def do_revoke(
        self, request: HttpRequest, obj: Order, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        revoke_order_token(merchant_id=obj.merchant_id, order_no=obj.order_no, renew=True, key=key, now=now)
        return _("The old token is worthless. The merchant's backend gets the new one by asking for the order again.")

    def do_close(
        self, request: HttpRequest, obj: Order, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        close_by_admin(order_id=obj.pk, username=request.user.get_username(), reason=data["reason"], now=now)
        return _("Closed.")


class WaitingFilter(django_admin.SimpleListFilter):
    """What nobody has resolved yet."""

    title = gettext_lazy("waiting")
    parameter_name = "waiting"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("1", gettext_lazy("Waiting")), ("mine", gettext_lazy("Mine"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Anomaly]) -> QuerySet[Anomaly]:
        if self.value() == "1":
            return queryset.exclude(state=Anomaly.State.RESOLVED)
        if self.value() == "mine":
            return queryset.filter(owner_id=request.user.pk).exclude(state=Anomaly.State.RESOLVED)
        return queryset


class ResolveForm(ButtonForm):
    resolution = forms.CharField(
        label=gettext_lazy("How it was resolved"),
        max_length=300,
        widget=forms.Textarea,
        help_text=gettext_lazy("Kept with the anomaly."),
    )


def is_waiting(anomaly: Anomaly) -> bool:
    return anomaly.state != Anomaly.State.RESOLVED


def anomaly_may_ask(anomaly: Anomaly) -> bool:
    return is_waiting(anomaly) and anomaly.order is not None and may_be_asked(anomaly.order)


def anomaly_in_conflict(anomaly: Anomaly) -> bool:
    return is_waiting(anomaly) and anomaly.order is not None and in_conflict(anomaly.order)


@admin.register(Anomaly)
class AnomalyAdmin(QuitsAdmin):
    """What does not add up, with both sides' evidence, and what can be done about it."""

    list_display = [
        "kind",
        admin.status("state", gettext_lazy("State"), order_page.ANOMALY_TONES),
        "order_no",
        "what_was_done",
        "seen",
        "owner",
        admin.when("created_at", gettext_lazy("First seen")),
        admin.when("last_seen_at", gettext_lazy("Last seen")),
    ]
    list_filter = [WaitingFilter, "kind", "state", admin.MerchantFilter]
    list_select_related = ["owner"]
    list_hint = gettext_lazy("One row per fact, however often it came. The system's own answer is in the list.")
    empty_hint = admin.QUIET
    legends = ANOMALIES
    search_fields = ["order_no"]
    search_help_text = gettext_lazy("A whole order, payment or trade number.")
    ordering = ["-created_at", "-id"]
    change_form_template = "orders/anomaly.html"
    audit_fields = ["state", "owner_id"]
    bulk = ["take", "resolve"]
    buttons = [
        Button("take", gettext_lazy("Assign to me"), icon="person_add", allowed=is_waiting),
        Button(
            "ask",
            gettext_lazy("Ask the channel now"),
            icon="sync",
            variant="primary",
            confirm=gettext_lazy(
                "Every payment that was placed is asked about. What was paid is settled, reopened or refunded by the"
                " rules; nothing else moves."
            ),
            allowed=anomaly_may_ask,
        ),
        Button(
            "honour",
            gettext_lazy("Keep the price without the coupon"),
            form=Reason,
            icon="handshake",
            confirm=lambda anomaly: price_kept(anomaly.order),
            allowed=anomaly_in_conflict,
        ),
        Button("resolve", gettext_lazy("Resolve"), form=ResolveForm, icon="check", allowed=is_waiting),
    ]

    class Media:
        css = {"all": ["orders/order.css"]}

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        return admin.exactly(queryset, search_term, "order_no", "out_trade_no", "trade_no")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return []

    @django_admin.display(description=gettext_lazy("What the system did"))
    def what_was_done(self, anomaly: Anomaly) -> Any:
        return order_page.outcome_of(anomaly)

    def page_context(self, request: HttpRequest, obj: Anomaly) -> dict[str, Any]:
        return anomaly_page.anomaly_context(obj)

    def do_take(
        self, request: HttpRequest, obj: Anomaly, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        assign_anomaly(anomaly_id=obj.pk, owner_id=int(request.user.pk or 0), now=now)
        return _("It is yours.")

    def do_ask(
        self, request: HttpRequest, obj: Anomaly, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        assert obj.order_id is not None
        return told(ask_channel(order_id=obj.order_id, now=now))

    def do_honour(
        self, request: HttpRequest, obj: Anomaly, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        assert obj.order_id is not None
        honour_order(order_id=obj.order_id, username=request.user.get_username(), reason=data["reason"], now=now)
        return _("The price stands. The order is fulfilled now.")

    def do_resolve(
        self, request: HttpRequest, obj: Anomaly, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        resolve_anomaly(anomaly_id=obj.pk, resolution=data["resolution"], now=now)
        return _("Resolved.")


@admin.register(Quote)
class QuoteAdmin(QuitsAdmin):
    """Prices that were asked for, and what became of them."""

    list_display = [
        "order_no",
        admin.money("payable_fen", gettext_lazy("Payable")),
        "state",
        "lease_held",
        admin.when("expires_at", gettext_lazy("Expires")),
        admin.when("created_at", gettext_lazy("Created")),
    ]
    list_filter = ["state", admin.MerchantFilter]
    list_hint = gettext_lazy("Prices that buyers asked for. Each stands for a few minutes and holds its coupon.")
    legends = QUOTES
    search_fields = ["order_no"]
    search_help_text = gettext_lazy("A whole order number, or a user.")
    ordering = ["-created_at", "-id"]
    change_form_template = "orders/quote.html"

    class Media:
        css = {"all": ["orders/order.css"]}

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        return admin.exactly(queryset, search_term, "order_no", "user_id")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return []

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        number, *rest = super().get_list_display(request)
        return [number, buyer_column(self, request), *rest]

    def page_context(self, request: HttpRequest, obj: Quote) -> dict[str, Any]:
        return order_page.quote_context(obj)
