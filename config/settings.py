"""Settings from the environment only. Production refuses weak defaults.

QUITS_ENV: development (default), test, production.
"""

import logging
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

from config.admin_theme import UNFOLD  # noqa: F401 (a setting by its name)
from config.schedule import BEAT_SCHEDULE

BASE_DIR = Path(__file__).resolve().parent.parent


def env(name: str, default: str | None = None) -> str:
    """A variable of the environment; without a default it is required in production."""
    value = os.environ.get(name)
    if value:
        return value
    if default is None or (QUITS_ENV == "production" and name in NEEDED_IN_PRODUCTION):
        raise ImproperlyConfigured(f"{name} has to be set in the environment")
    return default


QUITS_ENV = os.environ.get("QUITS_ENV", "development")
NEEDED_IN_PRODUCTION = {
    "DATABASE_URL",
    "REDIS_URL",
    "QUITS_SECRET_KEY",
    "QUITS_FIELD_KEYS",
    "QUITS_LEASE_KEYS",
    "QUITS_BASE_URL",
    "QUITS_ALLOWED_HOSTS",
}
if QUITS_ENV not in ("development", "test", "production"):
    raise ImproperlyConfigured("QUITS_ENV is development, test or production")
PRODUCTION = QUITS_ENV == "production"
DEBUG = False

_WEAK_SECRET = "development-only-secret-key-that-production-refuses"  # noqa: S105
_WEAK_FIELD_KEY = "ZGV2ZWxvcG1lbnQtb25seS1maWVsZC1rZXktMzJieXQ="
_WEAK_LEASE_KEY = "1:646576656c6f706d656e742d6f6e6c792d6c656173652d6b6579"

SECRET_KEY = env("QUITS_SECRET_KEY", _WEAK_SECRET)
SECRET_KEY_FALLBACKS = [key for key in os.environ.get("QUITS_SECRET_KEY_FALLBACKS", "").split(",") if key]
QUITS_FIELD_KEYS = env("QUITS_FIELD_KEYS", _WEAK_FIELD_KEY).split(",")
QUITS_LEASE_KEYS = {
    int(version): bytes.fromhex(key)
    for version, _, key in (part.partition(":") for part in env("QUITS_LEASE_KEYS", _WEAK_LEASE_KEY).split(","))
}
"""{key version: HMAC key}; the highest version signs new leases, the others still verify."""

if PRODUCTION:
    if len(SECRET_KEY) < 50 or SECRET_KEY == _WEAK_SECRET:
        raise ImproperlyConfigured("QUITS_SECRET_KEY is weak: 50 random characters or more are needed")
    if _WEAK_FIELD_KEY in QUITS_FIELD_KEYS or any(len(key) < 16 for key in QUITS_LEASE_KEYS.values()):
        raise ImproperlyConfigured("QUITS_FIELD_KEYS or QUITS_LEASE_KEYS hold a development key or a short one")

QUITS_BASE_URL = env("QUITS_BASE_URL", "http://127.0.0.1:8000").rstrip("/")
QUITS_STREAM_URL = env("QUITS_STREAM_URL", QUITS_BASE_URL).rstrip("/")
QUITS_SIMULATOR_URL = os.environ.get("QUITS_SIMULATOR_URL", "").rstrip("/")
if PRODUCTION and QUITS_SIMULATOR_URL:
    raise ImproperlyConfigured("QUITS_SIMULATOR_URL must not be set in production")
QUITS_VAR = Path(os.environ.get("QUITS_VAR") or BASE_DIR / "var")
ALLOWED_HOSTS = env("QUITS_ALLOWED_HOSTS", "127.0.0.1,localhost,[::1],testserver").split(",")
CSRF_TRUSTED_ORIGINS = [QUITS_BASE_URL]

INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "axes",
    "django_filters",
    "django_fsm",
    "django_prometheus",
    "django_structlog",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "drf_standardized_errors",
    "import_export",
    "pgtrigger",
    "rest_framework",
    "kernel",
    "merchants",
    "payments",
    "ledgers",
    "coupons",
    "orders",
    "aftersales",
    "reconciliation",
    "demo",
]

