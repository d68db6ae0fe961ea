"""Django's page about an error, without the site's secrets.

Django hides settings by their names, and nothing of what the frames of a traceback hold while DEBUG
is on: a database that does not answer has its password in a local variable. Here every secret of
the settings is taken out of the finished text, wherever it stands.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.utils.html import escape
from django.utils.safestring import SafeString
from django.views.debug import ExceptionReporter

STARS = "********"
MIN_LENGTH = 6
"""A shorter password would take pieces out of ordinary words."""


def site_secrets() -> set[str]:
    """Return the passwords and keys of the settings."""
    found: list[Any] = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    found += [database.get("PASSWORD") for database in settings.DATABASES.values()]
    for layer in settings.CHANNEL_LAYERS.values():
        hosts = layer.get("CONFIG", {}).get("hosts", [])
        found += [host.get("password") for host in hosts if isinstance(host, dict)]
    sharding: dict[str, Any] = settings.SHARDING
    found += [*sharding.get("KEYS", ()), sharding.get("METRICS_TOKEN")]
    return {str(each) for each in found if each and len(each) >= MIN_LENGTH}


def without_secrets(text: str) -> str:
    """Put stars where a secret stands: as it is, as in a URL, as in HTML."""
    for secret in site_secrets():
        for written in {secret, quote(secret, safe=""), escape(secret), repr(str(secret))[1:-1]}:
            text = text.replace(written, STARS)
    return text


class Reporter(ExceptionReporter):
    """Django's own, with stars."""

    def get_traceback_html(self) -> SafeString:
        """Return the page."""
        return SafeString(without_secrets(super().get_traceback_html()))

    def get_traceback_text(self) -> SafeString:
        """Return what clients get that take no HTML."""
        return SafeString(without_secrets(super().get_traceback_text()))
