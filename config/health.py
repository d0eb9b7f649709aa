"""Seen from outside: live, ready, measured."""

import hmac

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe
from django_prometheus.exports import ExportToDjangoView

from config import metrics as waiting
from kernel import clock, outbox, valkey

LAG_LIMIT_SECONDS = 120

_migrated = False


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """The process answers."""
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Database, broker, migrations and outbox lag; 503 with the reason while one of them is not as it should be."""
    checks: dict[str, str] = {}
    checks["database"], checks["migrations"], checks["outbox"] = _database_checks()
    try:
        valkey.client().ping()
        checks["broker"] = "ok"
    except valkey.Away as error:
        checks["broker"] = type(error).__name__
    ready = all(state == "ok" for state in checks.values())
    return JsonResponse({"status": "ok" if ready else "not ready", "checks": checks}, status=200 if ready else 503)


def _database_checks() -> tuple[str, str, str]:
    global _migrated
    try:
        if not _migrated:
            executor = MigrationExecutor(connection)
            _migrated = not executor.migration_plan(executor.loader.graph.leaf_nodes())
        lag = outbox.pending(now=clock.now())["oldest_seconds"]
    except DatabaseError as error:
        return type(error).__name__, "unknown", "unknown"
    return (
        "ok",
        "ok" if _migrated else "pending",
        "ok" if lag < LAG_LIMIT_SECONDS else f"{lag:.0f} seconds behind",
    )


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus text. Not public: a bearer token, or loopback where none is configured."""
    token = settings.QUITS_METRICS_TOKEN
    given = request.headers.get("Authorization", "")
    allowed = (
        hmac.compare_digest(given, f"Bearer {token}")
        if token
        else request.META.get("REMOTE_ADDR") in ("127.0.0.1", "::1")
    )
    if not allowed:
        return HttpResponse(status=404)
    waiting.register()
    return ExportToDjangoView(request)
