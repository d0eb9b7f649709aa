from django.urls import path

from coupons.api import views

urlpatterns = [
    path("coupons", views.CouponListView.as_view(), name="coupons"),
    path("coupons/issue", views.IssueView.as_view(), name="coupon-issue"),
    path("coupons/<uuid:coupon_id>", views.CouponView.as_view(), name="coupon"),
    path("coupons/<uuid:coupon_id>/timeline", views.TimelineView.as_view(), name="coupon-timeline"),
    path("coupons/<uuid:coupon_id>/lock", views.LockView.as_view(), name="coupon-lock"),
    path("coupons/<uuid:coupon_id>/renew", views.RenewView.as_view(), name="coupon-renew"),
    path("coupons/<uuid:coupon_id>/redeem", views.RedeemView.as_view(), name="coupon-redeem"),
    path("coupons/<uuid:coupon_id>/release", views.ReleaseView.as_view(), name="coupon-release"),
    path("coupons/<uuid:coupon_id>/return", views.ReturnView.as_view(), name="coupon-return"),
    path("coupons/<uuid:coupon_id>/void", views.VoidView.as_view(), name="coupon-void"),
]
