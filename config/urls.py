"""The addresses of the house: the API of each app below /api/v1/, the back office below /admin/."""

import sys
from importlib.util import find_spec

from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from config import health
from kernel import admin, valkey
from kernel.errors import ServiceAway
from kernel.http.problems import problem_response

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index"), name="home"),
    path("admin/", admin.site.urls),
    path("i18n/", include("django.conf.urls.i18n")),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
    path("api/schema", SpectacularAPIView.as_view(), name="schema"),
    path("api/docs", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="docs"),
    *[
        path("api/v1/", include(f"{app}.api.urls"))
        for app in ("merchants", "payments", "coupons", "orders", "aftersales", "reconciliation")
        if find_spec(f"{app}.api") and find_spec(f"{app}.api.urls")
    ],
]


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404 as a problem below /api/, as a page elsewhere."""
    if request.path.startswith("/api/"):
        return problem_response(request, status=404, code="NOT_FOUND", detail="There is no such address.")
    from django.views.defaults import page_not_found

    return page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """500 without a word about the inside; 503, to be tried again, while the database or Valkey is away."""
    away = isinstance(sys.exc_info()[1], (OperationalError, *valkey.Away))
    if request.path.startswith("/api/"):
        if away:
            return problem_response(
                request, status=503, code=ServiceAway.code, detail=str(ServiceAway.message), retry_after_seconds=1
            )
        return problem_response(request, status=500, code="INTERNAL_ERROR", detail="Something went wrong here.")
    from django.views.defaults import server_error as page

    response = page(request)
    if away:
        response.status_code = 503
        response["Retry-After"] = "1"
    return response


handler404 = not_found
handler500 = server_error
