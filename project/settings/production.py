"""The site behind a TLS proxy. Everything that differs between machines comes from the environment:
SECRET_KEY, ALLOWED_HOSTS and SHARDING_KEYS (each separated by commas), DATABASE_URL.
REDIS_URL where processes have a second way to each other, and LINK_ADDRESS where nodes run on
several machines. HEALTH_HOST where probes come from outside of the machine or container.
SHARDING_STEERING_KEYS where processes may steer that others may not.

The ways to both servers have to be encrypted and their names verified:
`postgresql://…?sslmode=verify-full` and `rediss://…`. CLEAR_TEXT names the servers, separated by
commas, that a network of your own protects: `postgres,redis`. The proxy has to overwrite
X-Forwarded-Proto: a client's own header would pass for one of the proxy's.
"""

from __future__ import annotations

import os
from urllib.parse import parse_qs, urlsplit

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
_steering_keys = [
    key for key in os.environ.get("SHARDING_STEERING_KEYS", "").replace(" ", "").split(",") if key
]
_clear_text = {name.strip() for name in os.environ.get("CLEAR_TEXT", "").split(",")}


def _encrypted(server: str, url: str, wanted: str, *, is_so: bool) -> None:
    """Refuse a way to a server that others on the network can read, unless CLEAR_TEXT names the
    server.
    """
    local = not urlsplit(url).hostname
    if not (is_so or local or server in _clear_text):
        raise ImproperlyConfigured(
            f"{wanted}. Where a network of your own protects the way to the server, set CLEAR_TEXT={server} in the environment."
        )


if "*" in ALLOWED_HOSTS:
    raise ImproperlyConfigured("ALLOWED_HOSTS must name the site's hosts: '*' takes any Host header.")
_url = _required("DATABASE_URL")
_encrypted(
    "postgres",
    _url,
    "DATABASE_URL needs ?sslmode=verify-full (with sslrootcert): libpq's default verifies no server",
    is_so=parse_qs(urlsplit(_url).query).get("sslmode", [""])[-1] in {"verify-full", "verify-ca"},
)
if _url := os.environ.get("REDIS_URL", ""):
    _encrypted("redis", _url, "REDIS_URL must begin with rediss://", is_so=urlsplit(_url).scheme == "rediss")
del _url

from project.settings.base import *  # noqa: E402 - only once it is sure that nothing embedded is meant

DEBUG = False
DEMO_ADMIN = False
SHARDING = {
    **SHARDING,
    "KEYS": _sharding_keys,
    "STEERING_KEYS": _steering_keys,
    "ENCRYPT": True,
    "LINK_ADDRESS": os.environ.get("LINK_ADDRESS", ""),
    "HEALTH_HOST": os.environ.get("HEALTH_HOST", "127.0.0.1"),
}
SHOP_NEEDS_LOGIN = True
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SECURE_SSL_REDIRECT = True
SECURE_HSTS_SECONDS = 31_536_000
SECURE_HSTS_INCLUDE_SUBDOMAINS = True
SECURE_HSTS_PRELOAD = True
SESSION_COOKIE_SECURE = True
CSRF_COOKIE_SECURE = True
STATIC_ROOT = BASE_DIR / ".data" / "static"
