"""The site behind a TLS proxy. Everything that differs between machines comes from the environment:
SECRET_KEY, ALLOWED_HOSTS and SHARDING_KEYS (each separated by commas), DATABASE_URL, REDIS_URL."""

from __future__ import annotations

import os

from django.core.exceptions import ImproperlyConfigured


def _required(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise ImproperlyConfigured(
            f"Set {name} in the environment: project.settings.production has no default for it."
        )
    return value


SECRET_KEY = _required("SECRET_KEY")
ALLOWED_HOSTS = [host.strip() for host in _required("ALLOWED_HOSTS").split(",")]
_sharding_keys = [key.strip() for key in _required("SHARDING_KEYS").split(",")]
_required("DATABASE_URL")
_required("REDIS_URL")

from project.settings.base import *  # noqa: E402 - only once it is sure that nothing embedded is meant

DEBUG = False
DEMO_ADMIN = False
SHARDING = {**SHARDING, "KEYS": _sharding_keys}
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SECURE_SSL_REDIRECT = True
SECURE_HSTS_SECONDS = 31_536_000
SECURE_HSTS_INCLUDE_SUBDOMAINS = True
SECURE_HSTS_PRELOAD = True
SESSION_COOKIE_SECURE = True
CSRF_COOKIE_SECURE = True
STATIC_ROOT = BASE_DIR / ".data" / "static"
