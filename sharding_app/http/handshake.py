"""What the handshake of a connection tells: the request that it would have been, with its session
and user as they are now, and whether a page of this very site has opened it.

Django's middleware does not run for a WebSocket. So the request is made here, of the handshake's
headers and address.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from django.utils.http import is_same_domain

_PORTS = {"http": 80, "https": 443}


def request_of(scope: Mapping[str, Any]) -> HttpRequest:
    """Return the handshake as a request, with its session and its user as the database has them
    now.
    """
    request = _plain(scope)
    store = import_module(settings.SESSION_ENGINE).SessionStore
    session = request.session = store(request.COOKIES.get(settings.SESSION_COOKIE_NAME, ""))
    # A look must not change what it looks at: the browser would not get the session's new key.
    session.cycle_key = session.flush = lambda: None
    request.user = get_user(request)
    return request


def _plain(scope: Mapping[str, Any], unknown: str = "http") -> ASGIRequest:
    """Return the handshake as a request. `unknown`: its scheme, where the server says none."""
    said = scope.get("scheme") or unknown
    scheme = {"ws": "http", "wss": "https"}.get(said, said)
    return ASGIRequest({**scope, "type": "http", "method": "GET", "scheme": scheme}, BytesIO())


def user_now(scope: Mapping[str, Any]) -> Any:
    """Return the user whose session the connection's cookie names; None: the site has no users."""
    if not apps.is_installed("django.contrib.auth"):
        return None
    return request_of(scope).user


def from_own_page(scope: Mapping[str, Any]) -> bool:
    """Tell whether a page of this site opens the socket: scheme, host and port are its own, or
    CSRF_TRUSTED_ORIGINS names them.

    The browser sends the user's cookie whichever page opens a socket. A page that came over http
    may be an attacker's in the network, though its host is that of a site with https. As for
    Django's CSRF protection, SECURE_PROXY_SSL_HEADER says whether a proxy was reached over https.
    Daphne says no scheme of a WebSocket: without that header it is not known, and not compared.
    """
    try:
        origin = urlsplit(_plain(scope).META.get("HTTP_ORIGIN", ""))
        if origin.scheme not in _PORTS or not origin.hostname:
            return False
        request = _plain(scope, unknown=origin.scheme)
        mine = urlsplit(f"{request.scheme}://{request.get_host()}")
        port = _PORTS[origin.scheme]
        same = (origin.scheme, origin.hostname, origin.port or port) == (
            mine.scheme,
            mine.hostname,
            mine.port or port,
        )
        return same or any(_trusts(urlsplit(each), origin) for each in settings.CSRF_TRUSTED_ORIGINS)
    except (ValueError, DisallowedHost):
        return False


def asked_by_own_page(scope: Mapping[str, Any]) -> bool:
    """Tell the same of a plain request. For one to its own site a browser names no origin."""
    headers = {bytes(name).lower(): bytes(value) for name, value in scope["headers"]}
    if b"origin" in headers:
        return from_own_page(scope)
    return headers.get(b"sec-fetch-site", b"same-origin") in (b"same-origin", b"none")


def _trusts(trusted: Any, origin: Any) -> bool:
    """Compare as Django's CSRF protection does: a star stands for any subdomain."""
    return bool(
        trusted.scheme == origin.scheme and is_same_domain(origin.netloc, trusted.netloc.removeprefix("*"))
    )
