from django.urls import path

from aftersales.api import views

urlpatterns = [
    path("after-sales", views.AfterSalesCollection.as_view(), name="after-sales"),
    path("after-sales/preview", views.AfterSalesPreview.as_view(), name="after-sales-preview"),
    path("after-sales/<str:after_sales_no>", views.AfterSalesDetail.as_view(), name="after-sales-detail"),
    path("after-sales/<str:after_sales_no>/cancel", views.AfterSalesCancel.as_view(), name="after-sales-cancel"),
    path(
        "after-sales/<str:after_sales_no>/return-shipment",
        views.AfterSalesReturnShipment.as_view(),
        name="after-sales-return-shipment",
    ),
]
