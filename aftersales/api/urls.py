from django.urls import path

from aftersales.api import views

urlpatterns = [
    path("after-sales", views.AfterSalesCollection.as_view(), name="after-sales"),
    path("after-sales/preview", views.AfterSalesPreview.as_view(), name="after-sales-preview"),
    path("after-sales/<slug:after_sales_no>", views.AfterSalesDetail.as_view(), name="after-sales-detail"),
    path("after-sales/<slug:after_sales_no>/cancel", views.AfterSalesCancel.as_view(), name="after-sales-cancel"),
    path(
        "after-sales/<slug:after_sales_no>/return-shipment",
        views.AfterSalesReturnShipment.as_view(),
        name="after-sales-return-shipment",
    ),
    path(
        "after-sales/<slug:after_sales_no>/confirm-receipt",
        views.AfterSalesConfirmReceipt.as_view(),
        name="after-sales-confirm-receipt",
    ),
    path("after-sales/<slug:after_sales_no>/pay", views.AfterSalesPay.as_view(), name="after-sales-pay"),
    path("after-sales/<slug:after_sales_no>/evidence", views.AfterSalesEvidence.as_view(), name="after-sales-evidence"),
    path(
        "after-sales/<slug:after_sales_no>/arbitration",
        views.AfterSalesArbitration.as_view(),
        name="after-sales-arbitration",
    ),
    path("orders/<slug:order_no>/commissions", views.OrderCommissions.as_view(), name="order-commissions"),
    path("orders/<slug:order_no>/arbitration", views.OrderArbitration.as_view(), name="order-arbitration"),
    path(
        "arbitrations/<uuid:case_id>/statements", views.ArbitrationStatements.as_view(), name="arbitration-statements"
    ),
    path("arbitrations/<uuid:case_id>/evidence", views.ArbitrationEvidence.as_view(), name="arbitration-evidence"),
    path("evidence/<uuid:evidence_id>", views.EvidenceFile.as_view(), name="evidence"),
    path("carrier-events", views.CarrierEvents.as_view(), name="carrier-events"),
    path("points/ledger", views.PointsLedger.as_view(), name="points-ledger"),
]
