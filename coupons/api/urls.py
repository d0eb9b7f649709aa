from django.urls import path

from coupons.api import views
from coupons.api.hot import hot
from coupons.commands.lock_coupon import lock_coupon
from coupons.commands.redeem_coupon import redeem_coupon
from coupons.commands.release_coupon import release_coupon
from coupons.commands.renew_coupon import renew_coupon

urlpatterns = [
    path("coupons", views.CouponListView.as_view(), name="coupons"),
    path("coupons/issue", views.IssueView.as_view(), name="coupon-issue"),
    path("coupons/<uuid:coupon_id>", views.CouponView.as_view(), name="coupon"),
    path("coupons/<uuid:coupon_id>/timeline", views.TimelineView.as_view(), name="coupon-timeline"),
    path("coupons/<uuid:coupon_id>/lock", hot("lock", views.LockView, lock_coupon), name="coupon-lock"),
    path("coupons/<uuid:coupon_id>/renew", hot("renew", views.RenewView, renew_coupon), name="coupon-renew"),
    path("coupons/<uuid:coupon_id>/redeem", hot("redeem", views.RedeemView, redeem_coupon), name="coupon-redeem"),
    path("coupons/<uuid:coupon_id>/release", hot("release", views.ReleaseView, release_coupon), name="coupon-release"),
    path("coupons/<uuid:coupon_id>/return", views.ReturnView.as_view(), name="coupon-return"),
    path("coupons/<uuid:coupon_id>/void", views.VoidView.as_view(), name="coupon-void"),
]
