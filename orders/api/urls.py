from django.urls import path

from orders.api import views

urlpatterns = [
    path("quotes", views.QuoteCreateView.as_view(), name="quotes"),
    path("quotes/<uuid:quote_id>", views.QuoteView.as_view(), name="quote"),
    path("orders", views.OrdersView.as_view(), name="orders"),
    path("orders/notify/<slug:channel>", views.PaymentNotifyView.as_view(), name="payment-notify"),
    path(
        "orders/notify/<slug:channel>/<uuid:account_id>",
        views.PaymentNotifyView.as_view(schema=None),
        name="payment-notify-of-account",
    ),
    path("orders/status/<str:token>", views.StatusView.as_view(), name="order-status"),
    path("wallets/<str:user_id>", views.WalletView.as_view(), name="wallet"),
    path("orders/<slug:order_no>", views.OrderView.as_view(), name="order"),
    path("orders/<slug:order_no>/pay", views.PayView.as_view(), name="order-pay"),
    path("orders/<slug:order_no>/cancel", views.CancelView.as_view(), name="order-cancel"),
    path("orders/<slug:order_no>/ship", views.ShipView.as_view(), name="order-ship"),
    path("orders/<slug:order_no>/sign", views.SignView.as_view(), name="order-sign"),
    path("orders/<slug:order_no>/confirm-receipt", views.ConfirmReceiptView.as_view(), name="order-confirm-receipt"),
    path("orders/<slug:order_no>/revoke-token", views.RevokeTokenView.as_view(), name="order-revoke-token"),
    path("orders/<slug:order_no>/timeline", views.TimelineView.as_view(), name="order-timeline"),
]
