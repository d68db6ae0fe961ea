"""Reads DATABASE_URL and REDIS_URL into what Django and Channels want; no password is left in a
text that gets printed.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from sharding_app.embedded import Secret


def _split(name: str, url: str) -> SplitResult:
    """Take a URL apart. What is wrong with it is said without quoting it: it may hold a
    password.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ImproperlyConfigured(
            f"{name} is no URL: is a character of its password such as '#', '/' or '@' not written as %23, %2F or %40?"
        ) from None
    return parts


def database(url: str) -> dict[str, Any]:
    """Return one entry of DATABASES; what follows the question mark goes to libpq (`sslmode`,
    `host` for a socket…).
    """
    parts = _split("DATABASE_URL", url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise ImproperlyConfigured(
            "DATABASE_URL must begin with postgresql://: the journal needs PostgreSQL."
        )
    if parts.fragment:
        raise ImproperlyConfigured("DATABASE_URL has a '#': write it as %23.")
    options = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")) or "postgres",
        "USER": unquote(parts.username or ""),
        "PASSWORD": Secret(unquote(parts.password or "")),
        "HOST": options.pop("host", None) or parts.hostname or "",
        "PORT": str(parts.port or ""),
        "OPTIONS": options,
    }


def redis_host(url: str) -> dict[str, Any]:
    """Return one entry of a Redis layer's `hosts`: the address, and apart from it who we are
    there.
    """
    parts = _split("REDIS_URL", url)
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    # redis-py 8 gives up on a silent socket after five seconds; a subscriber may well hear nothing
    # for longer.
    host: dict[str, Any] = {"address": address, "socket_timeout": None}
    if parts.username:
        host["username"] = unquote(parts.username)
    if parts.password:
        host["password"] = Secret(unquote(parts.password))
    return host
