from django.urls import path

from payments.api.views import RefundNotifyOfAccountView, RefundNotifyView

urlpatterns = [
    path("refunds/notify/<slug:channel>", RefundNotifyView.as_view(), name="refund-notify"),
    path(
        "refunds/notify/<slug:channel>/<uuid:account_id>",
        RefundNotifyOfAccountView.as_view(),
        name="refund-notify-of-account",
    ),
]
