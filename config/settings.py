"""Django settings, from the environment.

DATABASE_URL and BROKER_URL name the servers. Where they are not set, the addresses of this checkout's own
embedded stack are used (`manage.py stack up` writes them), so that commands find it without an export.
"""

import os
import tomllib
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from harness.ops.local import addresses
from harness.policy.settings import parse

BASE_DIR = Path(__file__).resolve().parent.parent
_local = addresses.load(BASE_DIR)


def _setting(name: str, default: str = "") -> str:
    return os.environ.get(name) or _local.get(name, default)


DATABASE_URL = _setting("DATABASE_URL")
BROKER_URL = _setting("BROKER_URL")
# Without a stack and without the variable, sessions and forms last as long as the process.
SECRET_KEY = _setting("SECRET_KEY") or os.urandom(32).hex()
DEBUG = False
ALLOWED_HOSTS = _setting("ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]").split(",")

with (BASE_DIR / "config" / "resources.toml").open("rb") as _file:
    HARNESS_TOPOLOGY = parse(tomllib.load(_file))
HARNESS_TASK_PACKAGES = _setting("HARNESS_TASK_PACKAGES", "tasks").split(",")
HARNESS_BODY_MAX_BYTES = int(_setting("HARNESS_BODY_MAX_BYTES", str(256 * 1024)))  # a payload; a result
HARNESS_RUN_MAX_TASKS = 10_000
HARNESS_RUN_MAX_BYTES = 32 * 1024 * 1024
HARNESS_LOG_LEVEL = _setting("HARNESS_LOG_LEVEL", "INFO")

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "pgtrigger",
    "django_celery_results",
    "ninja",
    "harness.store",
    "harness.web",
    "harness.ops",
]
MIDDLEWARE = [
    # All async: under ASGI a synchronous one, also Django's own, costs each request a thread.
    "harness.web.edge.Edge",
    "harness.web.static_files.StaticFiles",
]
ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": []},
    }
]

try:
    _conninfo = conninfo_to_dict(DATABASE_URL) if DATABASE_URL else {}
except ProgrammingError as error:
    raise ImproperlyConfigured(
        f"DATABASE_URL is no address of PostgreSQL (postgresql://user:password@host:port/name): {error}"
    ) from None
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
TIME_ZONE = "UTC"
STATIC_URL = "static/"
WHITENOISE_USE_FINDERS = True
# The largest request: a run of 32 MiB; each payload in it has its own limit.
DATA_UPLOAD_MAX_MEMORY_SIZE = HARNESS_RUN_MAX_BYTES
LOGGING_CONFIG = None  # harness.telemetry.logs configures logging, once, in each process's entry point
