"""Django settings, from the environment.

DATABASE_URL and BROKER_URL name the servers. Where they are not set, the addresses of this checkout's own
embedded stack are used (`manage.py stack up` writes them), so that commands find it without an export. What can't be
used ends the process in one line (config.given).
"""

import os
from datetime import timedelta
from pathlib import Path

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from config import given
from harness.kinds import models, targets
from harness.ops.local import addresses
from harness.policy.admission import parse_ttl_s
from harness.policy.models import parse as parse_models
from harness.policy.settings import parse

BASE_DIR = Path(__file__).resolve().parent.parent
_local = addresses.load(BASE_DIR)


def _setting(name: str, default: str = "") -> str:
    return os.environ.get(name) or _local.get(name, default)


def _whole(name: str, default: int) -> int:
    return given.whole(name, _setting(name, str(default)))


def _number(name: str, default: float) -> float:
    return given.number(name, _setting(name, str(default)))


def _switch(name: str, default: str) -> bool:
    return given.switch(name, _setting(name, default))


DATABASE_URL = _setting("DATABASE_URL")
BROKER_URL = _setting("BROKER_URL")
# Without a stack and without the variable, sessions and forms last as long as the process.
SECRET_KEY = _setting("SECRET_KEY") or os.urandom(32).hex()
DEBUG = False
ALLOWED_HOSTS = _setting("ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]").split(",")

HARNESS_TOPOLOGY = given.file(BASE_DIR / "config" / "resources.toml", parse)
HARNESS_MODELS = given.file(BASE_DIR / "config" / "models.toml", parse_models)
models.configure(HARNESS_MODELS)
targets.configure(HARNESS_TOPOLOGY.targets)
# Where the output of running tasks goes on its way to who watches: any Redis; without one, nobody sees it live.
HARNESS_LIVE_URL = _setting(
    "HARNESS_LIVE_URL", BROKER_URL if BROKER_URL.startswith(("redis", "unix", "valkey")) else ""
)
# Where the permits of calls are kept, for all workers; without a Redis each process has a fixed share of its own.
HARNESS_PERMITS_URL = _setting("HARNESS_PERMITS_URL", HARNESS_LIVE_URL)
HARNESS_TASK_PACKAGES = _setting("HARNESS_TASK_PACKAGES", "tasks").split(",")
HARNESS_BODY_MAX_BYTES = _whole("HARNESS_BODY_MAX_BYTES", 256 * 1024)  # a payload; a result
# Seconds within which a task of P0, P1, P2, P3 must start unless it says itself; "none": no limit.
HARNESS_TTL_S = given.checked(lambda: parse_ttl_s(_setting("HARNESS_TTL_S", "300,3600,86400,604800")))
# Hours for which an Idempotency-Key stands for what it made; then it is free.
HARNESS_IDEMPOTENCY_HOURS = _number("HARNESS_IDEMPOTENCY_HOURS", 24)
HARNESS_RUN_MAX_TASKS = 10_000
# The bearer token of GET /metrics; without one there are none.
HARNESS_METRICS_TOKEN = _setting("HARNESS_METRICS_TOKEN")
HARNESS_RUN_MAX_BYTES = 32 * 1024 * 1024
# Folders whose files may be ingested, separated as in PATH; "{tenant}" in one is the tenant's number, else every tenant
# may read what is below it. None by default.
HARNESS_DOCUMENT_ROOTS = _setting("HARNESS_DOCUMENT_ROOTS")
# Artifacts: a folder for their bytes; with a bucket only for what is on its way into it. The credentials of S3 come
# from the environment, as boto3 finds them (AWS_ACCESS_KEY_ID ..).
HARNESS_ARTIFACTS_DIR = _setting("HARNESS_ARTIFACTS_DIR", str(addresses.home(BASE_DIR) / "artifacts"))
HARNESS_ARTIFACTS_S3_BUCKET = _setting("HARNESS_ARTIFACTS_S3_BUCKET")
HARNESS_ARTIFACTS_S3_ENDPOINT = _setting("HARNESS_ARTIFACTS_S3_ENDPOINT")  # of a server that isn't Amazon's
HARNESS_ARTIFACTS_S3_PREFIX = _setting("HARNESS_ARTIFACTS_S3_PREFIX", "artifacts")
HARNESS_ARTIFACT_MAX_BYTES = _whole("HARNESS_ARTIFACT_MAX_BYTES", 1024**3)
HARNESS_ARTIFACT_KEEP_DAYS = _number("HARNESS_ARTIFACT_KEEP_DAYS", 30)  # unless the upload says otherwise
HARNESS_KEEP_DAYS = _number("HARNESS_KEEP_DAYS", 30)  # ended tasks and their trace
HARNESS_DEAD_KEEP_DAYS = _number("HARNESS_DEAD_KEEP_DAYS", max(90.0, HARNESS_KEEP_DAYS))  # dead letters
HARNESS_RETENTION = _switch("HARNESS_RETENTION", "1")  # by itself, each hour; else `manage.py retention` does
# The leading dispatcher audits by itself, every so many seconds (0: never), and repairs what is safe.
HARNESS_AUDIT_EVERY_S = _number("HARNESS_AUDIT_EVERY_S", 30)
HARNESS_AUDIT_REPAIR = _switch("HARNESS_AUDIT_REPAIR", "1")
HARNESS_ALERT_TRANSACTION_S = _number("HARNESS_ALERT_TRANSACTION_S", 300)  # a transaction open for longer
HARNESS_ALERT_DEAD_ROWS = _whole("HARNESS_ALERT_DEAD_ROWS", 50_000)  # of a hot table, and a fifth of its rows
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    "artifacts": {
        "BACKEND": "storages.backends.s3.S3Storage",
        "OPTIONS": {
            "bucket_name": HARNESS_ARTIFACTS_S3_BUCKET,
            "endpoint_url": HARNESS_ARTIFACTS_S3_ENDPOINT or None,
            "location": HARNESS_ARTIFACTS_S3_PREFIX,
            "file_overwrite": True,  # names are UUIDs of ours: asking for a free one costs a request
            "max_memory_size": 1024 * 1024,  # of a download; the rest of it is on disk
        },
    }
    if HARNESS_ARTIFACTS_S3_BUCKET
    else {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {
            "location": HARNESS_ARTIFACTS_DIR,
            "file_permissions_mode": 0o600,
            "directory_permissions_mode": 0o700,
        },
    },
}
# Where people reach the web process, for links in what is sent out (https://harness.example).
HARNESS_PUBLIC_URL = _setting("HARNESS_PUBLIC_URL", _local.get("WEB_URL", ""))
HARNESS_LOG_LEVEL = _setting("HARNESS_LOG_LEVEL", "INFO")

