from django.urls import path

from payments.api.views import RefundNotifyView

urlpatterns = [
    path("refunds/notify/<slug:channel>", RefundNotifyView.as_view(), name="refund-notify"),
    path(
        "refunds/notify/<slug:channel>/<uuid:account_id>",
        RefundNotifyView.as_view(),
        name="refund-notify-of-account",
    ),
]