MIDDLEWARE = [
    "config.requests.RequestIdMiddleware",
    "config.requests.WellFormedMiddleware",
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "config.headers.SecurityHeaders",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_structlog.middlewares.RequestMiddleware",
    "axes.middleware.AxesMiddleware",
    "django_prometheus.middleware.PrometheusAfterMiddleware",
]

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.template.context_processors.tz",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# --- PostgreSQL: one statement per transition needs server-side binding and prepared statements -----------------
DATABASES: dict[str, dict[str, Any]] = {
    "default": dict(
        dj_database_url.parse(
            env("DATABASE_URL", "postgresql://quits_app@127.0.0.1:5432/quits"),
            engine="config.postgresql",
            conn_max_age=60,
            conn_health_checks=True,
        )
    )
}
DATABASES["default"]["OPTIONS"] = {
    **DATABASES["default"].get("OPTIONS", {}),
    "server_side_binding": True,
    "prepare_threshold": 3,
    "connect_timeout": 5,
    "application_name": f"quits-{os.environ.get('QUITS_PROCESS', 'manage')}",
}
DATABASE_OWNER_URL = os.environ.get("DATABASE_OWNER_URL") or os.environ.get("DATABASE_URL", "")
"""The role that owns the tables: migrations and tests connect as it, the product never does."""
_OWNER_COMMANDS = {"migrate", "sqlmigrate", "makemigrations", "prepare"}
if DATABASE_OWNER_URL and (QUITS_ENV == "test" or (len(sys.argv) > 1 and sys.argv[1] in _OWNER_COMMANDS)):
    _owner: dict[str, Any] = dict(dj_database_url.parse(DATABASE_OWNER_URL))
    DATABASES["default"].update({name: _owner[name] for name in ("NAME", "USER", "PASSWORD", "HOST", "PORT")})
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Valkey ------------------------------------------------------------------------------------------------------
REDIS_URL = env("REDIS_URL", "redis://127.0.0.1:6379/0")
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "quits",
        "OPTIONS": {"socket_timeout": 2, "socket_connect_timeout": 1},
    }
}

# --- Celery: the outbox in PostgreSQL is the truth, the broker only wakes workers ----------------------------------
CELERY_BROKER_URL = REDIS_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 600,
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
    "socket_timeout": 10,
    "socket_connect_timeout": 1,
}
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = "default"
CELERY_TASK_CREATE_MISSING_QUEUES = True
CELERY_TASK_TIME_LIMIT = 300
CELERY_TASK_SOFT_TIME_LIMIT = 240
CELERY_TASK_PUBLISH_RETRY = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_TIMEZONE = "Asia/Shanghai"
CELERY_BEAT_SCHEDULE = BEAT_SCHEDULE