INSTALLED_APPS = [
    "harness.web",  # templates: ours, then Unfold's, then the admin's
    "unfold",
    "django.contrib.admin.apps.SimpleAdminConfig",
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "axes",
    "pgtrigger",
    "django_celery_results",
    "ninja",
    "django_htmx",
    "harness.store",
    "harness.ops",
]
MIDDLEWARE = [
    # All async: under ASGI a synchronous one, also Django's own, costs each request a thread.
    "harness.web.edge.Edge",
    "harness.web.static_files.StaticFiles",
    "harness.web.admin.layers.AdminLayers",
]
ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            # Each renders only where it is asked: pages of the admin.
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

try:
    _conninfo = conninfo_to_dict(DATABASE_URL) if DATABASE_URL else {}
except ProgrammingError as error:
    given.stop(f"DATABASE_URL is no address of PostgreSQL (postgresql://user:password@host:port/name): {error}")
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _conninfo.pop("dbname", "harness"),
        "USER": _conninfo.pop("user", ""),
        "PASSWORD": _conninfo.pop("password", ""),
        "HOST": _conninfo.pop("host", ""),
        "PORT": _conninfo.pop("port", ""),
        "OPTIONS": {"connect_timeout": 5, **_conninfo},
        "CONN_HEALTH_CHECKS": True,
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

USE_TZ = True
FORMAT_MODULE_PATH = ["harness.web.formats"]  # clock times, to the second
TIME_ZONE = "UTC"
STATIC_URL = "static/"
WHITENOISE_USE_FINDERS = True
# The largest request: a run of 32 MiB; each payload in it has its own limit.
DATA_UPLOAD_MAX_MEMORY_SIZE = HARNESS_RUN_MAX_BYTES
LOGGING_CONFIG = None  # harness.telemetry.logs configures logging, once, in each process's entry point

# The admin: people's logins. Everything here is at work below /admin/ only (harness.web.admin.layers).
HARNESS_HTTPS = _switch("HARNESS_HTTPS", "0")  # people come over HTTPS: cookies are sent over nothing else
HARNESS_ADMIN_LAYERS = [
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "axes.middleware.AxesMiddleware",
]
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}", "OPTIONS": options}
    for name, options in (
        ("UserAttributeSimilarityValidator", {}),
        ("MinimumLengthValidator", {"min_length": 12}),
        ("CommonPasswordValidator", {}),
        ("NumericPasswordValidator", {}),
    )
]
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]  # both: nobody can lock a colleague out from elsewhere
AXES_RESET_ON_SUCCESS = True
AXES_LOCKOUT_TEMPLATE = "harness/admin/locked_out.html"
AXES_DISABLE_ACCESS_LOG = True  # tries that failed are kept; who came and went is the session's business
AXES_VERBOSE = False
LOGIN_REDIRECT_URL = "/admin/"
SESSION_COOKIE_AGE = 12 * 3600
SESSION_COOKIE_PATH, CSRF_COOKIE_PATH = "/", "/admin/"  # one login for the admin and for the pages beside it
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "harness_session", "harness_csrf"
# Lax: who follows a link to a task in a mail is logged in there. What changes anything is a POST, with a token.
SESSION_COOKIE_SAMESITE, CSRF_COOKIE_SAMESITE = "Lax", "Strict"
CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HARNESS_HTTPS
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        # Unfold's Alpine evaluates its attributes; nothing inline runs, and scripts come from here alone.
        "script-src": ["'self'", "'unsafe-eval'"],
        "style-src": ["'self'"],
        "style-src-attr": ["'unsafe-inline'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
}
UNFOLD = {
    "SITE_TITLE": "Harness",
    "SITE_HEADER": "Harness",
    "SITE_SUBHEADER": "Operations",
    "SITE_SYMBOL": "conveyor_belt",
    "SITE_URL": None,
    "SHOW_VIEW_ON_SITE": False,
    "BORDER_RADIUS": "6px",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": "/static/harness/mark.svg"}],
    "STYLES": ["/static/harness/admin.css"],
    "SIDEBAR": {"navigation": "harness.web.admin.menu.groups"},
}
SILENCED_SYSTEM_CHECKS = [
    # These look for middleware in MIDDLEWARE; it stands in HARNESS_ADMIN_LAYERS, which a check of our own looks into.
    "admin.E408",
    "admin.E409",
    "admin.E410",
    "axes.W002",
    # SecurityMiddleware, frame options and CSRF: harness.web.edge sends the headers on every answer, the API takes no
    # cookies, and what redirects to HTTPS (and says HSTS) is the proxy that ends it.
    "security.W001",
    "security.W002",
    "security.W003",
    "security.W004",
    "security.W008",
]