# --- API ----------------------------------------------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["merchants.api.authentication.ClientAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["merchants.api.authentication.HasScope"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["kernel.http.json_body.JSONBodyParser"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "kernel.http.negotiation.OneFormat",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_PAGINATION_CLASS": None,
    "EXCEPTION_HANDLER": "drf_standardized_errors.handler.exception_handler",
    "UNAUTHENTICATED_USER": None,
    "UNICODE_JSON": True,
    "COERCE_DECIMAL_TO_STRING": False,
}
DRF_STANDARDIZED_ERRORS = {
    "EXCEPTION_HANDLER_CLASS": "kernel.http.problems.ProblemHandler",
    "EXCEPTION_FORMATTER_CLASS": "kernel.http.problems.ProblemFormatter",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Quits API",
    "DESCRIPTION": "Coupons, orders, payments and after-sales for a mini-program backend. Amounts are integer fen.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [],
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_ADD_EXPLICIT_BLANK_NULL_CHOICE": True,
    "ENUM_NAME_OVERRIDES": {
        "AfterSalesStatus": "aftersales.models.Status",
        "AfterSalesParty": "aftersales.models.Actor",
        "Liability": "aftersales.models.Liability",
        "CouponStatus": "coupons.models.CouponStatus",
        "OrderStatus": "orders.models.Order.Status",
        "RefundAttemptStatus": "payments.models.RefundAttempt.Status",
    },
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 11 * 1024 * 1024
IMPORT_EXPORT_ESCAPE_FORMULAE_ON_EXPORT = True

# --- People -------------------------------------------------------------------------------------------------------
LANGUAGE_CODE = "zh-hans"
LANGUAGES = [("zh-hans", "简体中文"), ("en", "English")]
LOCALE_PATHS = [BASE_DIR / "locale"]
TIME_ZONE = "Asia/Shanghai"
USE_I18N = True
USE_TZ = True
FORMAT_MODULE_PATH = "config.formats"

AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 10},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_LOCKOUT_TEMPLATE = "admin/locked_out.html"
AXES_ENABLE_ADMIN = False
AXES_IPWARE_PROXY_COUNT = int(os.environ.get("QUITS_PROXY_COUNT", "0"))
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "admin:index"
QUITS_SECOND_FACTOR_ROLES = frozenset(filter(None, os.environ.get("QUITS_SECOND_FACTOR_ROLES", "").split(",")))
"""Roles that may not work without an authenticator app, for example "finance,operations"."""
QUITS_ISSUER = os.environ.get("QUITS_ISSUER", "Quits")
"""How authenticator apps name this installation."""
QUITS_SESSIONS_PER_PERSON = int(os.environ.get("QUITS_SESSIONS_PER_PERSON", "3"))
QUITS_SESSION_IDLE_SECONDS = int(os.environ.get("QUITS_SESSION_IDLE_SECONDS", "3600"))
QUITS_PROXY_COUNT = int(os.environ.get("QUITS_PROXY_COUNT", "0"))
"""How many proxies stand before us, whose X-Forwarded-For can be believed."""

# --- Browser and transport security -------------------------------------------------------------------------------
_HTTPS = QUITS_BASE_URL.startswith("https://")
if PRODUCTION and not _HTTPS:
    raise ImproperlyConfigured("QUITS_BASE_URL has to be https:// in production")
SESSION_COOKIE_AGE = 8 * 3600
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = _HTTPS
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SECURE = _HTTPS
SECURE_SSL_REDIRECT = _HTTPS and os.environ.get("QUITS_SSL_REDIRECT", "1") == "1"
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if AXES_IPWARE_PROXY_COUNT else None
SECURE_HSTS_SECONDS = 31_536_000 if _HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = _HTTPS
SECURE_HSTS_PRELOAD = _HTTPS
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CONTENT_TYPE_NOSNIFF = True
X_FRAME_OPTIONS = "DENY"
QUITS_ALARM_WEBHOOK = os.environ.get("QUITS_ALARM_WEBHOOK", "")
"""Where an opened P0 or P1 finding is posted as JSON, besides the log."""
QUITS_METRICS_TOKEN = os.environ.get("QUITS_METRICS_TOKEN", "")
"""Bearer token for /metrics; without one only loopback may read it."""

# --- Files --------------------------------------------------------------------------------------------------------
STATIC_URL = "/static/"
STATIC_ROOT = QUITS_VAR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
MEDIA_ROOT = QUITS_VAR / "evidence"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if QUITS_ENV == "test"
        else "whitenoise.storage.CompressedManifestStaticFilesStorage"
    },
}

# --- Logs: JSON lines, no personal data, no secrets ---------------------------------------------------------------
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "config.logs.json_formatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "root": {"handlers": ["stderr"], "level": os.environ.get("QUITS_LOG_LEVEL", "INFO")},
    "loggers": {
        "django.server": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},
        "httpcore": {"level": "WARNING"},
        "axes": {"level": "WARNING"},
    },
}
# One line a request, when it ends. Its id is the one that config.requests gave it, its address is bound there, too.
DJANGO_STRUCTLOG_STATUS_START_LOG_LEVEL = logging.DEBUG
DJANGO_STRUCTLOG_TRUST_UPSTREAM_REQUEST_ID = True
DJANGO_STRUCTLOG_IP_LOGGING_ENABLED = False
